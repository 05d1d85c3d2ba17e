//! The settings of runs that take no time, once for the tests of all crates: each test says what is another in its own.
#![allow(dead_code, reason = "not every crate has tests of both")]

/// A simulation that anybody can repeat.
pub(crate) const RUN: &str = r#"rounds = 11
noise_seed = 3

[data]
kind = "synthetic"
posts_per_user = 6

[model]
preset = "tiny"
vocabulary = 120
hidden = 8
embedding = 8

[local]
batch = 4
unroll = 5
learning_rate = 0.5
most_tokens = 60

[participation]
kind = "poisson"
population = 2000
cohort = 12

[clip]
kind = "flat"
norm = 0.5

[privacy]
mechanism = "gaussian"
noise_multiplier = 0.5
delta = 1e-5

[server]
optimizer = "momentum"
momentum = 0.9
learning_rate = 0.5

[evaluation]
every = 3
users = 6
most_tokens = 300

[checkpoint]
every = 4
"#;

/// A task of real devices.
pub(crate) const TASK: &str = r#"rounds = 6
unit = "device"
noise_seed = 3

[data]
kind = "devices"

[model]
preset = "tiny"
vocabulary = 100
hidden = 6
embedding = 6

[local]
batch = 4
unroll = 5
learning_rate = 0.5
most_tokens = 40

[participation]
kind = "arrival"
population = 400
min_separation = 1
max_participations = 4
cohort = 24

[clip]
kind = "flat"
norm = 0.5

[privacy]
mechanism = "tree"
noise_multiplier = 2.0
delta = 1e-5

[server]
optimizer = "sgd"
learning_rate = 0.5

[evaluation]
every = 3
users = 6
most_tokens = 300

[devices]
select_seconds = 0.5
report_seconds = 8
tick_seconds = 0.2
begin_with = 300
"#;

/// The same settings but for some, each as `section.key=value`: in its line, or a new line at the end of its section. Without a value the
/// line goes.
pub(crate) fn with(text: &str, changes: &[&str]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for change in changes {
        let (name, value) = change.split_once('=').expect("a key and a value");
        let (section, key) = name.split_once('.').unwrap_or(("", name));
        let from = match section {
            "" => 0,
            _ => 1 + lines.iter().position(|line| *line == format!("[{section}]")).expect("a section"),
        };
        let to = lines[from..].iter().position(String::is_empty).map_or(lines.len(), |end| from + end);
        let place = (from..to).find(|at| lines[*at].split(" = ").next() == Some(key));
        let line = format!("{key} = {}", quoted(value));
        match (place, value) {
            // A section without a key goes too.
            (Some(at), "") if to == from + 1 && from > 0 => _ = lines.drain(from - 1..=at),
            (Some(at), "") => _ = lines.remove(at),
            (Some(at), _) => lines[at] = line,
            (None, "") => panic!("there is no {name} to take away"),
            (None, _) => lines.insert(to, line),
        }
    }
    lines.join("\n") + "\n"
}

/// As TOML has it: names in quotes, and the rest as it is.
fn quoted(value: &str) -> String {
    let is_name = value.starts_with(|c: char| c.is_ascii_alphabetic()) && !matches!(value, "true" | "false");
    if is_name { format!("{value:?}") } else { value.to_owned() }
}

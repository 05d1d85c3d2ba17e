//! Tests: wrong settings and their errors; settings of earlier versions are read and written unchanged.

use super::{
    Config, Document, PATHS,
    clip_rules::CLIP_RULES,
    keys::{ByKind, Head, Key, Leaf, Listing, Section, Usual, Visit},
    mechanism::MechanismKind,
    nearest::one_of,
};
use privacy::design::{DESIGNS, Design, SizeOf};

/// Settings that are right, for the tests of settings and of plans.
pub(crate) const TEXT: &str = r#"rounds = 60

[data]
kind = "synthetic"

[model]
preset = "tiny"

[local]
batch = 8
unroll = 10
learning_rate = 0.5

[participation]
kind = "poisson"
population = 100_000
cohort = 200

[clip]
kind = "flat"
norm = 0.8

[privacy]
mechanism = "gaussian"
noise_multiplier = 1.0
delta = 1e-6

[server]
optimizer = "sgd"
learning_rate = 1.0
"#;

fn config(text: &str, set: &[&str]) -> Result<Config, String> {
    let set: Vec<String> = set.iter().map(|pair| (*pair).to_owned()).collect();
    Document::new(text, &set).and_then(|document| document.config()).map_err(|error| error.to_string())
}

fn refused(text: &str, set: &[&str]) -> String {
    config(text, set).map(|_| ()).expect_err(&format!("{set:?} was not refused"))
}

/// What is said of clipping rules and of mechanisms, whichever there are.
struct Registered {
    falt: String,
    no_rule: String,
    not_text: String,
    no_clip: String,
    no_mechanism: String,
    bands: String,
    buffers: String,
    restarts: String,
    completion: String,
}

impl Registered {
    fn new() -> Self {
        let clips = quoted(CLIP_RULES.iter().map(|rule| rule.name()));
        let mechanisms = quoted(MechanismKind::all().map(MechanismKind::name));
        let with = |key: &str, which: fn(&Design) -> bool| {
            let names = quoted(DESIGNS.into_iter().filter(|design| which(design)).map(|design| design.name));
            format!("privacy.{key}: only valid with mechanism = {names}; ")
        };
        Self {
            falt: format!("clip.kind: must be {clips}, got \"falt\" (did you mean flat?)"),
            no_rule: format!("clip.kind: must be {clips}, got \"none\""),
            not_text: format!("clip.kind: must be {clips}, as text in quotes"),
            no_clip: format!("clip.kind: is missing: {clips}"),
            no_mechanism: format!("privacy.mechanism: is missing: {mechanisms}"),
            bands: with("bands", |design| design.size.is_some_and(|size| size.of == SizeOf::Bands)),
            buffers: with("buffers", |design| design.size.is_some_and(|size| size.of == SizeOf::Buffers)),
            restarts: with("restarts", |_| true),
            completion: with("tree_completion", |design| design.completes),
        }
    }
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    one_of(&names.map(|name| format!("{name:?}")).collect::<Vec<_>>())
}

/// Every kind of error: the key, what is wrong with it, what is allowed, and what was probably meant.
#[test]
fn what_is_wrong_is_said_with_what_is_allowed() {
    const ARRIVAL: [&str; 3] =
        ["participation.kind=arrival", "participation.min_separation=9", "participation.max_participations=2"];
    let of_tree = [&ARRIVAL[..], &["privacy.mechanism=tree"]].concat();
    let with = |base: &[&'static str], more: &'static str| [base, &[more]].concat();
    let said = Registered::new();
    let cases: Vec<(Vec<&str>, &str)> = vec![
        // A key that there is not.
        (
            vec!["clip.nrom=1"],
            "clip.nrom: there is no such key (did you mean norm?); valid keys with kind = \"flat\": norm and greedy",
        ),
        (vec!["clip.zzz=1"], "clip.zzz: there is no such key; valid keys with kind = \"flat\": norm and greedy"),
        (vec!["checkpoint.evry=1"], "checkpoint.evry: there is no such key (did you mean every?); valid keys: every"),
        (vec!["clp.norm=1"], "clp: there is no such section (did you mean clip?); valid keys: rounds, unit, "),
        (vec!["noise_multiplier=1"], "noise_multiplier: there is no such key (did you mean privacy.noise_multiplier, "),
        (vec!["evaluation.devices.evry=1"], "evaluation.devices.evry: there is no such key (did you mean every?)"),
        (
            vec!["schedule=[{ from = 1, clip_nrm = 2 }]"],
            "schedule.0.clip_nrm: there is no such key (did you mean clip_norm?)",
        ),
        // A key that goes with something else.
        (
            vec!["data.path=x.store"],
            "data.path: only valid with kind = \"store\"; valid keys with kind = \"synthetic\": seed, dialect, users and posts_per_user",
        ),
        (vec!["data.public_text=x.txt"], "data.public_text: only valid with kind = \"devices\"; "),
        (
            vec!["data.kind=store", "data.path=x", "data.seed=1"],
            "data.seed: only valid with kind = \"synthetic\" or \"devices\"; valid keys with kind = \"store\": path, held_out_per_mille and salt",
        ),
        (
            vec!["participation.min_separation=3"],
            "participation.min_separation: only valid with kind = \"arrival\"; valid keys with kind = \"poisson\": population, cohort, vanish and allow_absent",
        ),
        (
            vec!["clip.quantile=0.5"],
            "clip.quantile: only valid with kind = \"adaptive\"; valid keys with kind = \"flat\": norm and greedy",
        ),
        (vec!["privacy.bands=3"], said.bands.as_str()),
        (vec!["privacy.buffers=3"], said.buffers.as_str()),
        (vec!["privacy.restarts=[20]"], said.restarts.as_str()),
        (vec!["privacy.tree_completion=true"], said.completion.as_str()),
        (with(&of_tree, "privacy.bands=3"), said.bands.as_str()),
        (
            vec!["privacy.mechanism=none"],
            "privacy.noise_multiplier: only valid with mechanism = \"gaussian\", \"tree\", ",
        ),
        (
            vec!["privacy.mechanism=none", "privacy.noise_multiplier=", "privacy.max_epsilon=3"],
            "privacy.max_epsilon: only valid with mechanism = ",
        ),
        (
            vec!["server.momentum=0.9"],
            "server.momentum: only valid with optimizer = \"momentum\"; valid keys with optimizer = \"sgd\": learning_rate",
        ),
        (vec!["server.beta1=0.9"], "server.beta1: only valid with optimizer = \"adam\" or \"yogi\"; "),
        (vec!["server.tau=0.9"], "server.tau: only valid with optimizer = \"adam\", \"adagrad\" or \"yogi\"; "),
        (vec!["estimator.least_total_weight=3"], "estimator.least_total_weight: only valid with kind = \"clipped\"; "),
        (
            vec!["estimator.kind=average", "estimator.total_weight=3"],
            "estimator.total_weight: only valid with kind = \"fixed\"; ",
        ),
        (
            vec!["local.algorithm=fedsgd-all", "local.epochs=2"],
            "local.epochs: only valid with algorithm = \"fedavg\"; valid keys with algorithm = \"fedsgd-all\": batch, unroll, learning_rate and most_tokens",
        ),
        (
            vec!["local.algorithm=fedsgd-all", "local.update_penalty=0.1"],
            "local.update_penalty: only valid with algorithm = \"fedavg\": ",
        ),
        (vec!["secagg.dropout=0.05"], "secagg: only valid with aggregation = \"secagg\""),
        (vec!["devices.begin_with=5"], "devices: only valid with data.kind = \"devices\""),
        (
            vec!["data.kind=devices", "participation.vanish=0.1"],
            "participation.vanish: only valid with simulated users, data.kind = ",
        ),
        (
            vec!["data.kind=devices", "participation.allow_absent=true"],
            "participation.allow_absent: only valid with simulated users, ",
        ),
        (
            vec!["data.kind=devices", "stands_for={ population = 9, cohort = 3 }"],
            "stands_for: only valid with a simulation, ",
        ),
        (vec!["model.public=Wikipedia"], "model.public: only valid with from, the model to start from"),
        (vec!["model.from=pretrained"], "model.preset: only valid with a new model: "),
        (
            vec!["model.from=pretrained", "model.preset=", "model.vocabulary=9"],
            "model.vocabulary: only valid with a new model: ",
        ),
        // A value that there is not.
        (vec!["clip.kind=falt"], said.falt.as_str()),
        (vec!["clip.kind=none"], said.no_rule.as_str()),
        (vec!["clip.kind=3"], said.not_text.as_str()),
        (
            vec!["participation.kind=fixed_size"],
            "participation.kind: must be \"poisson\", \"fixed-size\", \"arrival\" or \"once\", got \"fixed_size\" (did you mean fixed-size?)",
        ),
        (vec!["privacy.mechanism=gausian"], "got \"gausian\" (did you mean gaussian?)"),
        (vec!["server.optimizer=Adam"], "got \"Adam\" (did you mean adam?)"),
        (
            vec!["aggregation=secag"],
            "aggregation: must be \"plain\" or \"secagg\", got \"secag\" (did you mean secagg?)",
        ),
        (vec!["data.kind=device"], "got \"device\" (did you mean devices?)"),
        (vec!["unit=users"], "unit: must be \"user\", \"device\" or \"example\", got \"users\" (did you mean user?)"),
        (
            vec!["data.dialect=inforaml"],
            "data.dialect: must be \"general\" or \"informal\", got \"inforaml\" (did you mean informal?)",
        ),
        (
            vec!["aggregation=secagg", "secagg.noise=devices"],
            "secagg.noise: must be \"central\" or \"distributed\", got \"devices\"",
        ),
        (vec!["privacy.rounding=5"], "privacy.rounding: must be \"nearest\" or \"conditional\", got \"5\""),
        // A value that is not of its key.
        (vec!["clip.norm=abc"], "clip.norm: must be a number, got \"abc\""),
        (vec!["rounds=-3"], "rounds: must be a whole number, 0 or more, got -3"),
        (vec!["rounds=2.5"], "rounds: must be a whole number, 0 or more, got 2.5"),
        (
            vec!["privacy.group=5000000000"],
            "privacy.group: must be a whole number from 0 to 4294967295, got 5000000000",
        ),
        (vec!["clip.greedy=yes"], "clip.greedy: must be true or false, got \"yes\""),
        (vec!["model.preset=3"], "model.preset: must be text in quotes, got 3"),
        (vec!["data.kind=store", "data.path=\"\""], "data.path: is empty: give it a value"),
        (with(&of_tree, "privacy.restarts=20"), "privacy.restarts: must be a list, such as [10, 20], got 20"),
        (with(&of_tree, "privacy.restarts=[\"a\"]"), "privacy.restarts: must be a whole number, 0 or more, got \"a\""),
        (vec!["noise_seed=1979-05-27"], "noise_seed: must be a whole number, 0 or more, got a date"),
        (vec!["clip=3"], "clip: must be a section: write [clip]"),
        (vec!["schedule=3"], "schedule: must be written as [[schedule]]"),
        (vec!["rounds.x=1"], "rounds.x: rounds is not a section"),
        (vec!["rounds={ x = 1 }"], "rounds: must be a whole number, 0 or more, got a table"),
        // What is missing.
        (vec!["clip.norm="], "clip.norm: is missing: without a bound, one user could move the sum"),
        (vec!["clip.kind=adaptive", "clip.norm="], "clip.norm: is missing: an adaptive clip starts with one"),
        (vec!["clip.kind=adaptive"], "clip.quantile: is missing: an adaptive clip follows a quantile"),
        (vec!["clip.kind="], said.no_clip.as_str()),
        (vec!["privacy.mechanism="], said.no_mechanism.as_str()),
        (vec!["privacy.delta="], "privacy.delta: is missing: a guarantee needs a delta, well below 1/population"),
        (vec!["privacy.noise_multiplier="], "privacy.noise_multiplier: is missing: z: standard deviation of the noise"),
        (
            vec!["participation.kind=arrival"],
            "participation.min_separation: is missing: how many rounds a device waits between two participations (MinS)",
        ),
        (vec!["data.kind=store"], "data.path: is missing: give the store that `keyhush data import` wrote"),
        (vec!["server.optimizer=momentum"], "server.momentum: is missing: share of the last step that is kept"),
        (with(&ARRIVAL, "privacy.mechanism=banded"), "privacy.bands: is missing: give the number of bands"),
        (vec!["clip="], "clip: the section is missing: write [clip]"),
        // What is no setting at all.
        (vec!["clip"], "--set clip: must be key=value"),
        (vec!["=3"], "--set =3: the key is missing"),
        (vec!["clip..norm=3"], "--set clip..norm=3: the key is missing"),
        (vec!["clip.nrom="], "clip.nrom: there is no such key to remove (did you mean clip.norm?)"),
        (vec!["privacy.stands_for="], "privacy.stands_for: there is no such key to remove (did you mean stands_for?)"),
    ];
    for (set, wanted) in cases {
        let said = refused(TEXT, &set);
        let said = said.strip_prefix("line ").map_or(said.as_str(), |rest| rest.split_once(": ").unwrap().1);
        assert!(said.starts_with(wanted) || (wanted.starts_with("got") && said.contains(wanted)), "{set:?}: {said}");
    }
}

/// The line is that of the key in the text, or of its section where it is missing; what was set beside the text has none.
#[test]
fn the_line_is_where_to_look() {
    let line = |from: &str, to: &str| {
        assert!(TEXT.contains(from), "{from}");
        let said = refused(&TEXT.replace(from, to), &[]);
        said.strip_prefix("line ").and_then(|rest| rest.split(':').next()).and_then(|n| n.parse::<usize>().ok())
    };
    let at = |text: &str| Some(TEXT.lines().position(|line| line == text).unwrap() + 1);
    assert_eq!(line("norm = 0.8", "nrom = 0.8"), at("norm = 0.8"));
    assert_eq!(line("norm = 0.8", "norm = \"a\""), at("norm = 0.8"));
    assert_eq!(line("\"gaussian\"", "\"none\""), at("noise_multiplier = 1.0"));
    assert_eq!(line("\"sgd\"", "\"sgdd\""), at("optimizer = \"sgd\""));
    assert_eq!(line("kind = \"flat\"\n", ""), at("[clip]"));
    assert_eq!(line("[clip]", "[clipp]"), at("[clip]"));
    assert_eq!(line("cohort = 200\n", "cohort = 200\nmin_separation = 3\n"), at("cohort = 200").map(|line| line + 1));
    for set in ["clip.nrom=1", "clip.norm=abc", "clip.kind=falt", "privacy.mechanism=none"] {
        let said = refused(TEXT, &[set]);
        // With another mechanism, the error names the key that is not valid with it.
        assert_eq!(said.starts_with("line "), set == "privacy.mechanism=none", "{set}: {said}");
    }
    let built_in = Document::built_in(TEXT, &["clip.kind=adaptive".to_owned()]).unwrap();
    assert!(built_in.config().unwrap_err().to_string().starts_with("clip.quantile: is missing"));
}

/// What says nothing does no harm beside a kind that cannot use it.
#[test]
fn what_says_nothing_may_stand_anywhere() {
    let set = [
        "privacy.tree_completion=false",
        "privacy.restarts=[]",
        "local.algorithm=fedsgd-all",
        "local.update_penalty=0",
    ];
    let config = config(TEXT, &set).unwrap();
    let text = config.to_toml().unwrap();
    assert!(
        !text.contains("tree_completion") && !text.contains("restarts") && text.contains("update_penalty = 0.0"),
        "{text}"
    );
}

/// Settings of earlier runs are read, and written byte for byte as they were: runs recognise themselves by them.
#[test]
fn settings_of_earlier_versions_are_written_as_they_were() {
    let all = include_str!("../../testdata/keyhush-0.1.0/settings.txt");
    let mut seen = 0;
    for part in all.split("# ==== ").skip(1) {
        let (name, text) = part.split_once('\n').unwrap();
        let config = config(text, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(config.to_toml().unwrap(), text, "{name}");
        let json = serde_json::to_value(&config).unwrap();
        assert_eq!(json["rounds"], 2, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 14);
}

/// Each key of each kind is somewhere in the settings of earlier versions: none of them can change unseen.
#[test]
fn settings_of_earlier_versions_have_every_key() {
    let all = include_str!("../../testdata/keyhush-0.1.0/settings.txt");
    let mut written = std::collections::BTreeSet::new();
    for part in all.split("# ==== ").skip(1) {
        let mut section = String::new();
        for line in part.lines().skip(1) {
            match line.strip_prefix('[') {
                Some(name) => section = format!("{}.", name.trim_matches(['[', ']'])),
                None => _ = line.split_once(" = ").map(|(key, _)| written.insert(format!("{section}{key}"))),
            }
        }
    }
    let all = Listing::all::<Config>();
    let is_section = |path: &String| all.iter().any(|other| other.starts_with(&format!("{path}.")));
    let missing: Vec<&String> = all.iter().filter(|path| !is_section(path) && !written.contains(*path)).collect();
    let new = |path: &str| {
        path.starts_with("upload.")
            || path.starts_with("audit.")
            || path.starts_with("finetune.")
            || path == "schedule.local_epochs"
            || path == "devices.after"
    };
    let missing: Vec<&String> = missing.into_iter().filter(|path| !new(path)).collect();
    assert_eq!(missing, ["model.public"], "a key that is new since then is to be named here");
}

/// The table of keys in the documents has every key that there is.
#[test]
fn every_key_is_in_the_documents() {
    let text = include_str!("../../../../docs/TRAINING.md");
    let row = |section: &str| {
        let start = match section {
            "" => "| (top) |".to_owned(),
            "schedule" => "| `[[schedule]]` |".to_owned(),
            other => format!("| `{other}` |"),
        };
        text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no row {start}"))
    };
    let all = Listing::all::<Config>();
    for path in &all {
        if all.iter().any(|other| other.starts_with(&format!("{path}."))) {
            row(path);
            continue;
        }
        let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
        assert!(row(section).contains(&format!("`{key}`")), "{path} is not in docs/TRAINING.md");
    }
    let learners = super::learners::LEARNERS.iter().map(|kind| ("model", kind.name));
    for (section, name) in learners.chain(super::clip_rules::CLIP_RULES.map(|kind| ("clip", kind.name()))) {
        assert!(row(section).contains(&format!("`{name}`")), "{section}: {name} is not in docs/TRAINING.md");
    }
}

/// Pages and tracking servers show the last part of these alone.
#[test]
fn every_key_that_is_a_path_is_known_as_one() {
    struct Paths(String, Vec<String>);
    impl Paths {
        fn check<T>(&mut self, key: &Key<'_>) {
            let path = format!("{}{}", self.0, key.name);
            if std::any::type_name::<T>().contains("PathBuf") && !self.1.contains(&path) {
                self.1.push(path);
            }
        }
        fn within<S: Section>(&mut self, head: &Head, mut section: S) {
            let outer = std::mem::take(&mut self.0);
            self.0 = format!("{outer}{}.", head.name);
            section.keys(self);
            self.0 = outer;
        }
    }
    impl Visit for Paths {
        fn says(&self, name: &str) -> bool {
            name == "from" && self.0 == "model."
        }
        fn need<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T) {
            self.check::<T>(key);
        }
        fn may<T: Leaf>(&mut self, key: &Key<'_>, _: &mut Option<T>) {
            self.check::<T>(key);
        }
        fn or<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T, _: T) {
            self.check::<T>(key);
        }
        fn rare<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T, _: T) {
            self.check::<T>(key);
        }
        fn choose<S: ByKind>(&mut self, _: &Key<'_>, to: &mut S, _: Usual) {
            if to.kind_name() == S::kinds()[0] {
                for kind in S::kinds().into_iter().skip(1) {
                    let mut other = to.clone();
                    other.turn(kind);
                    other.keys(self);
                }
            }
        }
        fn idle<T: Leaf>(&mut self, _: &Key<'_>, _: T, _: &str) {}
        fn unavailable(&mut self, _: &Key<'_>, _: &str) {}
        fn section<S: Section>(&mut self, head: &Head, to: &mut S, _: bool) {
            self.within(head, to.clone());
        }
        fn maybe<S: Section>(&mut self, head: &Head, _: Option<&mut Option<S>>, _: &str) {
            self.within(head, S::unsaid());
        }
        fn tables<S: Section>(&mut self, head: &Head, _: &mut Vec<S>) {
            self.within(head, S::unsaid());
        }
    }
    let mut paths = Paths(String::new(), Vec::new());
    Config::unsaid().keys(&mut paths);
    paths.1.sort();
    assert_eq!(paths.1, PATHS);
}

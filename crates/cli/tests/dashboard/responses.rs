//! Rules P12, P23 and P26: every answer of the console is read, for each role, field by field.
//!
//! What may be in an answer is listed here by its path in the JSON. A field that is new fails this test until somebody has judged it: is it
//! the plan, a release, or computed from these? Then it goes into the list of viewers. Is it a count or a time that operators may see, and
//! does it stand below `outside_the_guarantee` or `operators`? Then it goes into theirs. Anything else must not be in an answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use serde_json::Value;

use super::{Answered, BY_DEVICES, PATIENCE, Served, ask};

/// Devices: a number that is nowhere else.
const DEVICES: u64 = 347;

/// Below these keys is what is exact, and nowhere else.
const EXACT: [&str; 2] = ["outside_the_guarantee", "operators"];

/// The fields of answers to everybody who has access: the plan, releases, and what is computed from these. `*` is any name, `[]` any place.
const FOR_VIEWERS: &[(&str, &[&str])] = &[
    (
        "/api/dashboard",
        &[
            "version",
            "reset",
            "role",
            "names[]",
            "tasks[].name",
            "tasks[].version",
            "tasks[].state",
            "tasks[].wanted",
            "tasks[].why",
            "tasks[].readable",
            "tasks[].rounds",
            "tasks[].planned",
            "tasks[].numbers[].key",
            "tasks[].numbers[].value",
            "tasks[].small[]",
            "tasks[].price.words",
            "tasks[].price.epsilon",
            "charts[].key",
            "charts[].title",
            "charts[].note",
            "charts[].group",
            "charts[].unit",
            "charts[].log",
            "charts[].better",
            "charts[].band",
        ],
    ),
    (
        "/api/dashboard/{name}",
        &[
            "name",
            "sentence",
            "notes[]",
            "tiles[].name",
            "tiles[].value",
            "tiles[].note",
            "curves.*.rounds[]",
            "curves.*.values[]",
            "spending.words",
            "spending.holds_for",
            "spending.delta",
            "spending.budget",
            "spending.planned",
            "spending.curve",
            "spending.curve_label",
            "spending.curve_note",
            "spending.forecast.rounds[]",
            "spending.forecast.values[]",
            "participation[].stream",
            "participation[].title",
            "participation[].max_participations",
            "participation[].min_separation",
            "participation[].observed.max_participations",
            "participation[].observed.min_separation",
            "participation_note",
            "samples[].round",
            "samples[].samples[].prompt",
            "samples[].samples[].words[]",
            "failed[].round",
            "failed[].attempt",
            "failed[].why",
            "statement",
            "ledger.entries",
            "ledger.head",
            "ledger.key",
            "ledger.opened",
            "ledger.closed",
            "files[].name",
            "files[].title",
            "files[].path",
        ],
    ),
];

/// The same of the other endpoints, and of what can be taken home. Below `**` is a document that the ledger's crate writes and judges.
const ALSO_FOR_VIEWERS: &[(&str, &[&str])] = &[
    ("/api/server", &["realm", "software", "officers[]"]),
    (
        "/api/tasks",
        &[
            "tasks[].task",
            "tasks[].digest",
            "tasks[].state",
            "tasks[].wanted",
            "tasks[].obeyed",
            "tasks[].why",
            "tasks[].ledger",
            "tasks[].ledger.rounds",
            "tasks[].ledger.planned_rounds",
            "tasks[].ledger.population",
            "tasks[].ledger.evaluations",
            "tasks[].ledger.planned_evaluations",
            "tasks[].ledger.holds.epsilon",
            "tasks[].ledger.holds.rho",
            "tasks[].ledger.basis",
            "tasks[].ledger.so_far.epsilon_so_far",
            "tasks[].ledger.so_far.rho_so_far",
            "tasks[].ledger.delta",
        ],
    ),
    (
        "/api/tasks/{name}",
        &[
            "task",
            "digest",
            "state",
            "wanted",
            "obeyed",
            "why",
            "ledger.rounds",
            "ledger.planned_rounds",
            "ledger.population",
            "ledger.evaluations",
            "ledger.planned_evaluations",
            "ledger.holds.epsilon",
            "ledger.holds.rho",
            "ledger.basis",
            "ledger.so_far.epsilon_so_far",
            "ledger.so_far.rho_so_far",
            "ledger.delta",
        ],
    ),
    ("/api/tasks/{name}/export", &["task", "files[].name", "files[].kind", "files[].about"]),
    (
        "metrics.jsonl",
        &[
            "round",
            "accuracy_top1",
            "accuracy_top3",
            "accuracy_in_vocabulary",
            "perplexity",
            "targets",
            "by_devices.evaluation",
            "by_devices.goal",
            "by_devices.accuracy_top1",
            "by_devices.accuracy_top3",
            "by_devices.accuracy_in_vocabulary",
            "by_devices.perplexity",
            "by_devices.targets",
            "by_devices.noise_standard_deviation.*",
            "clip_norm",
            "tracked_clip_norm",
            "fraction_below_clip",
            "server_learning_rate",
            "planned_participations",
            "failed_attempts",
            "epsilon_so_far",
            "rho_so_far",
        ],
    ),
    (
        "ledger.jsonl",
        &[
            "entry.index",
            "entry.previous",
            "entry.time",
            "entry.body.opening.**",
            "entry.body.release.**",
            "entry.body.failed_attempt.**",
            "entry.body.closing.**",
            "signature",
        ],
    ),
    ("problem", &["type", "title", "status", "detail", "next", "request"]),
];

/// The curves of released values that a task of real devices has. Losses, norms, users and times of rounds are exact, and none of these.
const CURVES: [&str; 16] = [
    "accuracy_in_vocabulary",
    "accuracy_top1",
    "accuracy_top3",
    "clip_norm",
    "epsilon",
    "epsilon_if_secret",
    "epsilon_so_far",
    "fraction_below_clip",
    "head10",
    "head50",
    "head100",
    "headline_by_devices",
    "perplexity",
    "projected_epsilon",
    "recall_top5",
    "tracked_clip_norm",
];

/// The metrics that viewers are told. The others are exact, or about the machine.
const METRICS: [&str; 9] = [
    "keyhush_build_info",
    "keyhush_delta",
    "keyhush_epsilon",
    "keyhush_evaluations_planned",
    "keyhush_evaluations_released_total",
    "keyhush_population_declared",
    "keyhush_rounds_planned",
    "keyhush_rounds_released_total",
    "keyhush_task_state",
];

/// What operators are told beside it: counts and times of check-ins and reports (rule P26).
const FOR_OPERATORS: &[(&str, &[&str])] = &[
    ("/api/dashboard", &["tasks[].operations"]),
    ("/api/tasks", &["tasks[].operators.enrolled", "tasks[].operators.asked", "tasks[].operators.broken"]),
    ("/api/tasks/{name}", &["operators.enrolled", "operators.asked", "operators.broken"]),
    (
        "/api/dashboard/{name}/operations",
        &[
            "outside_the_guarantee.note",
            "outside_the_guarantee.enrolled",
            "outside_the_guarantee.asked",
            "outside_the_guarantee.population",
            "outside_the_guarantee.waiting",
            "outside_the_guarantee.check_ins.times[]",
            "outside_the_guarantee.check_ins.counts[]",
            "outside_the_guarantee.attempts[].what",
            "outside_the_guarantee.attempts[].attempt",
            "outside_the_guarantee.attempts[].open",
            "outside_the_guarantee.attempts[].released",
            "outside_the_guarantee.attempts[].why",
            "outside_the_guarantee.attempts[].began",
            "outside_the_guarantee.attempts[].ended",
            "outside_the_guarantee.attempts[].seconds",
            "outside_the_guarantee.attempts[].goal",
            "outside_the_guarantee.attempts[].asked",
            "outside_the_guarantee.attempts[].reported",
            "outside_the_guarantee.attempts[].dropped",
            "outside_the_guarantee.attempts[].shapes[].signs",
            "outside_the_guarantee.attempts[].shapes[].words",
            "outside_the_guarantee.attempts[].shapes[].devices",
            "outside_the_guarantee.observed[].stream",
            "outside_the_guarantee.observed[].title",
            "outside_the_guarantee.observed[].max_participations",
            "outside_the_guarantee.observed[].min_separation",
        ],
    ),
];

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asks {
    Nobody,
    Viewer,
    Operator,
    Officer,
}

const ALL: [Asks; 4] = [Asks::Nobody, Asks::Viewer, Asks::Operator, Asks::Officer];

impl Asks {
    fn named(role: Option<&str>) -> Self {
        match role {
            None => Self::Nobody,
            Some("viewer") => Self::Viewer,
            Some("operator") => Self::Operator,
            Some("officer") => Self::Officer,
            Some(other) => panic!("a role that nobody has judged: {other}"),
        }
    }
}

/// The paths of all leaves of a value: places are `[]`, and empty or null parts are leaves too.
fn leaves(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(parts) if !parts.is_empty() => parts.iter().for_each(|(key, part)| {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            leaves(part, &below, into);
        }),
        Value::Array(parts) if !parts.is_empty() => {
            parts.iter().for_each(|part| leaves(part, &format!("{path}[]"), into));
        }
        _ => _ = into.insert(path.to_owned()),
    }
}

/// Whether a path is one that was judged, or an empty part of one.
fn is_judged(path: &str, known: &[&str]) -> bool {
    known.iter().any(|known| {
        if let Some(above) = known.strip_suffix("**") {
            return path.starts_with(above.trim_end_matches('.'));
        }
        let (mut path, mut known) = (path.split('.'), known.split('.'));
        loop {
            match (path.next(), known.next()) {
                (None, _) => return true,
                (Some(part), Some(wanted)) if wanted == "*" || part == wanted || format!("{part}[]") == wanted => {}
                (Some(part), Some(wanted)) if wanted.strip_suffix("[]") == Some(part) => {}
                (Some(part), Some("*[]")) if part.ends_with("[]") => {}
                _ => return false,
            }
        }
    })
}

/// Everything that was told to somebody.
#[derive(Default)]
struct Told {
    texts: Vec<String>,
    numbers: BTreeSet<String>,
}

impl Told {
    fn hears(&mut self, text: String) {
        // Digits within a digest are no number.
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').map(|word| word.trim_matches('.'));
        let is_number = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.');
        self.numbers.extend(words.filter(is_number).map(str::to_owned));
        self.texts.push(text);
    }
}

/// Reads an answer in JSON: every field of it must have been judged for who asks.
fn judge(place: &str, asks: Asks, value: &Value) {
    let of = |lists: &'static [(&str, &[&'static str])]| {
        lists
            .iter()
            .filter(|(known, _)| *known == place)
            .flat_map(|(_, fields)| fields.iter().copied())
            .collect::<Vec<_>>()
    };
    let released = [of(FOR_VIEWERS), of(ALSO_FOR_VIEWERS)].concat();
    let exact = if asks >= Asks::Operator { of(FOR_OPERATORS) } else { Vec::new() };
    let mut found = BTreeSet::new();
    leaves(value, "", &mut found);
    for path in found {
        let marked = path.split('.').any(|part| EXACT.contains(&part)) || path == "tasks[].operations";
        let judged = if marked { is_judged(&path, &exact) } else { is_judged(&path, &released) };
        assert!(
            judged,
            "{place} tells {asks:?} the field {path}, which nobody has judged: see the head of crates/cli/tests/dashboard/responses.rs\n{value}"
        );
    }
    for curve in value["curves"].as_object().into_iter().flat_map(|curves| curves.keys()) {
        assert!(CURVES.contains(&curve.as_str()), "{place} tells {asks:?} the curve {curve}, which nobody has judged");
    }
}

/// All paths that the console has, with what must be put in the place of a name, from its own description.
fn walk(served: &Served, tokens: &BTreeMap<Asks, String>, name: &str) -> BTreeMap<Asks, Told> {
    let description: Value = serde_json::from_slice(&served.get("/openapi.json", None).body).unwrap();
    let mut told: BTreeMap<Asks, Told> = BTreeMap::new();
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() >= 8, "{paths:?}");
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            let needs = Asks::named(operation["x-role"].as_str());
            for asks in ALL {
                let token = tokens.get(&asks).map(String::as_str);
                if method != "get" {
                    // Orders are for the tests of orders; here nobody gives one who must not.
                    assert!(needs >= Asks::Operator, "{method} {path}");
                    if asks < needs {
                        let answer = ask(&served.address, &method.to_uppercase(), &path.replace("{name}", name), token);
                        refused(&answer, asks, told.entry(asks).or_default());
                    }
                    continue;
                }
                for real in real_paths(served, path, name, token) {
                    let answer = served.get(&real, token);
                    let told = told.entry(asks).or_default();
                    assert!(
                        answer
                            .header("content-security-policy")
                            .is_some_and(|policy| policy.starts_with("default-src 'none'"))
                    );
                    assert_eq!(answer.header("cache-control"), Some("no-store"), "{real}");
                    if asks < needs {
                        refused(&answer, asks, told);
                    } else {
                        read(path, &real, asks, &answer, told);
                    }
                }
            }
        }
    }
    // What is not in the description gives nothing away either.
    for path in ["/api", "/api/", "/api/nothing", "/api/dashboard/none", "/api/tasks/none"] {
        for asks in [Asks::Nobody, Asks::Viewer] {
            let answer = served.get(path, tokens.get(&asks).map(String::as_str));
            assert_ne!(answer.status, 200, "{path} for {asks:?}: {}", answer.text());
        }
    }
    told
}

fn real_paths(served: &Served, path: &str, name: &str, token: Option<&str>) -> Vec<String> {
    let named = path.replace("{name}", name);
    if !named.contains("{file}") {
        return vec![named];
    }
    let files = served.get(&named.replace("/{file}", ""), token);
    let listed: Value = serde_json::from_slice(&files.body).unwrap();
    let listed = listed["files"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> = listed.iter().map(|file| file["name"].as_str().unwrap().to_owned()).collect();
    names.push("ledger.jsonl.participations".into());
    names.into_iter().map(|file| named.replace("{file}", &file)).collect()
}

fn refused(answer: &Answered, asks: Asks, told: &mut Told) {
    assert_eq!(answer.status, if asks == Asks::Nobody { 401 } else { 403 }, "{}", answer.text());
    judge("problem", asks, &serde_json::from_slice(&answer.body).unwrap());
    told.hears(answer.text());
}

/// An answer to somebody who may have it.
fn read(path: &str, real: &str, asks: Asks, answer: &Answered, told: &mut Told) {
    let text = answer.text();
    let lines = |place: &str| text.lines().for_each(|line| judge(place, asks, &serde_json::from_str(line).unwrap()));
    let file = real.rsplit('/').next().unwrap();
    match path {
        // It has no data of this server.
        "/openapi.json" => return assert_eq!(answer.status, 200),
        "/metrics" => {
            assert_eq!(answer.status, 200, "{text}");
            let numbers = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
            for name in numbers.map(|line| line.split(['{', ' ']).next().unwrap()) {
                let judged = METRICS.contains(&name)
                    || asks >= Asks::Operator && (name.starts_with("keyhush_") || name.starts_with("process_"));
                assert!(judged, "{asks:?} is told the metric {name}, which nobody has judged");
            }
        }
        "/api/events" => {
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
            assert!(!events.is_empty(), "{text}");
            events.iter().for_each(|event| judge("/api/dashboard", asks, event));
        }
        _ if file == "ledger.jsonl.participations" => {
            assert!(asks >= Asks::Operator || answer.status == 404, "{asks:?}: {text}");
            if asks >= Asks::Operator {
                return;
            }
        }
        "/api/tasks/{name}/export/{file}" => match file {
            "ledger.jsonl" | "metrics.jsonl" => lines(file),
            _ => assert_eq!(answer.status, 200, "{real}"),
        },
        _ => {
            assert_eq!(answer.status, 200, "{real} for {asks:?}: {text}");
            judge(path, asks, &serde_json::from_str(&text).unwrap());
        }
    }
    if !file.ends_with(".safetensors") {
        told.hears(text);
    }
}

/// A moment that is no day: with secret noise nothing that is released has one (rule P23).
fn is_moment(number: &str) -> bool {
    let Ok(value) = number.parse::<f64>() else { return false };
    let seconds = if value > 1e12 { value / 1000.0 } else { value };
    (1.6e9..2.2e9).contains(&seconds) && seconds % 86_400.0 != 0.0 && number.len() >= 10
}

#[test]
fn p12_p23_p26_every_answer_is_read_and_has_nothing_exact_where_it_must_not() {
    let set = ["rounds=12", "evaluation.every=4", "devices.begin_with=340"];
    // The second task waits for more devices than there are, so that the server stays when the first is over.
    let served = Served::start_with(&set, BY_DEVICES, DEVICES, &["devices.begin_with=390"]);
    let tokens: BTreeMap<Asks, String> =
        [(Asks::Viewer, "viewer"), (Asks::Operator, "operator"), (Asks::Officer, "officer")]
            .map(|(asks, role)| (asks, served.token(role)))
            .into();
    let (viewer, operator) = (&tokens[&Asks::Viewer], &tokens[&Asks::Operator]);
    let rounds = |list: &Value| {
        list["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|task| task["name"] == "words")
            .map_or(0, |task| task["rounds"].as_u64().unwrap())
    };
    // While it runs, a viewer is told how it stood after evaluations, and operators are told of each round.
    let (mut seen, began) = (BTreeMap::<Asks, BTreeSet<u64>>::new(), Instant::now());
    let mut look = || {
        assert!(began.elapsed() < PATIENCE, "it does not come to an end: {seen:?}");
        for asks in [Asks::Viewer, Asks::Operator] {
            seen.entry(asks).or_default().insert(rounds(&served.json("/api/dashboard", &tokens[&asks])));
        }
        let task = served.json("/api/tasks/words", viewer);
        seen.entry(Asks::Viewer).or_default().insert(task["ledger"]["rounds"].as_u64().unwrap_or_default());
        for asks in [Asks::Viewer, Asks::Operator] {
            let metrics = served.get("/metrics", Some(&tokens[&asks])).text();
            let begins = "keyhush_rounds_released_total{task=\"words\"} ";
            let released = metrics.lines().find_map(|line| line.strip_prefix(begins)?.parse().ok());
            seen.entry(asks).or_default().insert(released.unwrap_or_default());
        }
        (seen.clone(), task["state"] == "over")
    };
    while look().0[&Asks::Operator].last() < Some(&4) {}
    let during = walk(&served, &tokens, "words");
    walk(&served, &tokens, "later");
    let seen = loop {
        if let (seen, true) = look() {
            break seen;
        }
    };
    let of_evaluations = BTreeSet::from([0, 2, 4, 6, 8, 10, 12]);
    assert!(seen[&Asks::Viewer].is_subset(&of_evaluations), "{seen:?}");
    assert!(seen[&Asks::Operator].iter().any(|round| !of_evaluations.contains(round)), "{seen:?}");
    served.until("/api/dashboard/words", viewer, |detail| !detail["ledger"]["closed"].is_null());
    let after = walk(&served, &tokens, "words");

    // What operators are told is exact, and is what happened.
    let exact = served.json("/api/dashboard/words/operations", operator)["outside_the_guarantee"].clone();
    assert_eq!(exact["enrolled"], DEVICES, "{exact}");
    let attempts = exact["attempts"].as_array().unwrap();
    let released = attempts.iter().filter(|attempt| attempt["released"] == true).count();
    assert!(released >= 12 + 6, "rounds and evaluations: {exact}");
    for attempt in attempts.iter().filter(|attempt| attempt["released"] == true) {
        let (asked, reported) = (attempt["asked"].as_u64().unwrap(), attempt["reported"].as_u64().unwrap());
        assert!(reported >= 24 && asked >= reported && is_moment(&attempt["began"].to_string()), "{attempt}");
    }
    for told in [&during, &after] {
        assert!(told[&Asks::Operator].numbers.contains(&DEVICES.to_string()));
        assert!(told[&Asks::Operator].numbers.iter().any(|number| is_moment(number)), "operators see times");
        for asks in [Asks::Nobody, Asks::Viewer] {
            assert!(!told[&asks].numbers.contains(&DEVICES.to_string()), "{asks:?} is told how many devices there are");
            let moment = told[&asks].numbers.iter().find(|number| is_moment(number));
            let text = moment.and_then(|moment| told[&asks].texts.iter().find(|text| text.contains(moment.as_str())));
            assert_eq!(moment, None, "{asks:?} is told a time: {text:?}");
            for key in EXACT {
                assert!(
                    !told[&asks].texts.iter().any(|text| text.contains(&format!("\"{key}\":"))),
                    "{asks:?} is told {key}"
                );
            }
        }
    }
    // What was observed of participation is in the statement of a task that is over, and marked there.
    let detail = served.json("/api/dashboard/words", viewer);
    let limits = &detail["participation"][0];
    assert!(limits["observed"]["max_participations"].as_u64() <= limits["max_participations"].as_u64(), "{limits}");
    assert!(detail["participation_note"].as_str().unwrap().contains("outside the guarantee"), "{detail}");
    // Advice for those who plan, in the words of flags and settings, is for nobody who reads this.
    assert!(!detail["notes"].to_string().contains("tolerates"), "{detail}");
    let tile = |name: &str| detail["tiles"].as_array().unwrap().iter().find(|tile| tile["name"] == name).unwrap();
    assert_eq!(tile("Rounds")["value"], "12 of 12");
    assert!(tile("Epsilon")["note"].as_str().unwrap().contains(", for "), "{detail}");
}

#[test]
fn a_field_that_nobody_judged_is_found() {
    let known = ["tasks[].name", "curves.*.values[]", "body.opening.**"];
    for good in [
        "tasks[].name",
        "tasks",
        "tasks[]",
        "curves.clip_norm.values[]",
        "curves.clip_norm.values",
        "body.opening.plan.unit",
        "curves",
    ] {
        assert!(is_judged(good, &known), "{good}");
    }
    for new in [
        "tasks[].users",
        "tasks[].name.users",
        "users",
        "curves.clip_norm.users[]",
        "body.closing.why",
        "tasks[].name[].x",
    ] {
        assert!(!is_judged(new, &known), "{new}");
    }
    let mut found = BTreeSet::new();
    leaves(&serde_json::json!({ "a": [{ "b": 1 }, { "c": [] }], "d": null }), "", &mut found);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a[].b", "a[].c", "d"]);
    assert!(
        is_moment("1763596800.25")
            && is_moment("1763596801")
            && is_moment("1763596801000")
            && !is_moment("1763596800")
            && !is_moment("0.5")
    );
}

//! Rules P12, P23 and P26: every answer of the console is read, for each role, field by field.
//!
//! What may be in an answer is listed here by its path in the JSON. A field that is new fails this test until somebody has judged it: is it
//! the plan, a release, or computed from these? Then it goes into the list of viewers. Is it a count or a time that operators may see, and
//! does it stand below `outside_the_guarantee` or `operators`? Then it goes into theirs. Anything else must not be in an answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Served, ask::ask};

/// Devices: a number that is nowhere else.
const DEVICES: u64 = 347;

/// Devices measure models too: what they measured is released with noise, after every second round.
const BY_DEVICES: &str = "\n[evaluation.devices]\nevery = 2\ncohort = 24\nmin_separation = 0\nmax_participations = 2\n\
    noise_multiplier = 4.0\nmost_tokens = 40\n";

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
            "participation[].observed",
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

/// What operators are told beside it: counts and times of check-ins and reports (rule P26).
const FOR_OPERATORS: &[(&str, &[&str])] = &[
    ("/api/dashboard", &["tasks[].operations"]),
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

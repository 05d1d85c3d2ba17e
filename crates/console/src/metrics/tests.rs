//! Tests of metrics: who sees what, and that everything that names them is right.

use std::{collections::BTreeSet, fs, path::PathBuf};

use super::*;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The names of metrics of this project, or of its process, in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    let words = text.split(|letter: char| !is_of_name(letter));
    words.filter(|word| word.starts_with("keyhush_") || word.starts_with("process_")).collect()
}

fn known(name: &str) -> bool {
    let base = name.strip_suffix("_sum").or_else(|| name.strip_suffix("_count")).unwrap_or(name);
    METRICS.iter().any(|metric| metric.name == name || (metric.kind == Kind::Summary && metric.name == base))
}

/// A dashboard that asks for what nobody writes shows nothing, and an alert never fires.
#[test]
fn dashboard_and_alerts_name_metrics_that_there_are() {
    for path in ["deploy/grafana/keyhush.json", "deploy/prometheus/keyhush.rules.yml"] {
        let text = read(path);
        let named = named(&text);
        assert!(named.len() > 5, "{path} names {named:?}");
        for name in named {
            assert!(known(name), "{path} names {name}, which is no metric");
        }
    }
    assert!(!known("keyhush_made_up_total"));
}

#[test]
fn the_dashboard_shows_what_most_metrics_say() {
    let text = read("deploy/grafana/keyhush.json");
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
    let shown = named(&text);
    let is_shown = |metric: &&Metric| {
        let parts = [format!("{}_sum", metric.name), format!("{}_count", metric.name)];
        shown.contains(metric.name) || parts.iter().any(|name| shown.contains(name.as_str()))
    };
    let missing: Vec<&str> = METRICS.iter().filter(|metric| !is_shown(metric)).map(|metric| metric.name).collect();
    assert!(missing.len() < METRICS.len() / 3, "the dashboard lacks {missing:?}");
}

#[test]
fn the_page_about_watching_has_every_metric_with_its_role() {
    let page = read("docs/WATCHING.md");
    for metric in METRICS {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", metric.name)));
        let row = row.unwrap_or_else(|| panic!("docs/WATCHING.md has no row for {}", metric.name));
        assert!(row.contains(&format!("| {} |", metric.role.word())), "{row}");
    }
    for name in named(&page) {
        assert!(known(name) || name == "keyhush_", "docs/WATCHING.md names {name}, which is no metric");
    }
}

/// Every alert has a section of the deployment guide that says what to do, and the guide has no others.
#[test]
fn every_alert_has_a_runbook() {
    let (rules, guide) = (read("deploy/prometheus/keyhush.rules.yml"), read("docs/DEPLOY.md"));
    let after = |text: &str, begins: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.trim().strip_prefix(begins)?.to_owned())).collect()
    };
    let alerts = after(&rules, "- alert: ");
    let links: Vec<String> =
        alerts.iter().map(|name| format!("docs/DEPLOY.md#alert-{}", name.to_lowercase())).collect();
    assert!(alerts.len() >= 8 && after(&rules, "runbook: ") == links, "{alerts:?}");
    assert_eq!(after(&guide, "### Alert: "), alerts);
}

fn seen() -> Snapshot {
    let mut stream =
        StreamSeen { waiting: 3, released: 2, failed: 1, dropped: 4, took_ms: 9_500, ..StreamSeen::default() };
    stream.shapes = BTreeMap::from([("-v[]+^", 20), ("-!", 4)]);
    let counts = Count::ALL.into_iter().zip(1..).collect();
    Snapshot {
        note: server::observed::OUTSIDE,
        at_ms: 20_000,
        started_ms: 10_000,
        counts,
        enrolled: 25,
        waiting: 3,
        report_memory: (5, 100),
        tasks: vec![server::observed::TaskSeen {
            task: "words".into(),
            broken: false,
            rounds: stream,
            evaluations: None,
        }],
    }
}

#[test]
fn p26_exact_counts_are_for_operators_only() {
    let write = |role| {
        let mut text = Text::new(role);
        released(&mut text, &[]);
        counted(&mut text, &[], &seen());
        machine(&mut text, std::path::Path::new("."));
        text.finish()
    };
    let viewer = write(Role::Viewer);
    let lines: Vec<&str> = viewer.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(matches!(lines[..], [line] if line.starts_with("keyhush_build_info{")), "{viewer}");
    let operator = write(Role::Operator);
    for line in [
        "keyhush_check_ins_total 1",
        "keyhush_check_in_answers_total{answer=\"assigned\"} 2",
        "keyhush_sessions_total{task=\"words\",kind=\"round\",shape=\"-v[]+^\"} 20",
        "keyhush_attempt_seconds_sum{task=\"words\",kind=\"round\"} 9.5",
        "keyhush_attempt_seconds_count{task=\"words\",kind=\"round\"} 3",
    ] {
        assert!(operator.lines().any(|written| written == line), "{line} is missing in\n{operator}");
    }
    let helps = operator.lines().filter(|line| line.starts_with("# HELP") && !line.contains("build_info"));
    helps.for_each(|help| assert!(help.ends_with("not covered by the guarantee."), "{help}"));
}

#[test]
fn every_count_is_written_once() {
    let names: BTreeSet<_> =
        LABELLED.iter().map(|(count, ..)| *count).chain(PLAIN.iter().map(|(count, _)| *count)).collect();
    assert_eq!((names.len(), LABELLED.len() + PLAIN.len()), (Count::ALL.len(), Count::ALL.len()));
    assert_eq!(word(&ledger::Basis::Plan), "plan");
    assert_eq!(word(&federated::price::Meaning::IfSecret), "if_secret");
}

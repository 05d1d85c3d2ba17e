//! The report of a run and the comparison of runs: what a reader finds in them, whatever stands in the run's files.
//!
//! The pages of `a_run_is_reported` and `runs_are_compared` stay in the folder for temporary files of the build, to be
//! looked at.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use federated::{
    metrics::{
        Measured, Metric, Metrics, Timing,
        prediction::{ACCURACY_IN_VOCABULARY, ACCURACY_TOP1, ACCURACY_TOP3, NEXT_WORDS, PERPLEXITY},
    },
    price::{Meaning, Price},
    round::attempts::Failed,
};
use keyhush_report::{
    compare::{Compared, overlay},
    run::{Cost, Report},
    scalars::Lines,
    tensorboard,
};
use ledger::FailureReason;
use privacy::{Delta, Epsilon, Rho};

/// Numbers in [-1, 1) that look random and are the same every time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// What an evaluation measured.
fn measured(top1: f64, perplexity: Option<f64>) -> Measured {
    let times = [(&ACCURACY_TOP1, 1.0), (&ACCURACY_TOP3, 1.7), (&ACCURACY_IN_VOCABULARY, 1.2)];
    let accuracy = |metric: &Metric| Some(top1 * times.iter().find(|(known, _)| *known == metric)?.1);
    Measured::new(&NEXT_WORDS, |metric| if *metric == PERPLEXITY { perplexity } else { accuracy(metric) })
}

/// A run of 200 rounds with an evaluation every ten.
fn sample(seed: u64, speed: f64) -> Vec<Metrics> {
    let mut noise = Noise(seed);
    (0..=20)
        .map(|i| {
            let round = i * 10;
            let learned = 1.0 - (-speed * round as f64 / 60.0).exp();
            let top1 = 0.002 + 0.148 * learned + 0.004 * noise.next() * learned;
            let clip = 1.0 - 0.55 * learned + 0.02 * noise.next();
            Metrics {
                round,
                measured: measured(top1, Some(2000.0 * (-2.3 * learned + 0.02 * noise.next()).exp())),
                targets: 48_211,
                by_devices: None,
                clip_norm: Some(clip),
                tracked_clip_norm: None,
                fraction_below_clip: (i > 0).then(|| 0.5 + 0.08 * noise.next()),
                server_learning_rate: 1.0,
                planned_participations: round * 300,
                sent: None,
                failed_attempts: 0,
                price: Price {
                    meaning: Meaning::IfSecret,
                    epsilon: Epsilon::new(if round == 0 { 0.0 } else { 1.1 + 0.29 * (round as f64).sqrt() }).unwrap(),
                    rho: Some(Rho::new(0.001 * round as f64).unwrap()),
                },
                projected_epsilon: None,
            }
        })
        .collect()
}

fn price(meaning: Meaning, epsilon: f64) -> Price {
    Price { meaning, epsilon: Epsilon::new(epsilon).unwrap_or(Epsilon::INFINITE), rho: None }
}

fn timing() -> Vec<Timing> {
    let mut noise = Noise(5);
    (0..200)
        .map(|round| Timing {
            round,
            sample_s: 2.1e-5,
            train_s: 0.41 + 0.02 * noise.next(),
            train_busy_s: 0.80,
            threads: 2,
            release_s: 0.011,
            ledger_s: 0.007,
            optimizer_s: 0.002,
            evaluate_s: if round % 10 == 9 { 0.31 } else { 0.0 },
            checkpoint_s: if round % 10 == 9 { 0.02 } else { 0.0 },
        })
        .collect()
}

const SETTINGS: &str =
    "# A first run\n[model]\npreset = \"tiny\"\n\n[privacy]\nunit = \"user\"\nnoise_multiplier = 1.0\n";

const STATEMENT: &str = "# Privacy statement\n\n**No guarantee: simulated.** The noise comes from the seed 7 and can be \
    recomputed by anyone who knows it.\n\n## Data accesses covered\n\n- `updates`: gaussian; 200 of 200 planned steps \
    released; clip = 0.5.\n- No round failed.\n\n## Not covered\n\nWhat people type later.\n";

fn report<'a>(metrics: &'a [Metrics], timing: &'a [Timing]) -> Report<'a> {
    Report {
        title: "first-run",
        started: "2026-11-02 10:14 UTC".into(),
        sentence: "A next-word model of 1,000,000 simulated users, top-1 accuracy 14.6 %. No guarantee.",
        notes: &[],
        simulated: true,
        price: price(Meaning::IfSecret, 5.3),
        remark: String::new(),
        delta: Delta::new(1e-8).unwrap(),
        settings: SETTINGS.to_owned(),
        metrics,
        timing,
        failed: &[],
        audit: None,
        cost: Cost {
            population: 1_000_000,
            planned_participations: 60_000,
            most_examples: Some(96_000_000),
            simulated_examples: Some(31_415_926),
            simulated_users: Some((59_321, 367)),
        },
        statement: STATEMENT.into(),
        ledger_head: "9f2b6c1de0a84755b0c3d2f1e6a79488c5d0e1f2a3b4c5d6e7f8091a2b3c4d5e".into(),
    }
}

/// Where pages are kept to be looked at.
fn keep(name: &str, content: impl AsRef<[u8]>) {
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), content).unwrap();
}

/// Every tag that is opened is closed in turn, but for those that have no content.
fn assert_well_formed(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let without_style = html.split_once("<style>").map(|(a, b)| [a, b.split_once("</style>").unwrap().1]);
    for part in without_style.unwrap().into_iter().flat_map(|text| text.split('<').skip(1)) {
        let tag = part.split_once('>').unwrap_or_else(|| panic!("a tag is not closed: {part}")).0;
        let name = tag.split_whitespace().next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !tag.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_run_is_reported() {
    let (metrics, timing) = (sample(1, 1.0), timing());
    let html = report(&metrics, &timing).html().unwrap();
    keep("report.html", &html);
    let lines = Lines { metrics: metrics.clone(), timing: timing.clone(), diagnostics: Vec::new() };
    keep(tensorboard::EVENTS_FILE, tensorboard::events(&lines.steps(), 1_790_000_000.0));
    assert_well_formed(&html);
    assert_eq!(html.matches("<svg ").count(), 6);
    for wanted in [
        "simulation: repeatable noise, no guarantee",
        "<dt>Guarantee</dt><dd class=\"value\">none: simulated</dd>",
        "with secret noise epsilon would be 5.3000 at delta 1e-8",
        "<title>Epsilon if the noise were secret",
        "<th scope=\"col\">epsilon if the noise were secret</th>",
        "after round 200; 0.20 % before the first",
        "<dd class=\"value\">200</dd>",
        "<title>Top-1 accuracy (thin: mean of 5 evaluations): percent over rounds</title>",
        "local training",
        "31,415,926",
        "<th scope=\"row\">of these, training diverged</th><td>367</td>",
        "noise_multiplier = 1.0",
        "<h2>Privacy statement</h2>",
        "<li><code>updates</code>",
        "9f2b6c1de0a84755",
    ] {
        assert!(html.contains(wanted), "{wanted} is missing");
    }
    let last = metrics[20].measured.headline();
    assert!(html.contains(&format!("<dd class=\"value\">{:.2} %</dd>", last * 100.0)));
}

/// A tile hid that a model had fallen below its start: it was the mean of five evaluations.
#[test]
fn there_is_one_accuracy_and_it_is_the_last() {
    let mut metrics = sample(1, 1.0);
    metrics[20].measured = measured(0.001, Some(9000.0));
    let html = report(&metrics, &[]).html().unwrap();
    assert!(html.contains("<dt>Top-1 accuracy</dt><dd class=\"value\">0.10 %</dd>"), "{html}");
    let compared = overlay(&[Compared { name: "a", metrics: &metrics, stated: None }]).unwrap();
    assert!(compared.contains("<td>0.10 %</td>") && !compared.contains("smoothed"), "{compared}");
}

#[test]
fn a_report_needs_nothing_but_itself_and_is_the_same_every_time() {
    let (metrics, timing) = (sample(1, 1.0), timing());
    let html = report(&metrics, &timing).html().unwrap();
    assert_eq!(html, report(&metrics, &timing).html().unwrap());
    for outside in ["<script", "<link", "<img", "url(", "@import", "src=", "href="] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(!html.replace("http://www.w3.org/2000/svg", "").contains("://"));
}

#[test]
fn runs_are_compared() {
    let (slow, fast) = (sample(2, 0.6), sample(3, 1.5));
    let mut open = sample(4, 2.0);
    open.iter_mut().for_each(|m| m.price.epsilon = Epsilon::INFINITE);
    let compared = |name, metrics| Compared { name, metrics, stated: None };
    let runs = [
        compared("noise 2, fixed clip", &slow[..]),
        Compared { stated: Some(price(Meaning::Guaranteed, 9.34)), ..compared("noise 1", &fast) },
        compared("without noise", &open),
        compared("just begun", &[]),
    ];
    let html = overlay(&runs).unwrap();
    keep("compare.html", &html);
    assert_well_formed(&html);
    assert_eq!(html, overlay(&runs).unwrap());
    assert_eq!(html.matches("<svg ").count(), 6);
    assert!(html.contains("no privacy: infinite") && html.contains("nothing yet"));
    assert!(html.contains("<td>9.3400</td>") && html.contains("5.2013 if the noise were secret"), "what is stated");
    assert!(html.matches("noise 2, fixed clip").count() > 4);
    assert_well_formed(&overlay(&[]).unwrap());
}

/// A tile said "Epsilon 4.85" of a model that was picked among four runs, and of noise that a seed can repeat.
#[test]
fn p23_the_tile_shows_what_is_stated_and_not_what_was_spent() {
    let mut metrics = sample(1, 1.0);
    metrics.iter_mut().for_each(|m| m.price.meaning = Meaning::SoFar);
    let remark = ", all 4 runs of its sweep counted".into();
    let stated = Report { simulated: false, price: price(Meaning::Guaranteed, 9.34), remark, ..report(&metrics, &[]) };
    let html = stated.html().unwrap();
    assert!(html.contains("<dt>Epsilon</dt><dd class=\"value\">9.3400</dd>"), "{html}");
    assert!(html.contains("at delta 1e-8, all 4 runs of its sweep counted"));
    assert!(
        html.contains("<title>Epsilon so far, this run alone: ")
            && html.contains("<th scope=\"col\">epsilon so far, this run alone</th>")
    );
    // With a filter its budget is the price at every round.
    metrics.iter_mut().for_each(|m| m.price = price(Meaning::Guaranteed, 8.0));
    let html = Report { price: price(Meaning::Guaranteed, 8.0), ..report(&metrics, &[]) }.html().unwrap();
    assert!(
        html.contains("<dd class=\"value\">8.0000</dd><dd class=\"note\">the same in every evaluation</dd>"),
        "{html}"
    );
    assert!(
        !html.contains("<title>Epsilon: ") && html.contains("<th scope=\"col\">epsilon</th>"),
        "a constant is no curve"
    );
    assert!(!html.contains("Top-1 accuracy for its"), "at one price there is no curve");
}

#[test]
fn what_stands_in_the_files_is_never_markup() {
    let evil = "</pre></script><script>alert(1)</script>\"'&";
    let metrics = sample(1, 1.0);
    let notes = [evil.to_owned()];
    let html = Report {
        title: evil,
        started: evil.into(),
        sentence: evil,
        notes: &notes,
        settings: evil.to_owned(),
        statement: format!("# {evil}\n\n- **{evil}**\n\n`{evil}`"),
        ledger_head: evil.into(),
        ..report(&metrics, &[])
    };
    let html = html.html().unwrap();
    assert_well_formed(&html);
    assert!(!html.contains("<script"));
    assert_eq!(html.matches("&lt;script&gt;alert(1)").count(), 10);
    let run = |name| Compared { name, metrics: &metrics, stated: None };
    let compared = overlay(&[run(evil), run("b")]).unwrap();
    assert_well_formed(&compared);
    assert!(!compared.contains("<script"));
}

#[test]
fn no_privacy_is_said_plainly() {
    let mut metrics = sample(1, 1.0);
    metrics.iter_mut().for_each(|m| m.price = price(Meaning::SoFar, f64::INFINITY));
    let stated = price(Meaning::Guaranteed, f64::INFINITY);
    let html = Report { simulated: false, price: stated, ..report(&metrics, &[]) }.html().unwrap();
    assert!(html.contains("<dd class=\"value\">no privacy: infinite</dd>"));
    assert!(!html.contains("<title>Epsilon") && !html.contains("if the noise were secret"));
    assert!(!html.contains("repeatable noise"));
    assert_eq!(html.matches("<svg ").count(), 4);
}

#[test]
fn a_projected_epsilon_is_called_projected() {
    let mut metrics = sample(1, 1.0);
    metrics.iter_mut().for_each(|m| m.projected_epsilon = Some(Epsilon::new(m.price.epsilon.get() / 4.0).unwrap()));
    let html = report(&metrics, &[]).html().unwrap();
    keep("projected.html", &html);
    assert_well_formed(&html);
    assert!(html.contains("; projected to the large cohort: 1.3004"));
    assert!(html.contains("of this run") && html.matches("projected to the large cohort").count() == 2);
}

#[test]
fn rounds_that_failed_are_listed_with_what_followed() {
    let metrics = sample(1, 1.0);
    let failed = |round, attempt, passed_over| Failed { round, attempt, reason: FailureReason::NotWhole, passed_over };
    let html = Report { failed: &[failed(1, 0, true), failed(3, 1, false)], ..report(&metrics, &[]) }.html().unwrap();
    assert_well_formed(&html);
    assert!(html.contains("<h2>Rounds that failed</h2>"));
    let words = FailureReason::NotWhole.words();
    assert!(html.contains(&format!("<tr><th scope=\"row\">2</th><td>1</td><td>{words}</td><td>skipped</td></tr>")));
    assert!(
        html.contains("<th scope=\"row\">4</th><td>2</td>") && html.contains("attempted again, with other devices")
    );
    assert!(!report(&metrics, &[]).html().unwrap().contains("Rounds that failed"));
}

#[test]
fn a_run_that_has_hardly_begun_is_reported() {
    let html = report(&[], &[]).html().unwrap();
    assert_well_formed(&html);
    assert!(html.contains("Nothing has been measured yet") && html.contains("No round was timed"));
    let metrics = sample(1, 1.0);
    let html = report(&metrics[..1], &timing()[..1]).html().unwrap();
    keep("begun.html", &html);
    assert_well_formed(&html);
    assert!(html.contains("only evaluated once"));
}

#[test]
fn a_run_that_diverged_is_reported() {
    let mut metrics = sample(1, 1.0);
    for line in &mut metrics[8..] {
        line.measured = measured(f64::NAN, None);
        (line.clip_norm, line.fraction_below_clip) = (Some(f64::MAX), Some(f64::NEG_INFINITY));
    }
    let html = report(&metrics, &timing()).html().unwrap();
    keep("diverged.html", &html);
    assert_well_formed(&html);
    assert!(!html.contains("NaN") && !html.contains(">inf<"), "a number that is none");
}

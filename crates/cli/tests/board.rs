//! `keyhush board` in a browser: sorted, searched, compared, zoomed, read aloud, followed live, looked at on a phone, copied.
//!
//! With `KEYHUSH_PICTURES=DIR` longer runs are trained, and pictures of the page are written there.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::{browser::Browser, toy::Toy};

/// A board that serves, ended with this.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(toy: &Toy, port: &str) -> Self {
        let mut command = toy.command(&["board", "runs", "--port", port, "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self { child, address: said["address"].as_str().unwrap().to_owned() }
    }

    fn port(&self) -> &str {
        self.address.trim_end_matches('/').rsplit(':').next().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pictures' folder, where they are asked for.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("KEYHUSH_PICTURES").map(PathBuf::from)
}

/// Trains some runs side by side.
fn train(toy: &Toy, runs: &[(&str, &[&str])]) {
    let start = |(name, set): &(&str, &[&str])| {
        let out = format!("runs/{name}");
        let mut arguments = vec!["train", "run.toml", "--out", &out, "--quiet", "--threads", "1"];
        set.iter().for_each(|set| arguments.extend(["--set", set]));
        toy.command(&arguments).stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<Child> = runs.iter().map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

const LOUD: &[&str] = &["privacy.noise_multiplier=6.0"];
const SECRET: &[&str] = &["noise_seed=", "clip.norm=0.2"];

fn three_runs() -> Toy {
    let toy = Toy::new();
    train(&toy, &[("calm", &[]), ("loud", LOUD), ("secret", SECRET)]);
    toy
}

const NAMES: &str = "[...document.querySelectorAll('#runs tbody tr')].map((row) => row.dataset.row).join(' ')";
const LEGEND: &str = "[...document.querySelectorAll('[data-chart=accuracy_top1] .legend span')].map((name) => name.textContent).join(' ')";
const PLOT: &str = "[data-chart=accuracy_top1] .u-over";

/// Waits for the list and for curves.
fn open(browser: &mut Browser, address: &str) {
    browser.open(address);
    browser.until("document.querySelectorAll('#runs tbody tr').length >= 3");
    browser.until("document.querySelector('[data-chart=accuracy_top1] canvas')");
}

/// Nothing failed, and nobody else was asked.
fn check(browser: &mut Browser, address: &str) {
    assert_eq!(browser.problems(), Vec::<String>::new());
    let others: Vec<String> =
        browser.requests().into_iter().filter(|url| !url.starts_with(address) && url != "about:blank").collect();
    assert_eq!(others, Vec::<String>::new());
}

#[test]
fn runs_are_sorted_searched_compared_zoomed_and_shared_by_a_link() {
    let toy = three_runs();
    let serving = Serving::start(&toy, "0");
    let mut browser = Browser::start();
    open(&mut browser, &serving.address);

    // Sorted by a click, and the other way by another; the heads say so to those who hear.
    browser.click("[data-key='sort name']");
    browser.until(&format!("{NAMES} === 'calm loud secret'"));
    assert_eq!(browser.eval("document.querySelector('[aria-sort]').getAttribute('aria-sort')"), "ascending");
    browser.click("[data-key='sort name']");
    browser.until(&format!("{NAMES} === 'secret loud calm'"));
    assert_eq!(browser.eval("document.activeElement.dataset.key"), "sort name", "the focus stays where it was");
    browser.click("[data-key='sort epsilon']");
    let prices = "[...document.querySelectorAll('#runs td.price')].map((cell) => parseFloat(cell.textContent))";
    let sorted: Vec<f64> = serde_json::from_value(browser.eval(prices)).unwrap();
    assert!(sorted.is_sorted_by(|a, b| a >= b) && sorted[0] > sorted[2], "{sorted:?}");

    // Searched by a setting.
    browser.click("#search");
    browser.write("noise_multiplier=6");
    browser.until(&format!("{NAMES} === 'loud'"));
    browser.eval("document.getElementById('search').select()");
    browser.write("nothing-like-this");
    browser.until("document.querySelector('#runs caption')?.textContent === 'No run matches this search.'");
    browser.eval("document.getElementById('search').select()");
    browser.key("Backspace");
    browser.eval(
        "(() => { const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input')); })()",
    );
    browser.until("document.querySelectorAll('#runs tbody tr').length === 3");

    // Two are compared: curves over one another, and the settings in which they differ.
    browser.click("#none");
    browser.until("document.querySelector('#charts .empty')");
    browser.click("[data-key='pick calm']");
    browser.click("[data-key='pick loud']");
    browser.until(&format!("{LEGEND} === 'calm loud'"));
    let keys = "[...document.querySelectorAll('#settings tbody th')].map((key) => key.textContent).join(' ')";
    assert_eq!(browser.eval(keys), "privacy.noise_multiplier");
    // The list shows them too, and no setting in which only others differ.
    let columns = "[...document.querySelectorAll('#runs thead [data-key^=\"sort set\"]')].map((head) => head.textContent).join(' ')";
    assert_eq!(browser.eval(columns), "noise_multiplier");
    browser.click("#same");
    browser.until(&format!("{keys}.includes('clip.norm') && {keys}.includes('rounds')"));
    browser.until("document.querySelector('[data-chart=training_loss] canvas')");

    // Hovered: the values are those of the round under the pointer, in all charts.
    browser.hover(PLOT);
    browser.until("document.querySelector('[data-chart=accuracy_top1] .at').textContent.startsWith('round 4')");
    browser.until("document.querySelector('[data-chart=perplexity] .at').textContent.startsWith('round 4')");

    // Zoomed by a drag, which stands in the address; the whole again by a double click.
    browser.drag(PLOT);
    browser.until("location.hash.includes('zoom=')");
    let from = browser.eval("document.getElementById('from').valueAsNumber").as_f64().unwrap();
    assert!((1.0..4.0).contains(&from), "{from}");
    let link = browser.text("location.href");
    browser.double_click(PLOT);
    browser.until("!location.hash.includes('zoom=')");

    // By the keyboard: a chart reads out its points.
    browser.eval("document.querySelector('[data-chart=accuracy_top1] .plot').focus()");
    browser.key("Home");
    browser.key("ArrowRight");
    browser.until("document.getElementById('announced').textContent.startsWith('round 2: calm: ')");
    let spoken = browser.text("document.getElementById('announced').textContent");
    assert!(spoken.contains("; loud: ") && spoken.contains('%'), "{spoken}");

    // The link shows the same to whoever opens it.
    open(&mut browser, &link);
    browser.until(&format!("{LEGEND} === 'calm loud'"));
    assert_eq!(browser.eval("document.getElementById('from').valueAsNumber"), from);
    assert_eq!(browser.eval("document.getElementById('same').checked"), true);
    assert_eq!(browser.eval("document.querySelector('[aria-sort]').textContent"), "Epsilon");

    // The numbers of a chart as a table.
    browser.eval("[...document.querySelectorAll('[data-chart=accuracy_top1] .tools button')].at(-1).click()");
    browser.until("document.querySelectorAll('[data-chart=accuracy_top1] .numbers tbody tr').length === 5");
    check(&mut browser, &serving.address);
}

#[test]
fn p12_p23_a_run_alone_tells_what_it_may() {
    let toy = three_runs();
    train(&toy, &[("standing", &["stands_for={ population = 1000000, cohort = 2400 }"])]);
    let serving = Serving::start(&toy, "0");
    let mut browser = Browser::start();
    open(&mut browser, &serving.address);
    let charts = "[...document.querySelectorAll('kh-chart')].map((chart) => chart.dataset.chart).join(' ')";
    browser.click("[data-key='only calm']");
    browser.until("document.querySelector('#one kh-tiles') && !document.getElementById('one').hidden");
    browser.until(&format!("{charts}.includes('training_loss')"));
    let tiles = browser.text("document.querySelector('#one').innerText");
    assert!(tiles.contains("In simulation, the model predicts") && tiles.contains("none: simulated"), "{tiles}");
    // A constant is a number and no chart.
    let constants = browser.text("document.querySelector('#charts').innerText");
    assert!(constants.contains("Clip norm (constant): 0.5"), "{constants}");
    let suggested = browser.text("document.querySelector('#samples').innerText");
    assert!(suggested.contains("(beginning of a message)") && suggested.contains("see you …"), "{suggested}");
    assert!(suggested.contains("round 0") && suggested.contains("round 8"), "{suggested}");
    browser.click("#statements summary");
    browser.until(
        "document.querySelector('#statements details[open]')?.innerText.includes('NOT private')
        || document.querySelector('#statements details[open]')?.innerText.toLowerCase().includes('simulat')",
    );

    // What is projected to a larger cohort is far below what the run itself costs: one axis shows both if it is logarithmic.
    let logarithmic =
        "[...document.querySelectorAll('kh-chart')].filter((chart) => /epsilon/i.test(chart.dataset.chart))
        .map((chart) => chart.querySelector('.tools button').getAttribute('aria-pressed')).join(' ')";
    assert_eq!(browser.eval(logarithmic), "false");
    browser.click("[data-key='only standing']");
    browser.until(&format!("{charts}.includes('projected_epsilon') && {logarithmic} === 'true true'"));

    browser.click("[data-key='only secret']");
    browser.until("document.querySelector('#one h2').textContent === 'secret'");
    browser.until(&format!("!{charts}.includes('training_loss')"));
    let page = browser.text("document.querySelector('main').innerText");
    assert!(!page.contains("exact values of simulated users") && page.contains("Epsilon so far"), "{page}");
    check(&mut browser, &serving.address);
}

#[test]
fn a_run_grows_on_the_page_and_the_page_outlives_its_server() {
    let toy = three_runs();
    let serving = Serving::start(&toy, "0");
    let mut browser = Browser::start();
    open(&mut browser, &serving.address);
    browser.until("document.getElementById('live').dataset.state === 'live'");
    let more = ["train", "run.toml", "--out", "runs/growing", "--quiet", "--threads", "1", "--set", "rounds=4000"];
    let mut training = toy.command(&more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let row = "document.querySelector('#runs [data-row=growing]')";
    browser.until(row);
    browser.until(&format!("{row}.querySelector('.state').dataset.state === 'running'"));
    let rounds = format!("parseInt({row}.querySelector('td.number').textContent.replace(',', ''))");
    let first = browser.eval(&rounds).as_u64().unwrap();
    browser.until(&format!("{rounds} > {first}"));
    // It is the newest, and so among those that are shown: its curve grows too.
    browser.click("[data-key='only growing']");
    browser.until("document.querySelector('#one h2')?.textContent === 'growing'");
    let points = "document.querySelectorAll('[data-chart=training_loss] .numbers tbody tr').length";
    browser.until("document.querySelector('[data-chart=training_loss] canvas')");
    browser.eval("[...document.querySelectorAll('[data-chart=training_loss] .tools button')].at(-1).click()");
    let before = browser.eval(points).as_u64().unwrap();
    browser.until(&format!("{points} > {before} || {points} >= 200"));
    check(&mut browser, &serving.address);

    // The server goes and comes back; the page waits, and goes on by itself.
    let port = serving.port().to_owned();
    drop(serving);
    browser.until("document.getElementById('live').dataset.state === 'waiting'");
    let serving = Serving::start(&toy, &port);
    browser.until("document.getElementById('live').dataset.state === 'live'");
    let later = browser.eval(&rounds).as_u64().unwrap();
    training.kill().unwrap();
    training.wait().unwrap();
    assert!(later > first);
    browser.forget();
    browser.until(&format!("{rounds} >= {later}"));
    check(&mut browser, &serving.address);
}

#[test]
fn the_page_fits_a_phone_follows_the_dark_and_is_copied_into_a_folder() {
    let toy = match pictures() {
        None => three_runs(),
        Some(_) => {
            let toy = Toy::new();
            let longer = toy
                .read("run.toml")
                .replace("rounds = 8", "rounds = 120")
                .replace("vocabulary = 120", "vocabulary = 2000");
            let longer = longer.replace("hidden = 16\nembedding = 16", "hidden = 48\nembedding = 48");
            let longer =
                longer.replace("cohort = 24", "cohort = 100").replace("population = 2000", "population = 20000");
            let longer = longer
                .replace("users = 6\nmost_tokens = 300", "users = 100\nmost_tokens = 5000")
                .replace("most_tokens = 60", "most_tokens = 400");
            toy.write("run.toml", &longer.replace("every = 2\n", "every = 5\n"));
            train(
                &toy,
                &[
                    ("noise-0.1", &["privacy.noise_multiplier=0.1"]),
                    ("noise-0.5", &["privacy.noise_multiplier=0.5"]),
                    ("noise-1.0", &["privacy.noise_multiplier=1.0"]),
                    ("secret", &["noise_seed=", "privacy.noise_multiplier=0.5", "clip.norm=0.3"]),
                ],
            );
            toy
        }
    };
    let serving = Serving::start(&toy, "0");
    let mut browser = Browser::start();
    browser.prefers("light");
    browser.size(1360, 940);
    open(&mut browser, &serving.address);
    browser.click("#all");
    browser.until("document.querySelectorAll('[data-chart=accuracy_top1] .legend li').length >= 3");
    let picture = |browser: &mut Browser, name: &str| {
        if let Some(folder) = pictures() {
            fs::create_dir_all(&folder).unwrap();
            browser.eval("scrollTo(0, 0)");
            browser.picture(&folder.join(name));
        }
    };
    picture(&mut browser, "board-light.png");
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.text(ground);
    browser.prefers("dark");
    browser.until(&format!("{ground} !== {}", serde_json::json!(light)));
    picture(&mut browser, "board-dark.png");
    browser.click("#theme");
    browser.until(&format!("{ground} === {}", serde_json::json!(light)));

    // As wide as a phone, nothing sticks out, and what is touched is large enough.
    browser.size(390, 844);
    open(&mut browser, &serving.address);
    browser.until("document.documentElement.scrollWidth <= 390");
    let small = browser.eval("[...document.querySelectorAll('#runs input, .head button, .head select')].filter((e) => { const r = (e.closest('.pick label') || e).getBoundingClientRect(); return r.height > 0 && r.height < 34; }).length");
    assert_eq!(small, 0, "too small to be touched");
    picture(&mut browser, "board-phone.png");
    check(&mut browser, &serving.address);

    // The copy opens as a file, draws the same, and asks nobody.
    let said: Value = serde_json::from_str(&toy.ok(&["board", "runs", "--export", "copy", "--json"])).unwrap();
    assert!(said["runs"].as_u64().unwrap() >= 3);
    let folder = format!("file://{}/", toy.path("copy").display());
    browser.open("about:blank");
    drop(serving);
    browser.forget();
    browser.size(1280, 900);
    let link = format!("{folder}index.html#sort=name");
    open(&mut browser, &link);
    browser.until("document.getElementById('live').textContent.startsWith('a copy of ')");
    browser.until("document.querySelectorAll('#samples tbody tr').length === 6");
    browser.click("[data-key='sort name']");
    browser.until("location.hash.includes('sort=-name')");
    check(&mut browser, &folder);
}

#[test]
fn what_cannot_be_shown_is_said() {
    let toy = Toy::new();
    let none = toy.refused(&["board"]);
    assert!(none.contains("there is no folder runs") && none.contains("keyhush train"), "{none}");
    fs::create_dir(toy.path("runs")).unwrap();
    let empty = toy.refused(&["board", "--export", "copy"]);
    assert!(empty.contains("there are no runs in runs"), "{empty}");
    assert!(!toy.path("copy").exists());
    toy.write("prompts.txt", "\n\n");
    let prompts = toy.refused(&["train", "run.toml", "--prompts", "prompts.txt"]);
    assert!(prompts.contains("--prompts") && prompts.contains("one per line"), "{prompts}");
    toy.write("prompts.txt", "good morning\nhow about\n");
    toy.ok(&["train", "run.toml", "--prompts", "prompts.txt", "--out", "runs/mine", "--quiet"]);
    assert!(
        toy.read("runs/mine/samples.jsonl").contains(r#"{"round":8,"samples":[{"prompt":"good morning","words":["#)
    );
    let said = toy.ok(&["board", "--export", "copy"]);
    assert_eq!(said, "Copied 1 run: copy/index.html\n");
}

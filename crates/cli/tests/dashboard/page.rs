//! The page in a browser, with a real server and real devices.

use std::{fs, path::PathBuf};

use super::{BY_DEVICES, Served};
use crate::browser::Browser;

/// Devices of a task: as many as its first round waits for.
const DEVICES: u64 = 320;

/// The pictures' folder, where they are asked for.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("KEYHUSH_PICTURES").map(PathBuf::from)
}

/// Opens the page with a token, and waits for its list.
fn open(browser: &mut Browser, served: &Served, token: &str) {
    browser.open(&format!("{}#token={token}", served.url()));
    browser.until("!document.getElementById('list').hidden && document.querySelector('#tasks [data-row=words]')");
}

const ROUNDS: &str = "parseInt(document.querySelector('#tasks [data-row=words] .of-rounds').textContent)";
const LIVE: &str = "document.getElementById('live').dataset.state === 'live'";

/// Nothing failed, no policy was broken, and nobody else was asked.
fn check(browser: &mut Browser, served: &Served) {
    assert_eq!(browser.problems(), Vec::<String>::new());
    let url = served.url();
    let is_own = |asked: &String| asked.starts_with(&url) || asked.starts_with("blob:") || asked == "about:blank";
    let others: Vec<String> = browser.requests().into_iter().filter(|asked| !is_own(asked)).collect();
    assert_eq!(others, Vec::<String>::new());
}

#[test]
fn a_token_opens_the_page_for_its_role_until_it_is_revoked() {
    let served = Served::start(&["rounds=400", "evaluation.every=2"], "", DEVICES);
    let mut browser = Browser::start();
    browser.open(&served.url());
    browser.until("!document.getElementById('enter').hidden && document.activeElement.id === 'token'");
    let said = browser.text("document.getElementById('enter').innerText");
    assert!(said.contains("keyhush access create NAME --role viewer --secrets DIR"), "{said}");
    // One that nobody has: said, in words that are read aloud.
    browser.write("keyhush_0000");
    browser.key("Enter");
    browser.click("#enter button");
    browser.until("document.getElementById('enter-why').textContent.includes('does not accept this token')");
    assert_eq!(browser.eval("document.getElementById('enter-why').getAttribute('role')"), "alert");
    browser.forget();

    // A viewer: it is in the address for a moment, and then in no history.
    let viewer = served.token("viewer");
    open(&mut browser, &served, &viewer);
    assert_eq!(browser.text("location.href"), format!("{}#", served.url()));
    assert_eq!(browser.text("document.getElementById('who').textContent"), "viewer");
    browser.click("#tasks [data-row=words] a");
    browser.until("location.hash === '#task=words' && document.activeElement.id === 'task-title'");
    browser.until("document.querySelector('#task blockquote')");
    let page = browser.text("document.getElementById('task').innerText");
    assert!(!page.contains("Pause") && !page.contains("Check-ins") && !page.contains("Enrolled devices"), "{page}");
    assert_eq!(browser.eval("document.querySelectorAll('#task .orders button').length"), 0);
    let asked = browser.requests();
    assert!(!asked.iter().any(|url| url.contains("operations") || url.contains("token=")), "{asked:?}");
    check(&mut browser, &served);

    // Revoked while the page is open.
    served.access(&["revoke", "viewer"]);
    browser.until("document.getElementById('enter-why').textContent.includes('not valid any more')");
    assert_eq!(browser.eval("sessionStorage.length"), 0);
    assert_eq!(browser.text("document.getElementById('task').innerText"), "", "nothing stays to be read");

    // An operator signs in by typing, and out.
    let operator = served.token("operator");
    browser.write(&operator);
    browser.click("#enter button");
    browser.until("document.querySelector('#task .orders button')");
    assert_eq!(browser.text("document.getElementById('who').textContent"), "operator");
    browser.click("#out");
    browser.until("!document.getElementById('enter').hidden");
    assert_eq!(browser.text("document.getElementById('enter-why').textContent"), "");
}

#[test]
fn rounds_appear_as_they_are_released_orders_are_given_and_the_page_outlives_its_server() {
    let mut served = Served::start(&["rounds=400", "evaluation.every=2"], BY_DEVICES, DEVICES);
    let token = served.token("operator");
    let mut browser = Browser::start();
    open(&mut browser, &served, &token);
    browser.until(LIVE);
    browser.until(&format!("{ROUNDS} >= 1"));
    let first = browser.eval(ROUNDS).as_u64().unwrap();
    browser.until(&format!("{ROUNDS} > {first}"));

    // One task, by the keyboard: its curves, what it costs, and what only operators see.
    browser.eval("document.querySelector('#tasks [data-row=words] a').focus()");
    browser.eval("document.activeElement.click()");
    browser.until("document.querySelector('[data-chart=accuracy_top1] canvas') && document.querySelector('[data-chart=spending] canvas')");
    let legend = "[...document.querySelectorAll('[data-chart=spending] .legend span')].map((name) => name.textContent).join('; ')";
    assert_eq!(browser.text(legend), "epsilon so far, this run alone; forecast to the end of the plan");
    browser.until(
        "document.querySelector('kh-operations .mark')?.textContent === 'exact, for operators, outside the guarantee'",
    );
    browser.until(
        "[...document.querySelectorAll('.attempts .session code')].some((signs) => signs.textContent === '-v[]+^')",
    );
    let tile = "document.querySelector('kh-operations kh-tiles .value').textContent";
    browser.until(&format!("{tile} === '{DEVICES}'"));
    // It grows while it is looked at, and says so to those who hear.
    let points = "document.querySelector('[data-chart=accuracy_top1] .numbers').querySelectorAll('tbody tr').length";
    browser.eval("[...document.querySelectorAll('[data-chart=accuracy_top1] .tools button')].at(-1).click()");
    let before = browser.eval(points).as_u64().unwrap();
    browser.until(&format!("{points} > {before}"));
    browser.until("/^round \\d+ of 400$/.test(document.getElementById('announced').textContent)");

    // A chart is read by the keyboard, and zoomed; the zoom is part of the address.
    browser.eval("document.querySelector('[data-chart=accuracy_top1] .plot').focus()");
    browser.key("Home");
    browser.until("document.getElementById('announced').textContent.startsWith('round 0: ')");
    browser.drag("[data-chart=accuracy_top1] .u-over");
    browser.until("location.hash.includes('zoom=')");
    browser.double_click("[data-chart=accuracy_top1] .u-over");
    browser.until("!location.hash.includes('zoom=')");

    // Orders say what they do before they are given; Escape gives none.
    browser.click("[data-key=pause]");
    browser.until("document.getElementById('sure').open && document.activeElement.dataset.key === 'cancel'");
    assert!(browser.text("document.getElementById('sure').innerText").contains("No new round is started"));
    browser.key("Escape");
    browser.until("!document.getElementById('sure').open && document.activeElement.dataset.key === 'pause'");
    browser.click("[data-key=pause]");
    browser.click("[data-key=confirm]");
    browser.until("['paused', 'pausing'].includes(document.querySelector('#task .head .state').textContent)");
    browser.until("document.querySelector('#task .head .state').textContent === 'paused'");
    browser.click("[data-key=resume]");
    browser.click("[data-key=confirm]");
    browser.until("document.querySelector('#task .head .state').textContent === 'running'");
    check(&mut browser, &served);

    // The server is killed and comes back; the page waits, and goes on by itself with the same token.
    served.killed(|| browser.until("document.getElementById('live').dataset.state === 'waiting'"));
    browser.forget();
    browser.until(LIVE);
    let now = "parseInt(document.getElementById('announced').textContent.replace('round ', ''))";
    let later = browser.eval(now).as_u64().unwrap_or_default();
    browser.until(&format!("{now} > {later}"));

    // To stop for good takes the name of the task. The model, the statement and the ledger are there to take home.
    browser.click("[data-key=stop]");
    assert_eq!(browser.eval("document.querySelector('[data-key=confirm]').disabled"), true);
    browser.until("document.activeElement.id === 'typed'");
    browser.write("words");
    browser.click("[data-key=confirm]");
    browser.until("document.getElementById('announced').textContent.includes('stop is ordered')");
}

#[test]
fn the_page_is_used_without_a_mouse_on_a_phone_and_in_the_dark() {
    let longer = pictures().is_some();
    let set: &[&str] = match longer {
        false => &["rounds=400", "evaluation.every=2"],
        true => &[
            "rounds=60",
            "evaluation.every=1",
            "evaluation.users=100",
            "evaluation.most_tokens=5000",
            "model.vocabulary=1000",
            "model.hidden=24",
            "model.embedding=24",
            "local.most_tokens=200",
            "participation.cohort=60",
            "participation.min_separation=0",
            "participation.max_participations=60",
            "privacy.noise_multiplier=0.05",
            "privacy.max_epsilon=1e9",
        ],
    };
    let served = Served::start_with(set, if longer { "" } else { BY_DEVICES }, DEVICES, &["devices.begin_with=390"]);
    let (token, viewer) = (served.token("operator"), served.token("viewer"));
    let enough = if longer { 40 } else { 3 };
    served.until("/api/dashboard", &token, |list| {
        list["tasks"].as_array().unwrap().iter().any(|task| task["rounds"].as_u64() >= Some(enough))
    });
    let mut browser = Browser::start();
    browser.prefers("light");
    browser.size(1280, 900);
    open(&mut browser, &served, &token);
    let picture = |browser: &mut Browser, name: &str| {
        if let Some(folder) = pictures() {
            fs::create_dir_all(&folder).unwrap();
            browser.picture(&folder.join(name));
        }
    };
    picture(&mut browser, "dashboard-list.png");

    // By Tab alone: what gets the focus is in the order of the page, and can be seen to have it.
    let mut order = Vec::new();
    browser.eval("document.body.focus()");
    for _ in 0..5 {
        browser.key("Tab");
        order.push(browser.text(
            "document.activeElement.id || document.activeElement.dataset.key || document.activeElement.className",
        ));
        let outline = browser.text("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outline, "solid", "{order:?}");
    }
    assert_eq!(order, ["skip", "out", "theme", "sort name", "sort state"]);
    let unnamed = "[...document.querySelectorAll('button, a, input, select')].filter((e) => e.offsetParent && !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length";
    assert_eq!(browser.eval(unnamed), 0);

    browser.click("#tasks [data-row=words] a");
    browser.until("document.querySelector('[data-chart=accuracy_top1] canvas') && document.querySelector('kh-operations .session')");
    assert_eq!(browser.eval(unnamed), 0);
    assert_eq!(browser.eval("document.querySelectorAll('#task h2').length"), 1);
    let landmarks = browser.eval("[...document.querySelectorAll('#task section:not([hidden])')].every((part) => document.getElementById(part.getAttribute('aria-labelledby')))");
    assert_eq!(landmarks, true);
    browser.eval("scrollTo(0, 0)");
    picture(&mut browser, "dashboard-light.png");
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.text(ground);
    browser.prefers("dark");
    browser.until(&format!("{ground} !== {}", serde_json::json!(light)));
    picture(&mut browser, "dashboard-dark.png");
    browser.click("[data-key='jump part-operations']");
    browser.until("document.activeElement.id === 'part-operations'");
    picture(&mut browser, "dashboard-operations.png");
    browser.click("#theme");
    browser.until(&format!("{ground} === {}", serde_json::json!(light)));

    // As wide as a phone, nothing sticks out, and what is touched is large enough; for both roles.
    for (token, name) in [(&token, "dashboard-phone.png"), (&viewer, "dashboard-phone-viewer.png")] {
        browser.size(390, 844);
        open(&mut browser, &served, token);
        browser.until("document.documentElement.scrollWidth <= 390");
        browser.click("#tasks [data-row=words] a");
        browser.until("document.querySelector('[data-chart=accuracy_top1] canvas')");
        browser.until("document.documentElement.scrollWidth <= 390");
        let small = "[...document.querySelectorAll('header button, .orders button, .files button, .jump button, summary')].filter((e) => { const r = e.getBoundingClientRect(); return r.height > 0 && r.height < 38; }).length";
        assert_eq!(browser.eval(small), 0, "too small to be touched");
        browser.eval("scrollTo(0, 0)");
        picture(&mut browser, name);
    }
    // What is downloaded is what the server has, with the token that only the page knows.
    browser.eval(
        "window.saved = []; HTMLAnchorElement.prototype.click = function () { window.saved.push(this.download); }",
    );
    browser.click("[data-key='file ledger.jsonl']");
    browser.until("window.saved[0] === 'words-ledger.jsonl'");
    check(&mut browser, &served);
}

/// What a hostile server could say is text, and stays on the page: markup, numbers that are none, many tasks, many rounds.
#[test]
fn what_is_hostile_or_huge_is_shown_as_text() {
    let served = Served::start(&["rounds=400"], "", DEVICES);
    let mut browser = Browser::start();
    browser.open(&served.url());
    browser.until("!document.getElementById('enter').hidden");
    browser.eval(HOSTILE);
    browser.eval("document.getElementById('token').value = 'any'");
    browser.click("#enter button");
    browser.until("document.querySelectorAll('#tasks tbody tr').length === 50");
    assert_eq!(browser.eval("document.querySelectorAll('#tasks img, #tasks script').length"), 0);
    let began = std::time::Instant::now();
    browser.eval("location.hash = '#task=' + encodeURIComponent('<img src=x onerror=alert(1)>')");
    browser.until("document.querySelector('[data-chart=accuracy_top1] canvas')");
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert_eq!(browser.eval("document.querySelectorAll('#task img, #task script, #task iframe').length"), 0);
    let page = browser.text("document.getElementById('task').innerText");
    assert!(page.contains("<script>alert(1)</script>") && page.contains("no privacy: infinite"), "{page}");
    assert!(!page.contains("NaN") && !page.contains("undefined") && !page.contains("Infinity"), "{page}");
    browser.size(390, 844);
    browser.until("document.documentElement.scrollWidth <= 390");
    browser.eval("location.hash = ''");
    browser.until("!document.getElementById('list').hidden && document.documentElement.scrollWidth <= 390");
    assert_eq!(browser.problems(), Vec::<String>::new());
}

/// Answers in the place of the server's.
const HOSTILE: &str = include_str!("hostile.js");

//! A headless Chromium for tests of pages: clicks, keys, sizes, pictures, and what the page asked for and complained about.
//!
//! It is driven by the DevTools protocol over a pipe (`--remote-debugging-pipe`: JSON with a zero byte behind it), which needs
//! neither a driver nor a library. `cargo xtask test` installs Chromium where it is missing.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The protocol is to be on the descriptors 3 and 4, which the shell makes of those that we can give.
const LAUNCH: &str = r#"exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
    "about:blank",
];

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    sent: u64,
    /// What it told by itself.
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let data = format!("--user-data-dir={}", profile.path().display());
        let mut command = Command::new("sh");
        command.args(["-c", LAUNCH, "sh", "chromium", &data]).args(FLAGS).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, from) = mpsc::channel();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while out.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let to = child.stdin.take().unwrap();
        let mut browser =
            Self { child, to, from, session: String::new(), sent: 0, events: Vec::new(), _profile: profile };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": page, "flatten": true }));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.size(1280, 900);
        browser
    }

    /// Asks for something and waits for the answer.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.to.flush());
        sent.expect("chromium runs: `cargo xtask test` installs it, or apt-get install chromium");
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.from.recv_timeout(left).unwrap_or_else(|_| {
                panic!("{method} is not answered; is chromium there? `cargo xtask test` installs it")
            });
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    pub(crate) fn open(&mut self, address: &str) {
        // The same page with another fragment would not be loaded again.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        let gone = self.call("Page.navigate", json!({ "url": address }));
        assert!(gone.get("errorText").is_none(), "{address}: {}", gone["errorText"]);
        self.until("document.readyState === 'complete'");
    }

    /// What a script comes to.
    pub(crate) fn eval(&mut self, script: &str) -> Value {
        let asked = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{script}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, script: &str) -> String {
        self.eval(script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a script comes to something true.
    pub(crate) fn until(&mut self, script: &str) {
        let end = Instant::now() + PATIENCE;
        while self.eval(&format!("!!({script})")) != true {
            if Instant::now() > end {
                let page = self.text("document.body.innerText.slice(0, 1500)");
                panic!("not true: {script}\n{page}\n{:?}", self.problems());
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    /// The middle of an element, once it is in sight.
    fn place(&mut self, selector: &str) -> (f64, f64, f64) {
        self.until(&format!("document.querySelector({})", json!(selector)));
        let script = format!(
            "(() => {{ const e = document.querySelector({}); e.scrollIntoView({{ block: 'center', behavior: 'instant' }}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2, r.width]; }})()",
            json!(selector)
        );
        let place = self.eval(&script);
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap(), place[2].as_f64().unwrap())
    }

    fn mouse(&mut self, kind: &str, x: f64, y: f64, clicks: u32) {
        let (button, buttons) = if kind == "mouseMoved" && clicks == 0 { ("none", 0) } else { ("left", 1) };
        let event = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": clicks });
        self.call("Input.dispatchMouseEvent", event);
    }

    pub(crate) fn click(&mut self, selector: &str) {
        let (x, y, _) = self.place(selector);
        self.mouse("mousePressed", x, y, 1);
        self.mouse("mouseReleased", x, y, 1);
    }

    pub(crate) fn double_click(&mut self, selector: &str) {
        let (x, y, _) = self.place(selector);
        for clicks in [1, 2] {
            self.mouse("mousePressed", x, y, clicks);
            self.mouse("mouseReleased", x, y, clicks);
        }
    }

    pub(crate) fn hover(&mut self, selector: &str) {
        let (x, y, _) = self.place(selector);
        self.mouse("mouseMoved", x - 3.0, y, 0);
        self.mouse("mouseMoved", x, y, 0);
    }

    /// Across the middle half of an element.
    pub(crate) fn drag(&mut self, selector: &str) {
        let (x, y, width) = self.place(selector);
        let (from, to) = (x - width / 4.0, x + width / 4.0);
        self.mouse("mouseMoved", from, y, 0);
        self.mouse("mousePressed", from, y, 1);
        for step in 1..=4 {
            self.mouse("mouseMoved", from + (to - from) * f64::from(step) / 4.0, y, 1);
        }
        self.mouse("mouseReleased", to, y, 1);
    }

    pub(crate) fn key(&mut self, name: &str) {
        // What a browser itself does at Escape, such as closing a dialog, goes by the number of the key.
        let number = if name == "Escape" { 27 } else { 0 };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": name, "code": name, "windowsVirtualKeyCode": number });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Types into what has the focus.
    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    pub(crate) fn size(&mut self, width: u32, height: u32) {
        let mobile = width < 600;
        let scale = if mobile { 2 } else { 1 };
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub(crate) fn prefers(&mut self, scheme: &str) {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": feature }));
    }

    /// A picture of what is in sight.
    pub(crate) fn picture(&mut self, path: &Path) {
        self.eval("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(1))))");
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png", "optimizeForSpeed": false }));
        fs::write(path, base64(picture["data"].as_str().unwrap())).unwrap();
    }

    /// Errors and warnings of scripts, of the network and of the policy.
    pub(crate) fn problems(&mut self) -> Vec<String> {
        // What was told before this is here now.
        self.eval("1");
        let told = self.events.iter().filter_map(|event| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled"
                    if matches!(parameters["type"].as_str(), Some("error" | "warning" | "assert")) =>
                {
                    Some(parameters["args"].to_string())
                }
                "Log.entryAdded" if matches!(parameters["entry"]["level"].as_str(), Some("error" | "warning")) => {
                    Some(format!("{} {}", parameters["entry"]["text"], parameters["entry"]["url"]))
                }
                _ => None,
            }
        });
        told.collect()
    }

    /// What was told so far does not count.
    pub(crate) fn forget(&mut self) {
        self.eval("1");
        self.events.clear();
    }

    /// All addresses that the page asked for.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        self.eval("1");
        let asked = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        asked.map(|event| event["params"]["request"]["url"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let end = Instant::now() + Duration::from_secs(5);
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes of base64, as pictures come.
fn base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut many) = (Vec::new(), 0_u32, 0);
    for six in text.bytes().filter_map(value) {
        (bits, many) = (bits << 6 | six, many + 6);
        if many >= 8 {
            many -= 8;
            bytes.push((bits >> many & 0xff) as u8);
        }
    }
    bytes
}

#[test]
fn pictures_are_decoded() {
    assert_eq!(base64("a2V5aHVzaA=="), b"keyhush");
    assert_eq!(base64("/+8="), [0xff, 0xef]);
}

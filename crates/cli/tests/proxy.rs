//! A server behind nginx and behind Caddy, with the configurations of `deploy/` and real devices: a run to its end, addresses of devices as the proxy
//! has them, long messages, and no ticket in a log.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stdout, reason = "says what was left out")]

use std::{
    fs,
    net::{IpAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use agent::http::{Server, Trust};

use crate::{
    restore::task,
    rotate::certified,
    serve::{Killed, keyhush, serve},
    unit::{deploy, has},
};

const PATIENCE: Duration = Duration::from_secs(120);
/// The longest message, and the longest chunk of a report.
const LONG: usize = 1 << 20;

/// A port that nobody else has.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let from = (std::process::id() % 10_000) as u16;
    let any = || 30_000 + (from + 11 * NEXT.fetch_add(1, Ordering::Relaxed)) % 2_700;
    std::iter::repeat_with(any).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Replaces what must be there.
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the configuration has no {from:?}");
        text.replace(from, to)
    })
}

/// Starts nginx with the configuration of `deploy/`, but for names, places and ports.
fn nginx(here: &Path, port: u16, upstream: &str) -> Killed {
    let at = here.display();
    let site = with(
        &fs::read_to_string(deploy().join("nginx.conf")).unwrap(),
        &[
            ("listen 443 ssl;", &format!("listen {port} ssl;")),
            ("127.0.0.1:8080", upstream),
            ("server_name keyhush.example;", "server_name localhost;"),
            ("/etc/letsencrypt/live/keyhush.example/fullchain.pem", &format!("{at}/live.pem")),
            ("/etc/letsencrypt/live/keyhush.example/privkey.pem", &format!("{at}/live.key")),
            ("/var/log/nginx/keyhush.log", &format!("{at}/access.log")),
        ],
    );
    fs::write(here.join("site.conf"), site).unwrap();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
        .concat();
    let whole = format!(
        "daemon off;\nmaster_process off;\npid {at}/pid;\nevents {{}}\nhttp {{\n{temporary}include {at}/site.conf;\n}}\n"
    );
    fs::write(here.join("nginx.conf"), whole).unwrap();
    let mut nginx = Command::new("nginx");
    nginx.args(["-e", "stderr", "-p"]).arg(here).arg("-c").arg(here.join("nginx.conf"));
    started(here, nginx, port)
}

/// The same of Caddy.
fn caddy(here: &Path, port: u16, upstream: &str) -> Killed {
    let at = here.display();
    let site = with(
        &fs::read_to_string(deploy().join("Caddyfile")).unwrap(),
        &[
            (
                "\nkeyhush.example {",
                &format!(
                    "\n{{\n\tadmin off\n\tauto_https disable_redirects\n}}\nhttps://:{port} {{\n\ttls {at}/live.pem {at}/live.key"
                ),
            ),
            ("127.0.0.1:8080", upstream),
        ],
    );
    fs::write(here.join("Caddyfile"), site).unwrap();
    let mut caddy = Command::new("caddy");
    caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(here.join("Caddyfile"));
    caddy.env("XDG_DATA_HOME", here.join("caddy")).env("XDG_CONFIG_HOME", here.join("caddy"));
    started(here, caddy, port)
}

fn started(here: &Path, mut proxy: Command, port: u16) -> Killed {
    let log = fs::File::create(here.join("proxy.log")).unwrap();
    let mut proxy = Killed::of(proxy.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let said = || fs::read_to_string(here.join("proxy.log")).unwrap();
        assert!(proxy.0.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE, "{}", said());
        thread::sleep(Duration::from_millis(50));
    }
    proxy
}

/// Whether a device enrols at an address.
fn enrols(here: &Path, url: &str, state: &str) -> bool {
    let args =
        ["device", "--server", url, "--roots", "ca.pem", "--text", "typed", "--state", state, "--for-seconds", "2"];
    let out = keyhush().current_dir(here).args(args).output().unwrap();
    String::from_utf8_lossy(&out.stderr).lines().any(|line| line == "enrolled")
}

fn behind(start: impl Fn(&Path, u16, &str) -> Killed) {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    fs::create_dir(here.join("typed")).unwrap();
    let own = own_address().map_or_else(String::new, |own| format!(",IP:{own}"));
    certified(here, "live", &own);
    fs::write(here.join("words.toml"), task(2)).unwrap();
    let plain = ["--plain-http", "--anybody", "--trusted-proxy", "127.0.0.1"];

    // A whole run.
    let (mut server, address) = serve(here, "127.0.0.1:0", &plain);
    let at = port();
    let _proxy = start(here, at, &address);
    let url = format!("https://localhost:{at}");
    long_messages_come_through(&url, &here.join("ca.pem"));
    let mut devices = keyhush();
    devices.current_dir(here).args(["device", "--server", &url, "--roots", "ca.pem", "--synthetic", "--count", "160"]);
    let _devices = Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    while server.0.try_wait().unwrap().is_none() {
        assert!(
            began.elapsed() < PATIENCE,
            "the run does not end: {}",
            fs::read_to_string(here.join("proxy.log")).unwrap()
        );
        thread::sleep(Duration::from_millis(50));
    }
    assert!(here.join("data/models/words/statement.md").exists());
    let logged = fs::read_to_string(here.join("access.log")).unwrap_or_default()
        + &fs::read_to_string(here.join("proxy.log")).unwrap();
    let is_ticket =
        |path: &str| path.split('/').any(|part| part.len() >= 32 && part.chars().all(|c| c.is_ascii_hexdigit()));
    let tickets = logged.split_whitespace().filter(|word| word.starts_with("/v1/report/") && is_ticket(word)).count();
    assert_eq!(tickets, 0, "no log has a ticket");

    // One device may enrol from each address, as the proxy has them.
    drop(_proxy);
    fs::remove_dir_all(here.join("data")).unwrap();
    fs::remove_dir_all(here.join("secrets")).unwrap();
    let limited = [&plain[..], &["--enrolments-by-address", "1"]].concat();
    let (_server, address) = serve(here, "127.0.0.1:0", &limited);
    let at = port();
    let _proxy = start(here, at, &address);
    let Some(own) = own_address() else {
        println!("not tested: this machine has no address but loopback, which a proxy's word is not taken for");
        return;
    };
    let (own, loopback) = (format!("https://{own}:{at}"), format!("https://localhost:{at}"));
    assert!(enrols(here, &own, "a") && !enrols(here, &own, "b"), "the second from one address is refused");
    assert!(enrols(here, &loopback, "c"), "another address is counted for itself");
}

/// An address of this machine that is not loopback. Nothing is sent to find it.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|own| !own.is_loopback() && !own.is_unspecified())
}

/// The longest message is answered by the server, not refused by the proxy.
fn long_messages_come_through(url: &str, roots: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::new(url, &Trust::Roots(roots.to_owned()), 1).unwrap();
    let answer = runtime.block_on(server.say(vec![0; LONG], Duration::from_secs(20)));
    assert!(answer.as_ref().is_ok_and(|bytes| !bytes.is_empty()), "{answer:?}");
}

#[test]
fn a_run_behind_nginx_is_a_run() {
    if has("nginx") && has("openssl") {
        behind(nginx);
    }
}

#[test]
fn a_run_behind_caddy_is_a_run() {
    if has("caddy") && has("openssl") {
        behind(caddy);
    }
}

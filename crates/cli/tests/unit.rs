//! `deploy/keyhush.service`: what systemd says of it, and that a real server with its devices needs nothing that it forbids.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stdout, reason = "says what was left out")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    restore::task,
    serve::{Killed, keyhush},
};

/// The exposure that `systemd-analyze security` may find, from 0 to 10: 1.2 was found when this was written, and 1.5 for low ports.
const EXPOSURE: f64 = 2.0;
/// How long a run may take: each system call of the server stops twice.
const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").canonicalize().unwrap()
}

/// Whether a command is there; says so where it is not.
pub(crate) fn has(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder: PathBuf| folder.join(command).is_file());
    if !found {
        println!("not tested: {command} is not installed");
    }
    found
}

fn analyze(args: &[&str]) -> Output {
    Command::new("systemd-analyze").args(args).output().unwrap()
}

/// The units, with the program of this build, and with the drop-in for low ports where it is wanted.
fn units(folder: &Path, low_port: bool) {
    for name in ["keyhush.service", "keyhush-backup.service", "keyhush-backup.timer"] {
        let text = fs::read_to_string(deploy().join(name)).unwrap();
        fs::write(folder.join(name), text.replace("/usr/bin/keyhush", env!("CARGO_BIN_EXE_keyhush"))).unwrap();
    }
    if low_port {
        let drop_in = fs::read_to_string(deploy().join("keyhush-port-443.conf")).unwrap();
        let text = fs::read_to_string(folder.join("keyhush.service")).unwrap();
        fs::write(folder.join("keyhush.service"), text + &drop_in).unwrap();
    }
}

#[test]
fn systemd_takes_the_units_and_finds_them_hardened() {
    if !has("systemd-analyze") {
        return;
    }
    for low_port in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        units(here, low_port);
        for name in ["keyhush.service", "keyhush-backup.service", "keyhush-backup.timer"] {
            let path = here.join(name);
            let verified = analyze(&["verify", path.to_str().unwrap()]);
            let said = String::from_utf8_lossy(&verified.stderr).into_owned();
            assert!(verified.status.success() && !said.contains(name), "{name}: {said}");
        }
        let path = here.join("keyhush.service");
        let text = fs::read_to_string(&path).unwrap();
        let found = exposure(&path, &text);
        assert!(found <= EXPOSURE, "exposure {found}, at most {EXPOSURE}");
        for hardening in ["NoNewPrivileges=yes", "SystemCallFilter=@system-service", "ProtectSystem=strict"] {
            assert!(text.contains(hardening));
            assert!(exposure(&path, &text.replace(hardening, "")) > found, "{hardening} counts for nothing");
        }
    }
}

/// What `systemd-analyze security` finds in a unit, from 0 to 10.
fn exposure(path: &Path, text: &str) -> f64 {
    fs::write(path, text).unwrap();
    let out = analyze(&["security", "--offline=true", path.to_str().unwrap()]);
    let said = String::from_utf8(out.stdout).unwrap();
    let last = said.split("Overall exposure level for ").nth(1).unwrap_or_else(|| panic!("{said}"));
    last.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The system calls of a filter of systemd, groups in it resolved.
fn calls(group: &str) -> BTreeSet<String> {
    let said = analyze(&["syscall-filter", group]);
    assert!(said.status.success(), "{group}");
    let text = String::from_utf8(said.stdout).unwrap();
    let members = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    members.flat_map(|name| if name.starts_with('@') { calls(name) } else { [name.to_owned()].into() }).collect()
}

/// What the unit lets the server call, by its own lines.
fn allowed() -> BTreeSet<String> {
    let text = fs::read_to_string(deploy().join("keyhush.service")).unwrap();
    let filters = text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let mut all = BTreeSet::new();
    for filter in filters {
        let groups = filter.trim_start_matches('~').split(' ').map(calls);
        for group in groups {
            if filter.starts_with('~') { all.retain(|call| !group.contains(call)) } else { all.extend(group) }
        }
    }
    all
}

/// A server as in the unit: the system read-only, no capability, its own processes, two folders of its own. It is run to its end, and every
/// system call is counted.
#[test]
fn a_server_needs_nothing_that_its_unit_forbids() {
    if !has("systemd-analyze") || !has("strace") || !has("bwrap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    fs::write(folder.path().join("words.toml"), task(2)).unwrap();
    let confined = |command: &mut Command| {
        command.args([
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
            "--bind",
            here,
            here,
        ]);
        // Not as root, as whom SQLite gives files their owner.
        command.args(["--unshare-user", "--uid", "64937", "--gid", "64937"]);
        command.args([
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--cap-drop",
            "ALL",
            "--die-with-parent",
            "--chdir",
            here,
        ]);
    };
    let mut probe = Command::new("bwrap");
    confined(&mut probe);
    if !probe.arg("true").output().unwrap().status.success() {
        println!("not tested: this system does not let bwrap make namespaces");
        return;
    }
    let mut server = Command::new("bwrap");
    confined(&mut server);
    server.args([
        "strace",
        "-f",
        "-c",
        "-U",
        "name",
        "-o",
        "calls",
        env!("CARGO_BIN_EXE_keyhush"),
        "serve",
        "words.toml",
    ]);
    server.args(["--listen", "127.0.0.1:0", "--data", "data", "--secrets", "secrets", "--plain-http", "--anybody"]);
    server.args(["--until-done", "--least-pause", "0", "--threads", "1"]);
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let mut server = Killed::of(server.stderr(log).stdout(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    let said = || fs::read_to_string(folder.path().join("log")).unwrap();
    let address = loop {
        if let Some(line) =
            said().lines().find_map(|line| line.split_once("listening on ").map(|(_, address)| address.to_owned()))
        {
            break line;
        }
        assert!(began.elapsed() < PATIENCE, "it does not listen: {}", said());
        thread::sleep(Duration::from_millis(50));
    };
    let mut devices = keyhush();
    devices.args(["device", "--server", &format!("http://{address}"), "--synthetic", "--count", "160"]);
    let _devices = Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let status = loop {
        if let Some(status) = server.0.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "it does not end: {}", said());
        thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{}", said());
    let counted = fs::read_to_string(folder.path().join("calls")).unwrap();
    let used: BTreeSet<String> = counted
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|name| {
            name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') && !name.is_empty()
        })
        .collect();
    assert!(["accept4", "fsync", "futex"].iter().all(|call| used.contains(*call)), "{counted}");
    let allowed = allowed();
    assert!(!allowed.contains("mount") && !allowed.contains("setuid"), "the unit forbids something");
    let forbidden: Vec<&String> =
        used.difference(&allowed).filter(|name| *name != "syscall" && *name != "total").collect();
    assert!(forbidden.is_empty(), "the unit forbids {forbidden:?}, which the server calls");
}

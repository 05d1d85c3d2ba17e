//! `deploy/Containerfile`: the image is built, and a server runs in it as its user, with nothing but its two volumes to write to.
//!
//! There is no container engine here, so `buildah` builds with its own isolation, and the file system of the image is run by `bwrap`, read-only and
//! without a capability, as an engine would with the flags of docs/DEPLOY.md.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    restore::task,
    serve::{Killed, keyhush},
    unit::{deploy, has},
};

/// Runs to its end, in storage of its own.
fn buildah(here: &Path, args: &[&str]) -> Result<String, String> {
    let mut buildah = Command::new("buildah");
    buildah
        .args(["--storage-driver", "vfs", "--root"])
        .arg(here.join("storage"))
        .arg("--runroot")
        .arg(here.join("running"));
    let out = buildah.args(args).output().unwrap();
    match out.status.success() {
        true => Ok(String::from_utf8(out.stdout).unwrap().trim().to_owned()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

#[test]
fn the_image_is_built_and_a_server_runs_in_it() {
    if !has("buildah") || !has("bwrap") || !Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n")
    {
        println!("not tested: it takes root, buildah and bwrap");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    let context = here.join("context");
    let collected = Command::new("sh")
        .arg(deploy().join("context.sh"))
        .arg(env!("CARGO_BIN_EXE_keyhush"))
        .arg(&context)
        .output()
        .unwrap();
    assert!(collected.status.success(), "{}", String::from_utf8_lossy(&collected.stderr));
    let containerfile = deploy().join("Containerfile");
    let (file, context) = (containerfile.to_str().unwrap(), context.to_str().unwrap());
    if let Err(why) = buildah(
        here,
        &["bud", "--isolation", "chroot", "--format", "docker", "--file", file, "--tag", "keyhush", context],
    ) {
        // Namespaces that this system does not give are no fault of the file.
        assert!(why.contains("ermitted") || why.contains("namespace"), "{why}");
        println!("not tested: {why}");
        return;
    }
    let config = buildah(here, &["inspect", "--type", "image", "--format", "{{.Docker.Config}}", "keyhush"]).unwrap();
    for said in ["64937:64937", "/data", "/secrets", "SIGTERM", "8443/tcp", "/usr/bin/keyhush"] {
        assert!(config.contains(said), "{said} is not in {config}");
    }
    let container = buildah(here, &["from", "keyhush"]).unwrap();
    let root = buildah(here, &["mount", &container]).unwrap();
    for volume in ["data", "secrets"] {
        let meta = fs::metadata(Path::new(&root).join(volume)).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o777), (64937, 0o700), "{volume}");
    }
    assert!(!Path::new(&root).join("bin/sh").exists());

    // As an engine would run it, which makes these two itself: the root read-only, as the user of the image, with volumes and settings, and without a capability.
    for name in ["proc", "dev"] {
        fs::create_dir_all(Path::new(&root).join(name)).unwrap();
    }
    let volumes = here.join("volumes");
    for name in ["data", "secrets", "settings"] {
        fs::create_dir_all(volumes.join(name)).unwrap();
        fs::set_permissions(volumes.join(name), fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(volumes.join("settings/words.toml"), task(2)).unwrap();
    let mut server = Command::new("bwrap");
    server.args(["--unshare-user", "--uid", "64937", "--gid", "64937", "--unshare-pid", "--cap-drop", "ALL"]);
    server.args(["--die-with-parent", "--ro-bind", &root, "/", "--proc", "/proc", "--dev", "/dev"]);
    for (name, at) in [("data", "/data"), ("secrets", "/secrets"), ("settings", "/etc/keyhush")] {
        server.arg("--bind").arg(volumes.join(name)).arg(at);
    }
    server.args(["/usr/bin/keyhush", "serve", "--listen", "127.0.0.1:0", "--data", "/data", "--secrets", "/secrets"]);
    server.args(["/etc/keyhush/words.toml", "--self-signed", "localhost"]);
    let mut server = Killed::of(server.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut said = Vec::new();
    let address = loop {
        let Some(line) = lines.next() else {
            let why = said.join("\n");
            // Namespaces that this system does not give are no fault of the image.
            assert!(why.contains("bwrap: ") && why.contains("ermitted"), "{why}");
            println!("not tested: {why}");
            return;
        };
        match line.split_once("listening on ") {
            Some((_, address)) => break address.to_owned(),
            None => said.push(line),
        }
    };
    drop(std::thread::spawn(move || lines.for_each(drop)));
    fs::create_dir(here.join("typed")).unwrap();
    let url = format!("https://localhost:{}", address.rsplit_once(':').unwrap().1);
    let mut device = keyhush();
    device.current_dir(here).args([
        "device",
        "--server",
        &url,
        "--pin",
        "volumes/secrets/tls/cert.pem",
        "--token",
        "volumes/secrets/token",
    ]);
    let device = device.args(["--text", "typed", "--state", "state", "--for-seconds", "3"]).output().unwrap();
    let said = String::from_utf8_lossy(&device.stderr).into_owned();
    assert!(said.lines().any(|line| line == "enrolled"), "{said}");
}

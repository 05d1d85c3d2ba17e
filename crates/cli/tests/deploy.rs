//! Every command for root in docs/DEPLOY.md is run, in the order of the page, in a copy of this Debian system that is thrown away: a server is installed,
//! started, backed up, moved, restored, upgraded and removed. And what the page promises about itself.
//!
//! The copy is an overlay over this system with a network of its own, which takes root; elsewhere the test says that it did nothing. There is no systemd
//! in it: `systemctl` starts and stops the command of the unit, as its user.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::unit::{deploy, has};

/// What stands in for systemd.
const SYSTEMCTL: &str = r#"#!/bin/sh
# start, stop, restart and enable of keyhush.service; whatever else is asked is noted.
set -eu
echo "$*" >>/release/asked
unit=/etc/systemd/system/keyhush.service
stop() {
    [ -e /release/pid ] || return 0
    kill -TERM "$(cat /release/pid)" 2>/dev/null || true
    while kill -0 "$(cat /release/pid)" 2>/dev/null; do sleep 0.1; done
    rm /release/pid
}
start() {
    [ ! -e /release/pid ] || return 0
    . /etc/keyhush/serve.conf
    export KEYHUSH_SERVE
    command=$(sed -n 's/^ExecStart=//p' $unit)
    : >/release/journal
    setpriv --reuid=keyhush --regid=keyhush --clear-groups sh -c "umask 077; exec $command" >>/release/journal 2>&1 &
    echo $! >/release/pid
    for _ in $(seq 100); do
        if grep -q 'listening on' /release/journal; then return 0; fi
        kill -0 "$(cat /release/pid)" 2>/dev/null || break
        sleep 0.1
    done
    cat /release/journal >&2
    exit 1
}
case "$*" in
*.timer | daemon-reload) [ "$*" != "disable --now keyhush.service keyhush-backup.timer" ] || stop ;;
"enable --now keyhush.service" | "start keyhush.service") start ;;
"restart keyhush.service") stop; start ;;
"stop keyhush.service") stop ;;
*) echo "this systemctl knows no $*" >&2; exit 1 ;;
esac
"#;

/// What the page is run in.
const SANDBOX: &str = r#"
set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp -r "$2" "$1/root/release"
if [ "$3" = probe ]; then exec bwrap --bind "$1/root" / --unshare-net --unshare-pid --proc /proc --dev /dev true; fi
exec bwrap --bind "$1/root" / --dev /dev --proc /proc --unshare-net --unshare-pid --die-with-parent --chdir /release \
    --setenv PATH /release/stubs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -eu /release/page.sh
"#;

fn page() -> String {
    fs::read_to_string(deploy().join("../docs/DEPLOY.md")).unwrap()
}

/// The blocks of a language, one after the other.
fn blocks(page: &str, language: &str) -> String {
    let opens = format!("```{language}\n");
    page.split(&opens).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_page_is_run_from_an_empty_machine_to_the_removal() {
    for command in ["unshare", "bwrap", "setpriv", "runuser", "adduser", "deluser"] {
        if !has(command) {
            return;
        }
    }
    let place = tempfile::tempdir().unwrap();
    let (release, top) = (place.path().join("release"), place.path().join("top"));
    fs::create_dir_all(release.join("stubs")).unwrap();
    fs::create_dir(&top).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_keyhush"), release.join("keyhush")).unwrap();
    let copied = Command::new("cp").arg("-r").arg(deploy()).arg(&release).status().unwrap();
    assert!(copied.success());
    fs::write(release.join("stubs/systemctl"), SYSTEMCTL).unwrap();
    fs::write(release.join("stubs/journalctl"), "#!/bin/sh\ncat /release/journal\n").unwrap();
    assert!(Command::new("chmod").arg("-R").arg("755").arg(release.join("stubs")).status().unwrap().success());
    let commands = blocks(&page(), "root");
    assert!(commands.contains("keyhush restore") && commands.contains("deluser"), "{commands}");
    // Names are resolved as on the machine of a device, and what is left behind is looked for.
    let whole = format!(
        "echo '127.0.0.1 keyhush.example' >>/etc/hosts\nset -x\n{commands}\nset +x\n\
         test -s /srv/models/words/statement.md\nfor left in /var/lib/keyhush /etc/keyhush /usr/bin/keyhush; do test ! -e $left; done\n\
         if id keyhush 2>/dev/null; then exit 1; fi\necho all of it\n"
    );
    fs::write(release.join("page.sh"), whole).unwrap();
    let sandbox = |what: &str| {
        let mut sh = Command::new("unshare");
        sh.args(["-m", "sh", "-c", SANDBOX, "sandbox"]).arg(&top).arg(&release).arg(what);
        sh.stdin(Stdio::null()).output().unwrap()
    };
    let probe = sandbox("probe");
    if !probe.status.success() {
        println!("not tested: no copy of this system can be made: {}", String::from_utf8_lossy(&probe.stderr));
        return;
    }
    let ran = sandbox("run");
    let (out, said) =
        (String::from_utf8_lossy(&ran.stdout).into_owned(), String::from_utf8_lossy(&ran.stderr).into_owned());
    assert!(ran.status.success() && out.ends_with("all of it\n"), "{}\n{out}\n{said}", ran.status);
    for words in [
        "enrolled",
        "restored; nothing happened",
        "it is the newest state",
        "words: finished",
        "how many are lost is not known",
        "on the chain",
        "keys that devices know the server by",
        "new enrolment token",
    ] {
        assert!(out.contains(words) || said.contains(words), "{words:?} is not in\n{out}\n{said}");
    }
}

/// Its links lead somewhere, and each alert has its section.
#[test]
fn each_alert_has_a_section_that_says_what_to_do() {
    let page = page();
    let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### Alert: ")).collect();
    assert!(sections.len() > 5);
    let rules = deploy().join("prometheus/keyhush.rules.yml");
    let rules = fs::read_to_string(&rules).unwrap_or_default();
    let alerts: BTreeSet<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    if !alerts.is_empty() {
        assert_eq!(alerts, sections);
    }
    for section in page.split("### Alert: ").skip(1) {
        let text = section.split("\n## ").next().unwrap();
        assert!(text.len() > 150, "it says too little: {text}");
    }
    for link in page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = deploy().join("../docs").join(file);
        let text = if file.is_empty() { page.clone() } else { fs::read_to_string(&target).unwrap_or_default() };
        assert!(file.is_empty() || target.exists() || file.starts_with("http"), "{link}");
        let slug = |title: &str| -> String {
            let kept = title
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-')
                .collect::<String>();
            kept.trim().replace(' ', "-")
        };
        let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| slug(line.trim_start_matches('#')));
        assert!(anchor.is_empty() || titles.into_iter().any(|title| title == anchor), "{link}");
    }
}

/// The unit and the page use the same places as the package.
#[test]
fn the_files_of_deploy_say_the_same_places() {
    let unit = fs::read_to_string(deploy().join("keyhush.service")).unwrap();
    for place in
        ["/usr/bin/keyhush serve", "/var/lib/keyhush/data", "/var/lib/keyhush/secrets", "/etc/keyhush/serve.conf"]
    {
        assert!(unit.contains(place) && page().contains(place.split(' ').next().unwrap()), "{place}");
    }
    assert!(Path::new(&deploy()).join("Containerfile").exists());
}

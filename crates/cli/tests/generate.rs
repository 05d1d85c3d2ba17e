//! `keyhush generate`, and settings for programs.

use crate::toy::Toy;

#[test]
fn every_command_has_a_page_of_its_own() {
    let toy = Toy::new();
    let said = toy.ok(&["generate", "man", "share/man1"]);
    assert!(said.contains("share/man1/keyhush.1"), "{said}");
    for (page, wants) in [
        ("keyhush.1", "keyhush\\-train(1)"),
        ("keyhush-train.1", "\\-\\-track"),
        ("keyhush-privacy-epsilon.1", "\\-\\-noise\\-multiplier"),
        ("keyhush-generate-man.1", "man pages"),
    ] {
        let text = toy.read(&format!("share/man1/{page}"));
        assert!(text.contains(".TH") && text.contains(wants), "{page}: {text}");
    }
    // As many pages as there are commands: main.rs and its subcommands, none of help.
    let pages = std::fs::read_dir(toy.path("share/man1")).unwrap().count();
    assert!(pages > 40, "{pages}");
    assert!(!toy.path("share/man1/keyhush-help.1").exists());
    toy.write("file", "");
    assert!(toy.failed(&["generate", "man", "file"]).contains("file cannot be written"));
}

#[test]
fn shells_complete_what_there_is() {
    let toy = Toy::new();
    for (shell, wants) in
        [("bash", "keyhush__subcmd__train"), ("zsh", "#compdef keyhush"), ("fish", "complete -c keyhush")]
    {
        let script = toy.ok(&["generate", "completions", shell]);
        assert!(script.contains(wants) && script.contains("track"), "{shell}");
    }
    toy.refused(&["generate", "completions", "csh"]);
    // Where nobody reads it ends quietly, and where it cannot be written it says so.
    #[cfg(target_os = "linux")]
    for (line, code, words) in [
        ("{ \"$0\" generate completions bash; echo $? >code; } | true; exit $(cat code)", 0, ""),
        ("\"$0\" generate completions bash >/dev/full", 1, "error: the script cannot be written"),
        ("\"$0\" init --json >/dev/full", 1, "error: the output cannot be written"),
    ] {
        let mut shell = std::process::Command::new("sh");
        let out = shell.current_dir(toy.path(".")).args(["-c", line, env!("CARGO_BIN_EXE_keyhush")]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(code) && said.starts_with(words), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
    toy.refused(&["completions", "bash"]);
}

/// What programs read is what people read, without the words.
#[test]
fn settings_to_begin_with_come_as_json_too() {
    let toy = Toy::new();
    for kind in ["gaussian", "tree"] {
        let text = toy.ok(&["init", "--kind", kind]);
        let settings: serde_json::Value = serde_json::from_str(&toy.ok(&["init", "--kind", kind, "--json"])).unwrap();
        assert_eq!(settings["privacy"]["mechanism"], kind);
        let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(" = ")).count();
        let of_sections =
            settings.as_object().unwrap().values().map(|value| value.as_object().map_or(1, serde_json::Map::len));
        assert_eq!(of_sections.sum::<usize>(), lines, "{text}");
    }
    let both = toy.ok(&["init", "--json", "--out", "begin.toml"]);
    assert_eq!(both, toy.ok(&["init", "--json"]));
    assert_eq!(toy.read("begin.toml"), toy.ok(&["init"]));
}

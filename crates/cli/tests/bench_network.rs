//! `keyhush bench network`: real processes, and nothing is lost, also where the server is killed.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::process::Command;

use serde_json::Value;

fn network(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyhush"));
    command.args(["bench", "network", "--patience", "120", "--json"]).args(arguments);
    let small = ["model.vocabulary=100", "model.hidden=6", "model.embedding=6"];
    command.args(small.iter().flat_map(|set| ["--set", set]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every round was released, nothing was lost or doubled, and threads come to the same model.
fn assert_nothing_is_lost(took: &Value, rounds: u64, goal: u64) {
    let parts = &took["participations"];
    assert_eq!(took["rounds_closed"], rounds, "{took:#}");
    assert_eq!((&parts["lost"], &parts["doubled"]), (&Value::from(0), &Value::from(0)), "{took:#}");
    assert!(parts["recorded"].as_u64().unwrap() >= rounds * goal, "{took:#}");
    assert!(parts["thanked"].as_u64().unwrap() > 0, "{took:#}");
    assert_eq!(took["digests"]["equal"], true, "{took:#}");
    assert_eq!(took["digests"]["server"], took["digests"]["threads"], "{took:#}");
    assert!(took["bytes_up"].as_u64().unwrap() > 0 && took["bytes_down"].as_u64().unwrap() > 0, "{took:#}");
    assert!(took["server"]["cpu_s"].as_f64().unwrap() > 0.0, "{took:#}");
    assert!(took["server"]["peak_mb"].as_f64().unwrap() > 1.0, "{took:#}");
}

#[test]
fn plain_rounds_of_real_processes_lose_nothing() {
    let took = network(&["--devices", "6", "--goal", "3", "--rounds", "3"]);
    assert_nothing_is_lost(&took, 3, 3);
    assert_eq!((&took["rounds_failed"], &took["kills"]), (&Value::from(0), &Value::from(0)), "{took:#}");
    let round = &took["round"];
    assert_eq!(round["measured"], 2, "{took:#}");
    let of = |name: &str| round[name].as_f64().unwrap();
    assert!((of("training_s") + of("overhead_s") - of("wall_s")).abs() < 1e-6, "{took:#}");
}

#[test]
fn a_round_does_not_wait_for_more_devices_than_there_are() {
    // Three would be asked for two reports; the window for that is 10 s, and there are only two.
    let took = network(&["--devices", "2", "--goal", "2", "--rounds", "3"]);
    assert_nothing_is_lost(&took, 3, 2);
    assert!(took["round"]["wall_s"].as_f64().unwrap() < 5.0, "{took:#}");
}

#[test]
fn secure_rounds_of_real_processes_lose_nothing() {
    let small = ["--set", "secagg.corrupted=0"];
    let took = network(&[&["--devices", "6", "--goal", "3", "--rounds", "2", "--secagg"][..], &small].concat());
    assert_nothing_is_lost(&took, 2, 3);
    assert_eq!(took["secagg"], true);
}

#[test]
fn a_server_that_is_killed_loses_nothing() {
    let took = network(&["--devices", "24", "--goal", "18", "--rounds", "6", "--kill-server-every", "2"]);
    assert!(took["kills"].as_u64().unwrap() >= 1, "{took:#}");
    assert_nothing_is_lost(&took, 6, 18);
    let restarts = &took["restarts"];
    let listening_s = restarts["listening_s"].as_f64().unwrap();
    assert!(listening_s > 0.0 && listening_s < 5.0, "{took:#}");
    assert!(restarts["first_release_s"].as_f64().is_none_or(|s| s > listening_s), "{took:#}");
}

/// The same command with 2,000 is in bench/runs/2026-11-19-slow-connections. What honest requests take here is mostly what else the machine does.
#[test]
fn slow_connections_are_closed_in_ten_seconds_and_honest_devices_are_answered() {
    for tls in [&[][..], &["--tls"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyhush"));
        command.args(["bench", "slow-connections", "--slow", "150", "--requests", "200", "--json"]).args(tls);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let took: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&took["closed"], &took["tls"]), (&Value::from(150), &Value::from(!tls.is_empty())), "{took:#}");
        let open_s = took["longest_open_s"].as_f64().unwrap();
        assert!((4.0..10.0).contains(&open_s), "{took:#}");
        assert!(took["meanwhile"]["requests"].as_u64().unwrap() > 100, "{took:#}");
        assert!(took["meanwhile"]["median_ms"].as_f64().unwrap() < 250.0, "{took:#}");
    }
}

/// Devices as people's phones: most sleep, they lose their network, are slow, crash in the midst of a part, are taken up by their owners, and one in
/// ten has a clock that is years off. Nothing of what they were thanked for is lost, nobody counts twice, and rounds close.
#[test]
fn a_realistic_fleet_loses_nothing_at_a_real_server_that_is_killed() {
    let fleet =
        ["--devices", "300", "--goal", "10", "--rounds", "3", "--behaviour", "realistic", "--day-seconds", "10"];
    let windows = ["devices.begin_with=60", "devices.select_seconds=0.5", "devices.report_seconds=3"];
    let windows: Vec<&str> = windows.iter().flat_map(|set| ["--set", *set]).collect();
    let took = network(&[&fleet[..], &windows, &["--kill-server-every", "1"]].concat());
    assert_nothing_is_lost(&took, 3, 10);
    let of = |name: &str| took[name].as_u64().unwrap();
    assert!(of("devices_crashed") + of("devices_left") > 0 && of("kills") > 0, "{took:#}");
    assert!(took["participations"]["given"].as_u64().unwrap() >= 30, "{took:#}");
}

#[test]
fn ready_made_reports_load_a_server_and_are_not_played_again() {
    let took = network(&["--devices", "6", "--goal", "3", "--rounds", "2", "--ready-made"]);
    assert_eq!(took["rounds_closed"], 2, "{took:#}");
    assert_eq!((&took["digests"]["threads"], &took["digests"]["equal"]), (&Value::Null, &Value::Null), "{took:#}");
    assert!(took["digests"]["not_replayed"].as_str().unwrap().contains("ready-made"), "{took:#}");
    assert_eq!((&took["participations"]["lost"], &took["participations"]["doubled"]), (&0.into(), &0.into()));
}

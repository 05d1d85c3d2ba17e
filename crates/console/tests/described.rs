//! What the console says of itself is what it does: every answer of a real server has the status, the type and the shape that `/openapi.json` gives it,
//! and every endpoint lets in those whose role is enough, and nobody else.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::collections::BTreeSet;

use keyhush_console::access::{Access, Role};
use ledger::{Approval, SigningKey};
use serde_json::{Value, json};

use crate::{
    served::{Answer, Served},
    small_runs::{TASK, with},
};

/// The description, and which of its answers were seen.
struct Described {
    document: Value,
    seen: BTreeSet<(String, u16)>,
}

impl Described {
    fn of(served: &Served) -> Self {
        let document = served.ask(None, "GET", "/openapi.json", None).json();
        Self { document, seen: BTreeSet::new() }
    }

    /// Every operation: method, path, role.
    fn operations(&self) -> Vec<(String, String, Option<Role>)> {
        let paths = self.document["paths"].as_object().unwrap();
        let of_path = paths.iter().flat_map(|(path, operations)| {
            operations.as_object().unwrap().iter().map(move |(method, operation)| {
                let role = operation["x-role"].as_str().map(|role| role.parse().unwrap());
                (method.to_uppercase(), path.clone(), role)
            })
        });
        of_path.collect()
    }

    /// The answer is one that the description has for this operation.
    fn check(&mut self, method: &str, path: &str, answer: &Answer) {
        let operation = &self.document["paths"][path][method.to_lowercase()];
        let said = &operation["responses"][answer.status.to_string()];
        let shown = String::from_utf8_lossy(&answer.body);
        assert!(said.is_object(), "{method} {path}: {} is not described: {shown}", answer.status);
        let kinds = said["content"].as_object().unwrap();
        let kind = answer.header("content-type");
        let content = kinds.get(kind).or_else(|| kinds.get("*/*"));
        let content = content.unwrap_or_else(|| panic!("{method} {path}: {kind} is not described"));
        if let Some(schema) = content.get("schema") {
            let whole = json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "components": self.document["components"],
                "allOf": [schema],
            });
            let validator = jsonschema::validator_for(&whole).unwrap();
            let value = answer.json();
            let wrong: Vec<String> =
                validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
            assert!(wrong.is_empty(), "{method} {path}: {wrong:#?} in {value:#}");
        }
        self.seen.insert((format!("{method} {path}"), answer.status));
        has_headers(answer);
    }
}

/// The one answer that does not end: what it tells is read where pages are (`keyhush` has the test).
const EVENTS: &str = "/api/events";

/// What every answer of a console has.
fn has_headers(answer: &Answer) {
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(answer.header(name), value, "{answer:?}");
    }
    assert!(answer.header("content-security-policy").starts_with("default-src 'none'"), "{answer:?}");
    let id = answer.header("x-request-id");
    assert!(id.len() == 16 && id.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
    if answer.status >= 400 {
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert_eq!(answer.json()["request"], id, "a problem names its request");
        assert!(answer.json()["next"].as_str().is_some_and(|next| next.len() > 10), "and says what to do next");
    }
}

/// A task that waits for devices.
fn task() -> String {
    with(TASK, &["noise_seed=", "participation.max_participations=3"])
}

fn realm(served: &Served) -> [u8; 32] {
    let about = served.ask(Some(Role::Viewer), "GET", "/api/server", None).json();
    ledger::unhex(about["realm"].as_str().unwrap()).unwrap()
}

/// The approval of a task by an officer.
fn approved(name: &str, settings: &str, realm: &[u8; 32], officer: &SigningKey) -> Approval {
    let config = federated::config::Document::new(settings, &[]).unwrap().config().unwrap();
    let checked = server::tasks::planned(name, config, realm).unwrap();
    assert!(checked.holds && checked.epsilon.is_finite());
    Approval::sign(&checked.plan, checked.vouched, name, realm, officer).unwrap()
}

#[test]
fn every_answer_of_every_endpoint_is_as_it_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let officer = SigningKey::from_seed(&[7; 32]);
    let served = Served::start(folder.path(), &[officer.verifying_key()]);
    let mut described = Described::of(&served);
    let ask = |described: &mut Described, role: Role, method: &str, path: &str, name: &str, body: Option<&Value>| {
        let answer = served.ask(Some(role), method, &path.replace("{name}", name), body);
        described.check(method, path, &answer);
        answer
    };
    let answer = served.ask(None, "GET", "/openapi.json", None);
    described.check("GET", "/openapi.json", &answer);
    let server = ask(&mut described, Role::Viewer, "GET", "/api/server", "", None);
    assert_eq!(server.json()["officers"], json!([officer.verifying_key().to_string()]));
    assert_eq!(ask(&mut described, Role::Viewer, "GET", "/api/tasks", "", None).json(), json!({ "tasks": [] }));
    ask(&mut described, Role::Operator, "GET", "/metrics", "", None);

    // Created as it should be, and in every wrong way.
    let realm = realm(&served);
    let (good, text) = (approved("words", &task(), &realm, &officer), task());
    let new = |name: &str, settings: &str, approval: Option<&Approval>| {
        let mut new = json!({ "name": name, "settings": settings });
        if let Some(approval) = approval {
            new["approval"] = serde_json::to_value(approval).unwrap();
        }
        new
    };
    let stranger = approved("words", &task(), &realm, &SigningKey::from_seed(&[8; 32]));
    let elsewhere = approved("words", &task(), &[1; 32], &officer);
    let longer = with(&task(), &["rounds=7"]);
    let missing = with(&task(), &["data.public_text=\"/nowhere/text\""]);
    let relative = missing.replace("/nowhere/text", "text");
    let create =
        |described: &mut Described, body: &Value| ask(described, Role::Officer, "POST", "/api/tasks", "", Some(body));
    for (body, status, words) in [
        (json!({}), 400, "name"),
        (json!({ "name": "words", "settings": text, "more": 1 }), 400, "more"),
        (new("../words", &text, Some(&good)), 400, "not a valid task name"),
        (new("words", "rounds = 3", Some(&good)), 422, "data"),
        (new("words", &missing, Some(&good)), 422, "/nowhere/text is missing"),
        (new("words", &relative, Some(&good)), 422, "whole path"),
        (new("words", &text, None), 422, "no privacy officer has approved it"),
        (new("words", &text, Some(&stranger)), 422, "none of the officers"),
        (new("words", &text, Some(&elsewhere)), 422, "for the server 0101"),
        (new("others", &text, Some(&good)), 422, "it is for the task"),
        (new("words", &longer, Some(&good)), 422, "did not sign this plan"),
    ] {
        let refused = create(&mut described, &body);
        let said = refused.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!((refused.status, said.contains(words)), (status, true), "{words}: {said}");
    }
    let none = ask(&mut described, Role::Viewer, "GET", "/api/tasks", "", None).json();
    assert_eq!(none, json!({ "tasks": [] }), "nothing of all that is left");
    let created = create(&mut described, &new("words", &text, Some(&good)));
    assert_eq!(created.status, 201, "{}", created.json());
    for again in [new("words", &text, Some(&good)), new("WORDS", &text, None), new("words", &longer, None)] {
        let refused = create(&mut described, &again);
        assert_eq!(refused.status, 409, "an approval is used once: {}", refused.json());
    }

    served.wait_for("/api/tasks/words", |answer| answer.json()["ledger"].is_object());
    served.wait_for("/api/dashboard/words", |answer| answer.status == 200);
    for role in [Role::Viewer, Role::Operator] {
        let told = ask(&mut described, role, "GET", "/api/dashboard", "", None).json();
        assert_eq!((&told["role"], &told["names"]), (&json!(role), &json!(["words"])));
        let detail = ask(&mut described, role, "GET", "/api/dashboard/{name}", "words", None).json();
        assert_eq!(detail["ledger"]["entries"], 1, "{detail}");
    }
    ask(&mut described, Role::Operator, "GET", "/api/dashboard/{name}/operations", "words", None);
    for role in [Role::Viewer, Role::Operator, Role::Officer] {
        let shown = ask(&mut described, role, "GET", "/api/tasks/{name}", "words", None).json();
        assert_eq!(shown["operators"].is_object(), role > Role::Viewer, "{shown}");
        ask(&mut described, role, "GET", "/api/tasks", "", None);
    }
    let unknown = ["nobody", "..%2F..%2Fkeyhush.sqlite", "%00", "words.toml", "%ff"];
    for (method, path) in [
        ("GET", "/api/tasks/{name}"),
        ("GET", "/api/tasks/{name}/export"),
        ("GET", "/api/dashboard/{name}"),
        ("GET", "/api/dashboard/{name}/operations"),
        ("POST", "/api/tasks/{name}/pause"),
        ("POST", "/api/tasks/{name}/resume"),
        ("POST", "/api/tasks/{name}/stop"),
    ] {
        for name in unknown {
            let answer = ask(&mut described, Role::Officer, method, path, name, None);
            assert_eq!(answer.status, if name == "%ff" { 400 } else { 404 }, "{method} {path} {name}");
        }
    }

    // Taken home while it runs, and when it is over.
    let exports = |described: &mut Described, role| {
        let listed = ask(described, role, "GET", "/api/tasks/{name}/export", "words", None).json();
        let names = listed["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let export = |described: &mut Described, role, file: &str| {
        let path = "/api/tasks/{name}/export/{file}";
        let answer = served.ask(Some(role), "GET", &format!("/api/tasks/words/export/{file}"), None);
        described.check("GET", path, &answer);
        answer
    };
    let running = exports(&mut described, Role::Operator);
    assert_eq!(running, ["ledger.jsonl", "ledger.jsonl.head", "statement.md", "statement.json", "metrics.jsonl"]);
    assert_eq!(export(&mut described, Role::Operator, "model.safetensors").status, 404, "there is no model yet");
    assert_eq!(export(&mut described, Role::Officer, "..%2Fkeyhush.sqlite").status, 404);
    let statement = export(&mut described, Role::Viewer, "statement.json").json();
    assert_eq!(statement["approval"]["by"], officer.verifying_key().to_string());
    for order in ["pause", "resume", "stop"] {
        let path = format!("/api/tasks/{{name}}/{order}");
        assert_eq!(ask(&mut described, Role::Operator, "POST", &path, "words", None).status, 200);
    }
    served.wait_for("/api/tasks/words", |answer| answer.json()["state"] == "over");
    // Moments after its ledger is closed its model is there.
    served.wait_for("/api/tasks/words/export", |answer| {
        answer.json()["files"].as_array().unwrap().iter().any(|file| file["name"] == "README.md")
    });
    let refused = ask(&mut described, Role::Operator, "POST", "/api/tasks/{name}/resume", "words", None);
    assert_eq!(refused.status, 409, "what is over stays over");
    let over = exports(&mut described, Role::Viewer);
    assert!(over.contains(&"model.safetensors".to_owned()), "{over:?}");
    let all: BTreeSet<String> = exports(&mut described, Role::Operator).into_iter().collect();
    let hidden: Vec<&String> = all.iter().filter(|name| !over.contains(name)).collect();
    assert_eq!(hidden, ["ledger.jsonl.participations"], "who took part is for operators");
    assert_eq!(export(&mut described, Role::Viewer, "ledger.jsonl.participations").status, 404);
    for file in &over {
        let answer = export(&mut described, Role::Viewer, file);
        assert!(answer.status == 200 && (!answer.body.is_empty() || file == "metrics.jsonl"), "{file}");
    }

    // Every operation was seen to succeed.
    for (method, path, _) in described.operations().into_iter().filter(|(_, path, _)| path != EVENTS) {
        let seen =
            described.seen.iter().any(|(operation, status)| *operation == format!("{method} {path}") && *status < 300);
        assert!(seen, "no successful answer of {method} {path} was seen");
    }
}

#[test]
fn every_endpoint_lets_in_a_role_that_is_enough_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path(), &[]);
    let mut described = Described::of(&served);
    let operations = described.operations();
    assert!(operations.iter().filter(|(.., role)| role.is_some()).count() >= 8, "{operations:?}");
    for (method, path, needs) in operations {
        let Some(needs) = needs else { continue };
        let place = path.replace("{name}", "words").replace("{file}", "ledger.jsonl");
        let answer = served.ask(None, &method, &place, None);
        assert_eq!(answer.status, 401, "{method} {path} without a token");
        assert!(answer.header("www-authenticate").starts_with("Bearer"), "{answer:?}");
        described.check(&method, &path, &answer);
        for role in Role::ALL.into_iter().filter(|_| path != EVENTS) {
            let answer = served.ask(Some(role), &method, &place, Some(&json!({})));
            assert_eq!(answer.status == 403, role < needs, "{method} {path} as {role}: {answer:?}");
            described.check(&method, &path, &answer);
        }
        for wrong in ["Bearer", "Bearer ", "Basic YTpi", "Bearer keyhush_00", "Bearer \u{e9}"] {
            let request = format!(
                "{method} {place} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: {wrong}\r\ncontent-length: 0\r\n\r\n"
            );
            assert_eq!(served.send(request.as_bytes()).status, 401, "{method} {path} with {wrong:?}");
        }
    }
}

#[test]
fn what_is_not_there_too_long_or_of_another_kind_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path(), &[]);
    let token = served.token(Role::Officer);
    for (method, path, status) in [
        ("GET", "/api", 404),
        ("GET", "/api/nothing", 404),
        ("DELETE", "/api/tasks", 405),
        ("PUT", "/openapi.json", 405),
    ] {
        let answer = served.ask(Some(Role::Officer), method, path, None);
        assert_eq!(answer.status, status, "{method} {path}");
        has_headers(&answer);
    }
    assert_eq!(served.ask(None, "DELETE", "/api/tasks", None).header("allow"), "GET, POST, HEAD");
    let post = |kind: &str, length: usize, body: &[u8]| {
        let head = format!(
            "POST /api/tasks HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n{kind}content-length: {length}\r\n\r\n"
        );
        served.send(&[head.as_bytes(), body].concat())
    };
    let json = "content-type: application/json\r\n";
    for (kind, length, body, status) in [
        (json, 0, &b""[..], 400),
        (json, 3, b"{]}", 400),
        ("", 2, b"{}", 415),
        ("content-type: text/plain\r\n", 2, b"{}", 415),
        ("content-type: application/json\r\ncontent-encoding: gzip\r\n", 2, b"{}", 415),
        (json, (1 << 20) + 1, b"{", 413),
        (json, usize::MAX >> 1, b"{", 413),
    ] {
        let answer = post(kind, length, body);
        assert_eq!(answer.status, status, "{kind:?} {length}: {answer:?}");
        has_headers(&answer);
    }
    // The protocol of devices answers as it always did.
    assert_eq!(served.ask(None, "GET", "/v1/hello", None).header("content-type"), "application/x-protobuf");
    assert_eq!(served.ask(None, "GET", "/v1/nothing", None).header("content-type"), "application/x-protobuf");
}

#[test]
fn a_token_that_is_revoked_is_refused_at_once_and_a_damaged_file_lets_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path(), &[]);
    let secrets = folder.path().join("secrets");
    assert_eq!(served.ask(Some(Role::Viewer), "GET", "/api/tasks", None).status, 200);
    Access::in_secrets(&secrets).revoke("viewer").unwrap();
    assert_eq!(served.ask(Some(Role::Viewer), "GET", "/api/tasks", None).status, 401);
    assert_eq!(served.ask(Some(Role::Operator), "GET", "/api/tasks", None).status, 200);
    std::fs::write(secrets.join("access.json"), "{").unwrap();
    let answer = served.ask(Some(Role::Operator), "GET", "/api/tasks", None);
    assert_eq!(answer.status, 503, "{answer:?}");
    has_headers(&answer);
}

/// Two officers at a time: one task of each name comes of it, and each is told what became of it.
#[test]
fn of_two_tasks_of_one_name_that_are_created_at_once_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path(), &[]);
    let create = |rounds: &str| {
        let new = json!({ "name": "words", "settings": with(&task(), &[rounds]) });
        served.ask(Some(Role::Officer), "POST", "/api/tasks", Some(&new)).status
    };
    let statuses = std::thread::scope(|scope| {
        let all: Vec<_> = ["rounds=5", "rounds=6", "rounds=7"].map(|rounds| scope.spawn(move || create(rounds))).into();
        let mut all: Vec<u16> = all.into_iter().map(|one| one.join().unwrap()).collect();
        all.sort_unstable();
        all
    });
    assert_eq!(statuses, [201, 409, 409]);
}

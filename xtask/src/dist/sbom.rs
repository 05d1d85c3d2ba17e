//! The list of everything in a program (SBOM), for those who look up whether something in it is known to be broken: CycloneDX 1.6.
//!
//! It has no random number and no time of its own, so that it is the same for the same commit.

use anyhow::Result;
use serde_json::{Value, json};

use super::commit::Commit;
use super::crates::Crate;
use super::digest::sha256;
use super::machine::Machine;

/// What built the program.
pub(crate) struct BuiltBy<'a> {
    pub(crate) rust: &'a str,
    pub(crate) zig: &'a str,
}

/// The list for one program.
pub(crate) fn write(
    machine: &Machine,
    program: &[u8],
    crates: &[Crate],
    commit: &Commit,
    by: &BuiltBy<'_>,
) -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let (mut components, mut dependencies) = (Vec::new(), Vec::new());
    for one in crates {
        let mut uses: Vec<String> = one.uses.iter().map(|(name, version)| reference(name, version)).collect();
        if let Some(c) = one.c_code()? {
            components.push(component(
                "library",
                c.name,
                &c.version,
                c.license,
                &format!("pkg:generic/{}@{}", c.name, c.version),
            ));
            uses.push(reference(c.name, &c.version));
            dependencies.push(json!({ "ref": reference(c.name, &c.version) }));
        }
        if one.name != "keyhush" {
            components.push(of_crate(one));
        }
        dependencies.push(json!({ "ref": reference(&one.name, &one.version), "dependsOn": uses }));
    }
    components.push(component(
        "library",
        "rust-std",
        by.rust,
        "MIT OR Apache-2.0",
        &format!("pkg:generic/rust-std@{}", by.rust),
    ));
    dependencies.push(json!({ "ref": reference("rust-std", by.rust) }));
    for list in [&mut components, &mut dependencies] {
        list.sort_by_key(|value| ["bom-ref", "ref"].map(|key| value[key].as_str().unwrap_or_default().to_owned()));
    }

    let mut itself =
        component("application", "keyhush", version, "MIT OR Apache-2.0", &format!("pkg:generic/keyhush@{version}"));
    itself["hashes"] = json!([{ "alg": "SHA-256", "content": sha256(program) }]);
    itself["properties"] = json!([
        { "name": "keyhush:target", "value": machine.triple },
        { "name": "keyhush:commit", "value": commit.id },
    ]);
    let tool = |name: &str, version: &str| json!({ "type": "application", "name": name, "version": version });
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": commit.time,
            "tools": { "components": [tool("rustc", by.rust), tool("zig", by.zig)] },
            "component": itself,
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

fn of_crate(one: &Crate) -> Value {
    let Crate { name, version, license, checksum, .. } = one;
    let Some(checksum) = checksum else {
        let mut ours = component("library", name, version, license, "");
        ours.as_object_mut().map(|fields| fields.remove("purl"));
        return ours;
    };
    let mut described = component("library", name, version, license, &format!("pkg:cargo/{name}@{version}"));
    described["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    described
}

fn component(kind: &str, name: &str, version: &str, license: &str, purl: &str) -> Value {
    json!({
        "type": kind,
        "bom-ref": reference(name, version),
        "name": name,
        "version": version,
        "licenses": [{ "expression": license }],
        "purl": purl,
    })
}

fn reference(name: &str, version: &str) -> String {
    format!("{name}@{version}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::dist::machine::MACHINES;

    const BY: BuiltBy<'_> = BuiltBy { rust: "1.95.0", zig: "0.17.0" };

    fn commit() -> Commit {
        Commit {
            id: "c".repeat(40),
            seconds: 1_700_000_000,
            time: "2023-11-14T22:13:20Z".to_owned(),
            mail_time: String::new(),
        }
    }

    fn one(name: &str, checksum: Option<&str>, uses: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: "MIT".to_owned(),
            checksum: checksum.map(str::to_owned),
            folder: std::path::PathBuf::new(),
            uses: uses.iter().map(|used| ((*used).to_owned(), "1.0.0".to_owned())).collect(),
        }
    }

    #[test]
    fn crates_are_listed_with_checksum_and_licence_and_ours_without_an_address_in_a_registry() {
        let crates =
            [one("keyhush", None, &["keyhush-lm"]), one("keyhush-lm", None, &["tar"]), one("tar", Some("aa"), &[])];
        let text = write(&MACHINES[0], b"abc", &crates, &commit(), &BY).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let find = |name: &str| list["components"].as_array().unwrap().iter().find(|c| c["name"] == name).cloned();
        let tar = find("tar").unwrap();
        assert_eq!((&tar["purl"], &tar["hashes"][0]["content"]), (&json!("pkg:cargo/tar@1.0.0"), &json!("aa")));
        assert_eq!(find("keyhush-lm").unwrap().get("purl"), None, "nobody publishes this in a registry");
        assert!(find("keyhush").is_none(), "the program is what the list is about");
        assert_eq!(list["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
        let itself = &list["metadata"]["component"]["hashes"][0]["content"];
        assert_eq!(itself, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let refs: Vec<_> = list["dependencies"].as_array().unwrap().iter().map(|d| d["ref"].clone()).collect();
        assert_eq!(refs, ["keyhush-lm@1.0.0", "keyhush@1.0.0", "rust-std@1.95.0", "tar@1.0.0"]);
    }

    /// Each reference of the real list leads to a component, and no component is there twice.
    #[test]
    fn the_list_of_the_program_is_closed() {
        let crates = crate::dist::crates::of(MACHINES[1].triple).unwrap();
        let text = write(&MACHINES[1], b"abc", &crates, &commit(), &BY).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let text_of = |value: &Value| value.as_str().unwrap().to_owned();
        let components = list["components"].as_array().unwrap();
        let known: BTreeSet<String> = components.iter().map(|c| text_of(&c["bom-ref"])).collect();
        assert_eq!(known.len(), components.len());
        assert!(known.iter().any(|name| name.starts_with("sqlite@3.")), "{known:?}");
        for dependency in list["dependencies"].as_array().unwrap() {
            let used = dependency["dependsOn"].as_array().into_iter().flatten();
            for name in used.chain([&dependency["ref"]]).map(text_of) {
                assert!(known.contains(&name) || name.starts_with("keyhush@"), "{name} is used and not listed");
            }
        }
    }
}

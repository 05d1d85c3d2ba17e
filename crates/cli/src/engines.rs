//! The engines built into this program, which compute users' updates. A crate that provides one has a line here.

use federated::engine::{EngineKind, Precision, THREADS};

use crate::{failure::BadInput, without};

/// All of them; the first is taken by default.
static ENGINES: &[EngineKind] = &[
    THREADS,
    #[cfg(feature = "cuda")]
    cuda::CUDA,
];

/// Engines that a program has with more features than this one, and what it was built without.
static MISSING: &[(&str, &str)] = &[
    #[cfg(not(feature = "cuda"))]
    ("cuda", without::CUDA),
];

/// Help for the flag that names one; `more` follows the names.
pub(crate) fn help(trains: &str, more: &str) -> String {
    let there = ENGINES.iter().map(|kind| format!("{} ({})", kind.name, kind.about));
    let missing = MISSING.iter().map(|(name, _)| format!("{name} (not in this program)"));
    let names: Vec<String> = there.chain(missing).collect();
    format!("Engine that trains {trains}: {}{more} [default: {}]", names.join(", "), ENGINES[0].name)
}

/// Help for the flag that names a precision.
pub(crate) fn precision_help(more: &str) -> String {
    let of = |kind: &EngineKind| format!("{} with --engine {}", precisions(kind), kind.name);
    let all: Vec<String> = ENGINES.iter().map(of).collect();
    format!("Precision of matrix products{more}: {} [default: the first that is listed for the engine]", all.join("; "))
}

/// What an engine can compute in.
pub(crate) fn precisions(kind: &EngineKind) -> String {
    kind.precisions.iter().map(|precision| precision.name()).collect::<Vec<_>>().join(", ")
}

/// The one that people ask for by this name.
pub(crate) fn named(name: Option<&str>) -> Result<EngineKind, BadInput> {
    let Some(name) = name else { return Ok(ENGINES[0]) };
    if let Some((_, what)) = MISSING.iter().find(|(missing, _)| *missing == name) {
        return Err(BadInput::wrong("engine", without::missing(what)));
    }
    ENGINES.iter().find(|kind| kind.name == name).copied().ok_or_else(|| {
        let there: Vec<String> = ENGINES.iter().map(|kind| format!("{} ({})", kind.name, kind.about)).collect();
        BadInput::wrong("engine", format!("no engine is called {name:?}; choose one of: {}", there.join(", ")))
    })
}

/// What the products of an engine are computed in, by its name.
pub(crate) fn precision(engine: EngineKind, name: Option<&str>) -> Result<Precision, BadInput> {
    let Some(name) = name else { return Ok(engine.precisions[0]) };
    let known = Precision::ALL.into_iter().find(|precision| precision.name() == name);
    known.filter(|precision| engine.precisions.contains(precision)).ok_or_else(|| has_no_precision(engine, name, known))
}

fn has_no_precision(engine: EngineKind, name: &str, known: Option<Precision>) -> BadInput {
    let own = precisions(&engine);
    let others = ENGINES.iter().filter(|other| known.is_some_and(|precision| other.precisions.contains(&precision)));
    let others: Vec<String> = others.map(|other| format!("--engine {}", other.name)).collect();
    let why = match others.is_empty() {
        true => format!("no precision is called {name:?}; choose one of: {own}"),
        false => format!("can only be {name} with {}; --engine {} computes in {own}", others.join(" or "), engine.name),
    };
    BadInput::wrong("precision", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: EngineKind = EngineKind { name: "new", precisions: &[Precision::Tf32, Precision::F32], ..THREADS };

    /// Also an engine that nobody has thought of yet.
    #[test]
    fn an_engine_takes_no_precision_that_it_does_not_have() {
        let said = |engine, name| precision(engine, Some(name)).unwrap_err().to_string();
        assert_eq!(precision(NEW, None).unwrap(), Precision::Tf32);
        assert_eq!(precision(NEW, Some("f32")).unwrap(), Precision::F32);
        let cuda = ENGINES.iter().any(|kind| kind.name == "cuda");
        let refused = said(NEW, "f16");
        assert!(refused.contains("f16") && refused.ends_with("tf32, f32"), "{refused}");
        assert_eq!(cuda, refused.contains("can only be f16 with --engine cuda; --engine new computes in"), "{refused}");
        assert!(said(NEW, "f64").contains("no precision is called \"f64\"; choose one of: tf32, f32"));
        let threads = named(None).unwrap();
        assert_eq!(precision(threads, Some("f32")).unwrap(), Precision::F32);
        assert!(said(threads, "f16").ends_with("f32"));
    }

    #[test]
    fn help_names_every_engine_and_its_precisions() {
        let (engines, precisions) = (help("the users", ""), precision_help(""));
        for kind in ENGINES {
            assert!(engines.contains(&format!("{} ({})", kind.name, kind.about)), "{engines}");
            let own = precisions.split("; ").find(|part| part.contains(&format!("--engine {}", kind.name))).unwrap();
            assert!(kind.precisions.iter().all(|precision| own.contains(precision.name())), "{precisions}");
        }
        assert!(MISSING.iter().all(|(name, _)| engines.contains(name)), "{engines}");
    }

    #[test]
    fn every_engine_has_a_name_of_its_own_and_a_precision() {
        for (number, kind) in ENGINES.iter().enumerate() {
            assert!(ENGINES[..number].iter().all(|other| other.name != kind.name));
            assert!(!kind.precisions.is_empty());
            assert_eq!(named(Some(kind.name)).unwrap().name, kind.name);
        }
    }
}

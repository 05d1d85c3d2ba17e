//! The engines built into this program, which compute users' updates. A crate that provides one has a line here.

use federated::engine::{EngineKind, Precision, THREADS};

use crate::{failure::BadInput, without};

/// All of them; the first is taken by default.
static ENGINES: &[Listed] = &[
    Listed { kind: THREADS, precisions: &[Precision::F32], clips_gradients_at: 1.0 },
    #[cfg(feature = "cuda")]
    Listed { kind: cuda::CUDA, precisions: &Precision::ALL, clips_gradients_at: 0.0 },
];

/// Engines that a program has with more features than this one, and what it was built without.
static MISSING: &[(&str, &str)] = &[
    #[cfg(not(feature = "cuda"))]
    ("cuda", without::CUDA),
];

/// An engine, and what people can choose of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    /// The engine.
    pub(crate) kind: EngineKind,
    /// What its products can be computed in; the first is taken by default.
    precisions: &'static [Precision],
    /// The norm that `keyhush pretrain` clips the gradient of a batch to by default; 0 for no clipping. Gradients of models that learn are
    /// mostly shorter than 1.
    pub(crate) clips_gradients_at: f32,
}

/// The one that people ask for by this name.
pub(crate) fn named(name: Option<&str>) -> Result<Listed, BadInput> {
    let Some(name) = name else { return Ok(ENGINES[0]) };
    if let Some((_, what)) = MISSING.iter().find(|(missing, _)| *missing == name) {
        return Err(BadInput::wrong("engine", without::missing(what)));
    }
    ENGINES.iter().find(|listed| listed.kind.name == name).copied().ok_or_else(|| {
        let there: Vec<String> =
            ENGINES.iter().map(|Listed { kind, .. }| format!("{} ({})", kind.name, kind.about)).collect();
        BadInput::wrong("engine", format!("no engine is called {name:?}; choose one of: {}", there.join(", ")))
    })
}

impl Listed {
    /// What its products are computed in, by its name.
    pub(crate) fn precision(self, name: Option<&str>) -> Result<Precision, BadInput> {
        let Some(name) = name else { return Ok(self.precisions[0]) };
        let known = Precision::ALL.into_iter().find(|precision| precision.name() == name);
        known.filter(|precision| self.precisions.contains(precision)).ok_or_else(|| self.has_no_precision(name, known))
    }

    fn has_no_precision(self, name: &str, known: Option<Precision>) -> BadInput {
        let own = self.precisions.iter().map(|precision| precision.name()).collect::<Vec<_>>().join(", ");
        let others =
            ENGINES.iter().filter(|other| known.is_some_and(|precision| other.precisions.contains(&precision)));
        let others: Vec<String> = others.map(|other| format!("--engine {}", other.kind.name)).collect();
        let why = match others.is_empty() {
            true => format!("no precision is called {name:?}; choose one of: {own}"),
            false => format!(
                "can only be {name} with {}; --engine {} computes in {own}",
                others.join(" or "),
                self.kind.name
            ),
        };
        BadInput::wrong("precision", why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Listed = Listed {
        kind: EngineKind { name: "new", ..THREADS },
        precisions: &[Precision::Tf32, Precision::F32],
        clips_gradients_at: 0.0,
    };

    /// Also an engine that nobody has thought of yet.
    #[test]
    fn an_engine_takes_no_precision_that_it_does_not_have() {
        let said = |listed: Listed, name| listed.precision(Some(name)).unwrap_err().to_string();
        assert_eq!(NEW.precision(None).unwrap(), Precision::Tf32);
        assert_eq!(NEW.precision(Some("f32")).unwrap(), Precision::F32);
        let cuda = ENGINES.iter().any(|listed| listed.kind.name == "cuda");
        let refused = said(NEW, "f16");
        assert!(refused.contains("f16") && refused.ends_with("tf32, f32"), "{refused}");
        assert_eq!(cuda, refused.contains("can only be f16 with --engine cuda; --engine new computes in"), "{refused}");
        assert!(said(NEW, "f64").contains("no precision is called \"f64\"; choose one of: tf32, f32"));
        let threads = named(None).unwrap();
        assert_eq!(threads.precision(Some("f32")).unwrap(), Precision::F32);
        assert!(said(threads, "f16").ends_with("f32"));
    }

    #[test]
    fn every_engine_has_a_name_of_its_own_and_a_precision() {
        for (number, listed) in ENGINES.iter().enumerate() {
            assert!(ENGINES[..number].iter().all(|other| other.kind.name != listed.kind.name));
            assert!(!listed.precisions.is_empty());
            assert_eq!(named(Some(listed.kind.name)).unwrap().kind.name, listed.kind.name);
        }
    }
}

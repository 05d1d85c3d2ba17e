//! The engines built into this program, which compute users' updates. A crate that provides one has a line here.

use cuda::CUDA;
use federated::engine::{EngineKind, Precision, THREADS};

use crate::failure::BadInput;

/// All of them; the first is taken by default.
static ENGINES: [EngineKind; 2] = [THREADS, CUDA];

/// The one that people ask for by this name.
pub(crate) fn named(name: Option<&str>) -> Result<EngineKind, BadInput> {
    let Some(name) = name else { return Ok(ENGINES[0]) };
    ENGINES.into_iter().find(|kind| kind.name == name).ok_or_else(|| {
        let there: Vec<String> = ENGINES.iter().map(|kind| format!("{} ({})", kind.name, kind.about)).collect();
        BadInput::wrong("engine", format!("no engine is called {name:?}; choose one of: {}", there.join(", ")))
    })
}

/// What products of an engine are computed in, by its name.
pub(crate) fn precision(engine: EngineKind, name: Option<&str>) -> Result<Precision, BadInput> {
    let Some(name) = name else { return Ok(Precision::default()) };
    if engine.name == THREADS.name && name != Precision::default().name() {
        return Err(BadInput::wrong("precision", "can only be chosen with --engine cuda; threads compute in f32"));
    }
    Precision::ALL.into_iter().find(|precision| precision.name() == name).ok_or_else(|| {
        let there = Precision::ALL.map(Precision::name).join(", ");
        BadInput::wrong("precision", format!("no precision is called {name:?}; choose one of: {there}"))
    })
}

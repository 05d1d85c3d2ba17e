//! A server for tests: on loopback, for anybody, with everything in one folder.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{path::Path, sync::Arc};

use federated::{
    engine::Means,
    protocol::{
        admission::{Anybody, EnrolmentLimits},
        pace::Pace,
    },
};
use keyhush_server::{
    http::{Limits, Origins, Proxies, Tells, Transport},
    sqlite::SqliteState,
    tasks::Settings,
};
use lm::kernels::KernelPath;

/// One thread is enough.
pub(crate) fn means() -> Means {
    Means::threads(KernelPath::best(), 1)
}

/// The state of a server in a folder.
pub(crate) fn state(folder: &Path) -> SqliteState {
    SqliteState::open(&folder.join("data"), &folder.join("secrets")).unwrap()
}

/// A server in a folder, until its tasks are over.
pub(crate) fn settings(folder: &Path) -> Settings {
    Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: folder.join("data"),
        transport: Transport::PlainOnLoopback,
        admission: Box::new(Anybody),
        attestation: None,
        enrolments: EnrolmentLimits::default(),
        means: means(),
        limits: Limits::default(),
        proxies: Proxies::default(),
        origins: Origins::default(),
        pace: Pace { least_s: 0.0, ..Pace::default() },
        tells: Tells::default(),
        observed: Arc::default(),
        routes: axum::Router::new(),
        ends_with_tasks: true,
        officers: Vec::new(),
    }
}

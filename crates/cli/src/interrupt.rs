//! Ctrl-C: the first asks long work to stop at the next good place, the second ends the process at once.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// What a shell says of a program that was interrupted.
pub(crate) const EXIT_CODE: u8 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Takes note of Ctrl-C from now on; asked again, it does so already.
pub(crate) fn watch() -> anyhow::Result<()> {
    static WATCHED: OnceLock<()> = OnceLock::new();
    if WATCHED.set(()).is_err() {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(EXIT_CODE));
        }
    })?;
    Ok(())
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

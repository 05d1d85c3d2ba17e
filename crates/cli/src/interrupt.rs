//! Ctrl-C: the first asks long work to stop at the next good place, the second ends the process at once.

use std::sync::OnceLock;

use federated::fleet::Stop;

/// What a shell says of a program that was interrupted.
pub(crate) const EXIT_CODE: u8 = 130;

/// Asked for by the first Ctrl-C.
static STOP: Stop = Stop::new();

/// Takes note of Ctrl-C from now on; asked again, it does so already.
pub(crate) fn watch() -> anyhow::Result<&'static Stop> {
    static WATCHED: OnceLock<()> = OnceLock::new();
    if WATCHED.set(()).is_ok() {
        ctrlc::set_handler(|| {
            if STOP.is_asked() {
                std::process::exit(i32::from(EXIT_CODE));
            }
            STOP.ask();
        })?;
    }
    Ok(&STOP)
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    STOP.is_asked()
}

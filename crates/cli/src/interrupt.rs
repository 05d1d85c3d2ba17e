//! Ctrl-C: the first asks long work to stop at the next good place, the second ends the process at once.

use std::sync::OnceLock;

use federated::fleet::Stop;

/// What a shell says of a program that was interrupted.
pub(crate) const EXIT_CODE: u8 = 130;

/// Asked for by the first Ctrl-C.
static STOP: Stop = Stop::new();
/// Done before the process ends at once.
#[cfg(feature = "network")]
static LAST: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Takes note of Ctrl-C from now on; asked again, it does so already.
pub(crate) fn watch() -> anyhow::Result<&'static Stop> {
    static WATCHED: OnceLock<()> = OnceLock::new();
    if WATCHED.set(()).is_ok() {
        ctrlc::set_handler(|| {
            if STOP.is_asked() {
                end_at_once();
            }
            STOP.ask();
        })?;
    }
    Ok(&STOP)
}

/// Ends the process with what a shell says of a program that was interrupted.
fn end_at_once() -> ! {
    #[cfg(feature = "network")]
    if let Some(last) = LAST.get() {
        last();
    }
    std::process::exit(i32::from(EXIT_CODE));
}

/// Ends the process in the same way, after its last words, if it was asked to stop and has not within this time.
#[cfg(feature = "network")]
pub(crate) fn end_within(time: std::time::Duration, last_words: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let watch = move || {
        while !STOP.is_asked() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        std::thread::sleep(time);
        last_words();
        end_at_once();
    };
    std::thread::Builder::new().name("stop".to_owned()).spawn(watch)?;
    Ok(())
}

/// What is to be done before the process ends at once; nobody else is asked. Only the first is kept.
#[cfg(feature = "network")]
pub(crate) fn before_the_end(act: impl Fn() + Send + Sync + 'static) {
    _ = LAST.set(Box::new(act));
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    STOP.is_asked()
}

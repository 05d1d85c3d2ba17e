//! CPU time and memory of the measured work, as the operating system accounts for them.

#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};

/// CPU seconds of this thread so far; where the system does not say, seconds by the wall.
#[cfg(unix)]
pub(crate) fn thread_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// CPU seconds of all threads of this process so far; where the system does not say, seconds by the wall.
#[cfg(unix)]
pub(crate) fn process_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

#[cfg(unix)]
fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(not(unix))]
pub(crate) fn thread_seconds() -> f64 {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed().as_secs_f64()
}

#[cfg(not(unix))]
pub(crate) fn process_seconds() -> f64 {
    thread_seconds()
}

/// The most memory that this process ever had, where the system says.
pub(crate) fn peak_mb() -> Option<f64> {
    peak_mb_of("self")
}

/// The same of another process, by its number.
pub(crate) fn peak_mb_of(process: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0 / 1e6)
}

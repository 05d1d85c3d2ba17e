//! Numbers of this process, from `/proc`, under the names that Prometheus gives them everywhere. Where there is no `/proc`, there are none.

use std::fs;

/// The numbers that can be told.
pub(super) fn numbers() -> Vec<(&'static str, f64)> {
    [
        ("process_resident_memory_bytes", resident()),
        ("process_cpu_seconds_total", processor()),
        ("process_open_fds", open_files()),
        ("process_max_fds", most_files()),
    ]
    .into_iter()
    .filter_map(|(name, number)| Some((name, number?)))
    .collect()
}

fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

/// The name of the program is in brackets, and may have spaces; what follows it has none.
fn processor() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    // The kernel counts in hundredths of a second for programs, whatever its own clock does.
    Some((ticks()? + ticks()?) / 100.0)
}

fn open_files() -> Option<f64> {
    // One of them is that of this listing.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn most_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_process_has_memory_time_and_files() {
        let before = super::processor().unwrap();
        let work: u64 = (0..30_000_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number.rotate_left(7)));
        assert!(super::processor().unwrap() > before, "{work}");
        let numbers = super::numbers();
        assert_eq!(numbers.len(), 4, "{numbers:?}");
        let of = |name: &str| numbers.iter().find(|(known, _)| *known == name).unwrap().1;
        assert!((1e6..1e11).contains(&of("process_resident_memory_bytes")));
        assert!(of("process_open_fds") >= 3.0 && of("process_open_fds") <= of("process_max_fds"));
    }
}

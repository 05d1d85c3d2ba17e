//! The machine: how long it takes until a write is durable, limits on files, memory, and the clock.

use std::{
    fs,
    io::Write as _,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Resource, getrlimit};

use super::{DoctorArgs, Finding, bytes};

/// Writes that are timed.
const WRITES: usize = 16;
/// No medium that keeps what it was given is as quick as this; one with a battery is at some tens of microseconds.
const TOO_QUICK: Duration = Duration::from_micros(20);
/// Each batch of the server's decisions takes at least one of these.
const SLOW: Duration = Duration::from_millis(50);
/// Files that a server needs beside its connections.
const OTHER_FILES: u64 = 200;
/// A server with reports of 256 MiB on their way, messages, and a small model.
const LEAST_MEMORY: u64 = 1 << 30;
/// 2026-01-01: before this program.
const BEFORE_US: u64 = 1_767_225_600;

pub(super) fn look(args: &DoctorArgs) -> Vec<Finding> {
    [durable(&args.data), files(args.connections)].into_iter().chain(memory()).chain([clock()]).collect()
}

/// How long until a small write is durable.
fn durable(data: &Path) -> Finding {
    let check = "durability";
    let kind = rustix::fs::statfs(data).map_or(0, |system| system.f_type as u64);
    match kind {
        0x0102_1994 | 0x8584_58f6 => {
            return Finding::hint(
                check,
                format!("{} is in memory: everything in it is gone after a restart", data.display()),
                "use a disk, unless this is a trial",
            );
        }
        0x6969 | 0xff53_4d42 | 0x517b => {
            return Finding::failure(
                check,
                format!("{} is on a network file system, whose locks cannot be relied on", data.display()),
                "use a disk of this machine",
            );
        }
        _ => {}
    }
    match time_writes(data) {
        Err(error) => Finding::failure(
            check,
            format!("nothing can be written to {}: {error}", data.display()),
            "free space, and run this as the server's user",
        ),
        Ok((median, longest)) => {
            let found = format!(
                "a small write is durable after {:.2} ms (median of {WRITES}; longest {:.2} ms)",
                ms(median),
                ms(longest)
            );
            if median < TOO_QUICK {
                Finding::hint(
                    check,
                    format!("{found}: too quick for a disk that keeps what it was given"),
                    "check that the disk or the virtual machine does not ignore flushes; after a power cut, what the server has promised may be gone",
                )
            } else if median > SLOW {
                Finding::hint(check, found, "a round needs several of these one after the other: use a quicker disk")
            } else {
                Finding::ok(check, found)
            }
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median and the longest time of small writes that are synced, in a file that is removed at once.
fn time_writes(data: &Path) -> std::io::Result<(Duration, Duration)> {
    let path = data.join(format!(".doctor-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    // It is gone with this program, also where that is killed.
    fs::remove_file(&path)?;
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let began = Instant::now();
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok((times[WRITES / 2], times[WRITES - 1]))
}

/// Each connection takes a file. The server raises its limit as far as it may.
fn files(connections: u64) -> Finding {
    let (may, needs) =
        (getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), connections.saturating_add(OTHER_FILES));
    let shown = if may == u64::MAX { "as many as it wants".to_owned() } else { may.to_string() };
    let expected = federated::numbers::counted(connections, "connection");
    let found = format!("a program may open {shown} files and connections; {needs} are needed for {expected}");
    if may < needs {
        Finding::failure(
            "files",
            found,
            format!("raise the limit: LimitNOFILE={needs} in the systemd unit, or ulimit -Hn {needs}"),
        )
    } else {
        Finding::ok("files", found)
    }
}

fn memory() -> Option<Finding> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let of = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    let (mut total, available) = (of("MemTotal:")?, of("MemAvailable:")?);
    // A container may have less than its machine.
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|limit| limit.trim().parse::<u64>().ok());
    total = total.min(limit.unwrap_or(u64::MAX));
    let found = format!("{} of memory, {} available", bytes(total), bytes(available));
    let what = "a server takes up to 600 MiB for reports and messages that arrive, and several times the model: use a larger machine";
    Some(if total.min(available) < LEAST_MEMORY {
        Finding::hint("memory", found, what)
    } else {
        Finding::ok("memory", found)
    })
}

/// Whether the clock can be right, runs evenly, and is kept by somebody.
fn clock() -> Finding {
    let check = "clock";
    let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (began, began_wall) = (Instant::now(), wall());
    if began_wall.as_secs() < BEFORE_US {
        return Finding::failure(
            check,
            format!(
                "the clock says {} seconds after 1970, which is before this program was made",
                began_wall.as_secs()
            ),
            "set the clock: ledgers have its times, and devices take theirs from it",
        );
    }
    std::thread::sleep(Duration::from_millis(250));
    let (went, went_wall) = (began.elapsed(), wall().saturating_sub(began_wall));
    if went.abs_diff(went_wall) > Duration::from_millis(100) {
        let found = format!("the clock went {:.0} ms in {:.0} ms", ms(went_wall), ms(went));
        return Finding::hint(check, found, "somebody sets the clock in steps; let a time service keep it");
    }
    let kept = Path::new("/run/systemd/timesync/synchronized").exists() || Path::new("/run/chrony").exists();
    let kept = if kept { "and a time service keeps it" } else { "and it is not known whether a time service keeps it" };
    Finding::ok(check, format!("it runs evenly, {kept}"))
}

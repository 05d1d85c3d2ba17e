//! What a program asks of the system it is started on, as `readelf` of binutils tells it.
//!
//! A program that is linked on a new system asks for that system's C library, and then starts on no older one. Rust itself promises glibc
//! 2.17 (of 2012), so what is shipped asks for no more.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The newest glibc that may be asked for.
pub(crate) const GLIBC: (u32, u32) = (2, 17);

/// Parts of glibc, which every system with glibc has. All else is in the program.
const LIBRARIES: [&str; 7] = [
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// Refuses a program that a promised system could not start, or that has the paths of this machine in it.
pub(crate) fn check(program: &Path, places: &[&Path]) -> Result<()> {
    let out =
        Command::new("readelf").args(["--wide", "--file-header", "--dynamic", "--version-info"]).arg(program).output();
    let out = out.context("cannot start readelf: install binutils")?;
    if !out.status.success() {
        bail!("readelf {}: {}\n{}", program.display(), out.status, String::from_utf8_lossy(&out.stderr));
    }
    judge(&String::from_utf8_lossy(&out.stdout)).with_context(|| program.display().to_string())?;
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    for place in places {
        let place = place.to_str().context("the paths of a build are text")?;
        if let Some(at) = memchr::memmem::find(&bytes, place.as_bytes()) {
            let around = &bytes[at..bytes.len().min(at + 120)];
            bail!(
                "{} contains a path of this machine, so another one would build another file: {}",
                program.display(),
                around.escape_ascii()
            );
        }
    }
    Ok(())
}

/// Judges what readelf prints.
fn judge(printed: &str) -> Result<()> {
    let libraries = printed.lines().filter_map(|line| line.split_once("Shared library: [")?.1.split(']').next());
    for library in libraries.clone() {
        if !LIBRARIES.contains(&library) {
            bail!("it needs {library}, which not every system has: link it into the program");
        }
    }
    if libraries.count() == 0 {
        bail!("it needs no library, so it cannot load CUDA's: it should be linked to glibc dynamically");
    }
    let names = printed.lines().filter_map(|line| line.split_once("Name: GLIBC_")?.1.split_whitespace().next());
    let newest = names.clone().filter_map(version).max().context("it asks for no version of glibc")?;
    if let Some(strange) = names.clone().find(|name| version(name).is_none()) {
        bail!("it asks for GLIBC_{strange}, which is no version that anyone promises");
    }
    if newest > GLIBC {
        bail!("it asks for glibc {}.{}, and {}.{} is promised", newest.0, newest.1, GLIBC.0, GLIBC.1);
    }
    if !printed.contains("Position-Independent Executable") {
        bail!("it is not position-independent, so its addresses can be known to an attacker");
    }
    if !printed.contains("BIND_NOW") && !printed.contains("Flags: NOW") {
        bail!("its table of functions stays writable (no BIND_NOW)");
    }
    if printed.contains("(RUNPATH)") || printed.contains("(RPATH)") {
        bail!("it looks for libraries in folders of the machine that built it (RUNPATH)");
    }
    Ok(())
}

/// `2.17` and `2.2.5`, by their first two numbers.
fn version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "  Type:   DYN (Position-Independent Executable file)\n\
         0x0000000000000001 (NEEDED)  Shared library: [libc.so.6]\n\
         0x000000006ffffffb (FLAGS_1)  Flags: NOW PIE\n\
         0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 7\n\
         0x0020:   Name: GLIBC_2.17  Flags: none  Version: 6\n";

    #[test]
    fn a_program_for_old_systems_passes() {
        judge(GOOD).unwrap();
    }

    #[test]
    fn a_program_that_a_promised_system_cannot_start_is_refused() {
        for (from, to, why) in [
            ("GLIBC_2.17", "GLIBC_2.18", "glibc 2.18"),
            ("GLIBC_2.17", "GLIBC_3.0", "glibc 3.0"),
            ("GLIBC_2.17", "GLIBC_ABI_DT_RELR", "GLIBC_ABI_DT_RELR"),
            ("libc.so.6", "libgcc_s.so.1", "libgcc_s.so.1"),
            ("Position-Independent Executable", "Executable", "position-independent"),
            ("Flags: NOW", "Flags:", "BIND_NOW"),
            ("(FLAGS_1)", "(RUNPATH)", "RUNPATH"),
        ] {
            let changed = GOOD.replace(from, to);
            assert_ne!(changed, GOOD);
            match judge(&changed) {
                Err(error) => assert!(error.to_string().contains(why), "{error}"),
                Ok(()) => panic!("{to} passes"),
            }
        }
        assert!(judge(&GOOD.replace("Shared library: ", "")).unwrap_err().to_string().contains("CUDA"));
        assert!(judge(&GOOD.replace("Name: ", "")).unwrap_err().to_string().contains("no version"));
    }

    /// The program of this very test was linked here, and has the path of its source in it.
    #[test]
    fn what_is_built_here_by_hand_is_no_release() {
        let this = std::env::current_exe().unwrap();
        let checked = check(&this, &[&crate::root()]);
        assert!(checked.is_err(), "it is linked to libgcc_s, and holds the paths of its source");
    }
}

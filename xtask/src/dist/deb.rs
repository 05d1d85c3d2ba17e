//! A Debian package: an `ar` of its version, what Debian is told of it, and its files (deb(5)).
//!
//! It is written here rather than by `dpkg-deb`, whose compressor differs between releases: see [`crate::dist::files`]. Both archives are
//! gzip, which every dpkg reads.

use std::fmt::Write;

use anyhow::{Result, bail};

use super::files::Files;

/// What a package says of itself.
pub(crate) struct Package<'a> {
    pub(crate) version: &'a str,
    /// Debian's name of the machine.
    pub(crate) architecture: &'a str,
    /// The oldest C library that it runs with.
    pub(crate) libc: &'a str,
    /// What is in it.
    pub(crate) files: Files,
    /// Paths of `files` that a person changes: Debian keeps their changes.
    pub(crate) conffiles: &'a [&'a str],
    /// The scripts that dpkg runs, by their names.
    pub(crate) scripts: &'a [(&'a str, &'a str)],
}

/// There is no address yet; Debian wants one.
pub(crate) const MAINTAINER: &str = "The Keyhush authors <authors@keyhush.invalid>";

impl Package<'_> {
    /// The whole package.
    pub(crate) fn write(&self, seconds: u64) -> Result<Vec<u8>> {
        let mut control = Files::default();
        control.add("control", self.control());
        control.add("md5sums", self.md5sums()?);
        control.add("conffiles", self.conffiles()?);
        for (name, script) in self.scripts {
            control.add_program(name, *script);
        }
        let mut ar = b"!<arch>\n".to_vec();
        member(&mut ar, "debian-binary", b"2.0\n", seconds);
        member(&mut ar, "control.tar.gz", &control.tar_gz("./", seconds)?, seconds);
        member(&mut ar, "data.tar.gz", &self.files.tar_gz("./", seconds)?, seconds);
        Ok(ar)
    }

    fn control(&self) -> String {
        let Self { version, architecture, libc, .. } = self;
        format!(
            "Package: keyhush\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {}\nDepends: adduser, libc6 (>= {libc})\nRecommends: ca-certificates\nSection: science\n\
             Priority: optional\nDescription: federated training of keyboard language models with differential privacy\n \
             Text stays on the devices of those who typed it, and a proven bound limits\n how much any one user can influence \
             the model. This package has the program,\n which simulates such training, runs the server of real devices and checks \
             the\n guarantees of both, and a service for systemd that is not started by itself.\n",
            self.installed_kib()
        )
    }

    /// As Debian counts: whole KiB of each file, and one for each folder.
    fn installed_kib(&self) -> usize {
        self.files.iter().map(|(_, file)| file.bytes.len().div_ceil(1024)).sum::<usize>() + self.files.folders().len()
    }

    fn conffiles(&self) -> Result<String> {
        let mut lines = String::new();
        for path in self.conffiles {
            if !self.files.iter().any(|(known, _)| known == *path) {
                bail!("{path} is a conffile of the package, and no file of it");
            }
            writeln!(lines, "/{path}")?;
        }
        Ok(lines)
    }

    /// What `dpkg --verify` compares with; conffiles are not among it.
    fn md5sums(&self) -> Result<String> {
        let mut lines = String::new();
        for (path, file) in self.files.iter().filter(|(path, _)| !self.conffiles.contains(path)) {
            writeln!(lines, "{}  {path}", super::digest::hex::<md5::Md5>(&file.bytes))?;
        }
        Ok(lines)
    }
}

/// A member of an `ar`, as the format has it: fields of fixed width, and an even length.
fn member(ar: &mut Vec<u8>, name: &str, bytes: &[u8], seconds: u64) {
    let header = format!("{name:<16}{seconds:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
    ar.extend(header.as_bytes());
    ar.extend(bytes);
    if bytes.len() % 2 == 1 {
        ar.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::dist::files::tests::{read, some};

    fn package(files: Files) -> Package<'static> {
        Package {
            version: "1.2.3",
            architecture: "all",
            libc: "2.17",
            files,
            conffiles: &["etc/x.toml"],
            scripts: &[("postinst", "#!/bin/sh\nset -e\n")],
        }
    }

    /// The members of an `ar`, read by the widths of the format.
    fn members(mut ar: &[u8]) -> Vec<(String, Vec<u8>)> {
        ar = ar.strip_prefix(b"!<arch>\n").unwrap();
        let mut found = Vec::new();
        while !ar.is_empty() {
            let header = std::str::from_utf8(&ar[..60]).unwrap();
            assert!(header.ends_with("`\n"), "{header:?}");
            let size: usize = header[48..58].trim().parse().unwrap();
            found.push((header[..16].trim().to_owned(), ar[60..60 + size].to_vec()));
            ar = &ar[(60 + size.next_multiple_of(2)).min(ar.len())..];
        }
        found
    }

    #[test]
    fn a_package_is_three_members_with_the_same_bytes_each_time() {
        let bytes = package(some(false)).write(1_700_000_000).unwrap();
        assert_eq!(bytes, package(some(true)).write(1_700_000_000).unwrap());
        let members = members(&bytes);
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        assert_eq!(members[0].1, b"2.0\n");
        let control = read(&members[1].1);
        let text = |path: &str| control.iter().find(|entry| entry.0 == path).map(|entry| (entry.1, entry.4.as_str()));
        assert_eq!(text("./conffiles"), Some((0o644, "/etc/x.toml\n")));
        assert_eq!(text("./postinst"), Some((0o755, "#!/bin/sh\nset -e\n")));
        let sums = "a9c449d4fa44e9e5a41c574ae55ce4d9  usr/bin/x\n1cb251ec0d568de6a929b520c4aed8d1  usr/share/doc/x/README.md\n";
        assert_eq!(text("./md5sums"), Some((0o644, sums)));
        assert!(text("./control").unwrap().1.contains("\nArchitecture: all\n"));
        // Three files of a KiB at most, in etc, usr, usr/bin, usr/share, usr/share/doc and usr/share/doc/x.
        assert!(text("./control").unwrap().1.contains("\nInstalled-Size: 9\n"));
    }

    #[test]
    fn a_conffile_that_is_not_in_the_package_is_refused() {
        let mut wrong = package(some(false));
        wrong.conffiles = &["etc/y.toml"];
        assert!(wrong.write(0).unwrap_err().to_string().contains("etc/y.toml"));
    }

    /// Debian's own reader, on a system that has it.
    #[test]
    fn dpkg_reads_what_is_written() {
        let folder = std::env::temp_dir().join(format!("keyhush-deb-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("x.deb");
        std::fs::write(&file, package(some(false)).write(1_700_000_000).unwrap()).unwrap();
        let ask = |words: &[&str]| Command::new("dpkg-deb").args(words).arg(&file).output();
        let (fields, contents) =
            (ask(&["--show", "--showformat=${Version} ${Architecture} ${Depends}"]), ask(&["--contents"]));
        std::fs::remove_dir_all(&folder).unwrap();
        let Ok(fields) = fields else {
            println!("not read: there is no dpkg-deb here");
            return;
        };
        assert_eq!(String::from_utf8_lossy(&fields.stdout), "1.2.3 all adduser, libc6 (>= 2.17)");
        let contents = String::from_utf8(contents.unwrap().stdout).unwrap();
        assert!(
            contents.lines().any(|line| line.starts_with("-rwxr-xr-x root/root") && line.ends_with("./usr/bin/x")),
            "{contents}"
        );
        assert_eq!(contents.lines().count(), 10, "{contents}");
    }
}

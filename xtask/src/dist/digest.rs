//! Digests, as people compare them: in hexadecimal.

use std::fmt::Write;

use sha2::{Digest, Sha256};

pub(crate) fn hex<D: Digest>(bytes: &[u8]) -> String {
    D::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::<Sha256>(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_one_of_the_standard() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

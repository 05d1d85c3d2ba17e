//! What is read of certificates here and by `keyhush doctor`: the elements of DER, and the names that a certificate is for (RFC 5280).
//!
//! rustls checks certificates and does not say what is in them. Reading a few fields takes less than the crates that read all of one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The tag of a sequence.
pub const SEQUENCE: u8 = 0x30;
const EXTENSIONS: u8 = 0xa3;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
/// Names are in the extension with this identifier, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// The first element: its tag, its content, and what comes after it.
#[must_use]
pub fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The names and addresses that a certificate in DER is for; none where it cannot be read.
pub(super) fn names(der: &[u8]) -> Option<Vec<String>> {
    let (SEQUENCE, certificate, _) = element(der)? else { return None };
    let (SEQUENCE, fields, _) = element(certificate)? else { return None };
    let Some(extensions) = find(fields, |tag, _| tag == EXTENSIONS)? else { return Some(Vec::new()) };
    let (SEQUENCE, extensions, _) = element(extensions)? else { return None };
    let is_of_names = |_: u8, extension: &[u8]| element(extension).is_some_and(|(_, id, _)| id == ALTERNATIVE_NAMES);
    let Some(extension) = find(extensions, is_of_names)? else { return Some(Vec::new()) };
    let (_, _, mut value) = element(extension)?;
    if let (BOOLEAN, _, rest) = element(value)? {
        value = rest; // whether it is critical
    }
    let (OCTETS, value, _) = element(value)? else { return None };
    let (SEQUENCE, mut rest, _) = element(value)? else { return None };
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (tag, content, after) = element(rest)?;
        match tag {
            DNS_NAME => names.push(String::from_utf8(content.to_vec()).ok()?),
            IP_ADDRESS => names.push(address(content)?.to_string()),
            _ => {}
        }
        rest = after;
    }
    Some(names)
}

/// The content of the first element that is looked for, where there is one; nothing where they cannot be read.
fn find(mut elements: &[u8], is: impl Fn(u8, &[u8]) -> bool) -> Option<Option<&[u8]>> {
    while !elements.is_empty() {
        let (tag, content, rest) = element(elements)?;
        if is(tag, content) {
            return Some(Some(content));
        }
        elements = rest;
    }
    Some(None)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into());
    four().or_else(|| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_a_certificate_was_made_for() {
        let of = ["keyhush.example", "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        for count in 0..=of.len() {
            let made = rcgen::generate_simple_self_signed(&of[..count]).unwrap();
            let der = made.cert.der();
            assert_eq!(names(der).unwrap(), of[..count]);
            // What is cut is no certificate, and nothing panics.
            (0..der.len()).for_each(|length| assert_eq!(names(&der[..length]), None, "{length}"));
        }
    }
}

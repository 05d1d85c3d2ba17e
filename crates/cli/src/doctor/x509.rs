//! The few fields of a certificate that an operator is told: from when until when it is valid, whose it is and who issued it (RFC 5280).
//!
//! rustls checks certificates and does not say what is in them. The fields that are needed stand at fixed places, and reading them takes less than the
//! crates that read all of a certificate.

use jiff::Timestamp;
use server::http::der::{SEQUENCE, element};

/// What is read of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    /// Who issued it, and whose it is: names as they are encoded.
    pub(super) issuer: &'a [u8],
    pub(super) subject: &'a [u8],
    /// From when until when it is valid.
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Reads a certificate in DER.
pub(super) fn read(der: &[u8]) -> Option<Fields<'_>> {
    let (SEQUENCE, certificate, _) = element(der)? else { return None };
    let (SEQUENCE, mut fields, _) = element(certificate)? else { return None };
    if let (VERSION, _, rest) = element(fields)? {
        fields = rest;
    }
    let (_, _, fields) = element(fields)?; // the serial number
    let (_, _, fields) = element(fields)?; // the algorithm of the signature
    let (SEQUENCE, issuer, fields) = element(fields)? else { return None };
    let (SEQUENCE, validity, fields) = element(fields)? else { return None };
    let (SEQUENCE, subject, _) = element(fields)? else { return None };
    let (kind, from, rest) = element(validity)?;
    let from = time(kind, from)?;
    let (kind, until, _) = element(rest)?;
    Some(Fields { issuer, subject, from, until: time(kind, until)? })
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`. Two digits are of 1950 to 2049.
fn time(kind: u8, text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let digits = match kind {
        UTC_TIME => {
            let century = if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" };
            format!("{century}{text}")
        }
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    if digits.len() != 14 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let [year, month, day, hour, minute, second] =
        [0..4, 4..6, 6..8, 8..10, 10..12, 12..14].map(|place| &digits[place]);
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_that_the_certificate_was_made_with() {
        for (year, other) in [(2020, 2049), (1999, 2060)] {
            let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            parameters.not_before = rcgen::date_time_ymd(year, 2, 3);
            parameters.not_after = rcgen::date_time_ymd(other, 11, 30);
            let key = rcgen::KeyPair::generate().unwrap();
            let made = parameters.self_signed(&key).unwrap();
            let fields = read(made.der()).unwrap();
            assert_eq!(fields.from.to_string(), format!("{year}-02-03T00:00:00Z"));
            assert_eq!(fields.until.to_string(), format!("{other}-11-30T00:00:00Z"));
            assert_eq!(fields.issuer, fields.subject);
            // What is cut is no certificate, and nothing panics.
            (0..made.der().len()).for_each(|length| assert_eq!(read(&made.der()[..length]), None, "{length}"));
        }
    }
}

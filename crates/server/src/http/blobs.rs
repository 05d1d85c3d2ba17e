//! Ranges and entity tags of immutable blobs (RFC 9110, sections 13 and 14).

use std::ops::Range;

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{
            ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE,
            RANGE,
        },
    },
    response::Response,
};

use super::{answers::Refusal, service::Packed};

/// What a client gets of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Whole,
    Some(Range<usize>),
    /// The client already has the blob.
    Nothing,
    /// It asks for what lies behind the end.
    Beyond,
}

pub(super) fn response(blob: &Packed, method: &Method, headers: &HeaderMap, time_s: u64) -> Response {
    let length = blob.bytes.len();
    let (status, body) = match part(blob, method, headers) {
        Part::Whole => (StatusCode::OK, blob.bytes.clone()),
        Part::Nothing => (StatusCode::NOT_MODIFIED, bytes::Bytes::new()),
        Part::Some(range) => {
            let mut response = described(blob, StatusCode::PARTIAL_CONTENT, blob.bytes.slice(range.clone()));
            let words = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            insert(&mut response, words);
            return response;
        }
        Part::Beyond => {
            let mut response = Refusal::Range.response(time_s);
            insert(&mut response, format!("bytes */{length}"));
            return response;
        }
    };
    described(blob, status, body)
}

fn insert(response: &mut Response, content_range: String) {
    if let Ok(value) = HeaderValue::try_from(content_range) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
}

fn described(blob: &Packed, status: StatusCode, body: bytes::Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(ETAG, blob.tag.clone());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status != StatusCode::NOT_MODIFIED {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn part(blob: &Packed, method: &Method, headers: &HeaderMap) -> Part {
    if headers.get_all(IF_NONE_MATCH).iter().any(|tags| names(tags, &blob.tag)) {
        return Part::Nothing;
    }
    // A range refers to one compressed form: a client with a part of another gets the whole.
    let same = headers.get(IF_RANGE).is_none_or(|tag| tag == blob.tag);
    match headers.get(RANGE) {
        Some(wanted) if same && *method == Method::GET => range(wanted, blob.bytes.len()),
        _ => Part::Whole,
    }
}

/// Whether a list of tags names this one, weakly.
fn names(tags: &HeaderValue, tag: &HeaderValue) -> bool {
    let each = |t: &str| t == "*" || t.strip_prefix("W/").unwrap_or(t).as_bytes() == tag.as_bytes();
    tags.to_str().is_ok_and(|tags| tags.split(',').any(|t| each(t.trim())))
}

/// One range of bytes. What is none, or is several, is as if nobody had asked for a part, as the RFC allows.
fn range(wanted: &HeaderValue, length: usize) -> Part {
    let parse = || -> Option<(Option<u64>, Option<u64>)> {
        let (first, last) = wanted.to_str().ok()?.strip_prefix("bytes=")?.trim().split_once('-')?;
        let number = |digits: &str| match digits {
            "" => Some(None),
            _ if digits.bytes().all(|b| b.is_ascii_digit()) => Some(Some(digits.parse().unwrap_or(u64::MAX))),
            _ => None,
        };
        Some((number(first)?, number(last)?))
    };
    let end = length as u64;
    let (first, last) = match parse() {
        None | Some((None, None)) => return Part::Whole,
        Some((Some(first), Some(last))) if first > last => return Part::Whole,
        Some((Some(first), last)) => (first, last.map_or(end, |last| last.saturating_add(1)).min(end)),
        Some((None, Some(newest))) => (end.saturating_sub(newest), end),
    };
    // Both are at most the length, which is a usize.
    if first < last { Part::Some(first as usize..last as usize) } else { Part::Beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_rfc() {
        let range = |wanted: &'static str| range(&HeaderValue::from_static(wanted), 10);
        assert_eq!(range("bytes=0-0"), Part::Some(0..1));
        assert_eq!(range("bytes=3-"), Part::Some(3..10));
        assert_eq!(range("bytes=3-99999999999999999999999"), Part::Some(3..10));
        assert_eq!(range("bytes=3-18446744073709551615"), Part::Some(3..10));
        assert_eq!(range("bytes=-4"), Part::Some(6..10));
        assert_eq!(range("bytes=-40"), Part::Some(0..10));
        for beyond in ["bytes=10-", "bytes=10-12", "bytes=99999999999999999999999-", "bytes=-0"] {
            assert_eq!(range(beyond), Part::Beyond, "{beyond}");
        }
        for none in ["bytes=-", "bytes=5-3", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b", "bytes=+1-2", "bytes", ""] {
            assert_eq!(range(none), Part::Whole, "{none}");
        }
    }

    #[test]
    fn tags_are_compared_weakly() {
        let tag = HeaderValue::from_static("\"ab\"");
        let names = |tags: &'static str| names(&HeaderValue::from_static(tags), &tag);
        assert!(names("\"ab\"") && names("W/\"ab\"") && names("\"x\", \"ab\"") && names("*"));
        assert!(!names("ab") && !names("\"a\"") && !names(""));
    }

    #[test]
    fn an_empty_blob_has_no_ranges() {
        assert_eq!(range(&HeaderValue::from_static("bytes=0-"), 0), Part::Beyond);
        assert_eq!(range(&HeaderValue::from_static("bytes=-1"), 0), Part::Beyond);
    }
}

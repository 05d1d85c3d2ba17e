//! Which web origins may send requests (CORS, the Fetch standard, section 3.2).
//!
//! A browser lets a page read what another origin answers only where that one says so. No page may unless the operator names its origin
//! ([`Origins`]). A browser sends nothing of this protocol before it has asked: requests have types and methods that need a preflight, so a page of
//! an origin that is not named says nothing at all. This keeps pages apart, not people: a client that is not a browser can claim any origin. Nothing
//! here hangs on cookies, so credentials are never allowed.

use std::str::FromStr;

use axum::{
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
            ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
        },
    },
    response::Response,
};
use thiserror::Error;

/// What pages may ask with, what they may say beside it, and what they may read beside the body.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT");
const SAYS: HeaderValue = HeaderValue::from_static("content-type, range, if-range, if-none-match");
const READS: HeaderValue = HeaderValue::from_static("etag, content-range, accept-ranges, retry-after");
/// How long a browser need not ask again, in seconds.
const ASKS_AGAIN_S: HeaderValue = HeaderValue::from_static("7200");

/// An origin as browsers write it: `https://example.org`, `http://localhost:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(HeaderValue);

/// Not a valid origin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not an origin: give scheme and host in lower case, and the port if it is not the default one, with nothing after it, such as https://example.org"
)]
pub struct NoOrigin {
    text: String,
}

impl FromStr for Origin {
    type Err = NoOrigin;

    /// Only what a browser would send is taken: what is written otherwise would never match.
    fn from_str(text: &str) -> Result<Self, NoOrigin> {
        let none = || NoOrigin { text: text.to_owned() };
        let uri: Uri = text.parse().map_err(|_| none())?;
        let usual = match uri.scheme_str() {
            Some("https") => 443,
            Some("http") => 80,
            _ => return Err(none()),
        };
        let authority = uri.authority().ok_or_else(none)?;
        let is_bare = text == format!("{}://{authority}", uri.scheme_str().unwrap_or_default());
        let is_plain = !authority.as_str().contains('@') && !authority.host().is_empty();
        // "example.org:" and "example.org:443" are written without the port by browsers.
        let port_fits = match authority.as_str().rsplit_once(':') {
            Some((_, port)) if !authority.as_str().ends_with(']') => {
                authority.port_u16().is_some_and(|number| number != usual && number.to_string() == port)
            }
            _ => true,
        };
        if !is_bare || !is_plain || !port_fits || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(none());
        }
        HeaderValue::from_str(text).map(Self).map_err(|_| none())
    }
}

/// The origins whose pages may speak to a server; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(Vec<Origin>);

impl Origins {
    /// Allows these origins.
    #[must_use]
    pub const fn new(origins: Vec<Origin>) -> Self {
        Self(origins)
    }

    /// The origin of the page that a request comes from, if its pages may speak.
    pub(crate) fn of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let said = headers.get(ORIGIN)?;
        self.0.iter().find(|Origin(known)| known == said).map(|Origin(known)| known.clone())
    }

    /// The answer to a browser that asks whether a page may say something; none where that is not what is asked, or it may not.
    pub(crate) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response> {
        if *method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let origin = self.of(headers)?;
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        self.tell(Some(origin), &mut response);
        let told = response.headers_mut();
        told.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        told.insert(ACCESS_CONTROL_ALLOW_HEADERS, SAYS);
        told.insert(ACCESS_CONTROL_MAX_AGE, ASKS_AGAIN_S);
        Some(response)
    }

    /// Tells a browser that a page may read an answer. A cache that keeps answers, such as blobs, is told that they differ by origin.
    pub(crate) fn tell(&self, origin: Option<HeaderValue>, response: &mut Response) {
        if self.0.is_empty() {
            return;
        }
        let told = response.headers_mut();
        told.insert(VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin {
            told.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            told.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_browsers_send_is_an_origin() {
        for good in
            ["https://example.org", "http://localhost:8080", "https://127.0.0.1", "http://[::1]:8080", "https://[::1]"]
        {
            assert!(good.parse::<Origin>().is_ok(), "{good}");
        }
        for wrong in [
            "",
            "*",
            "null",
            "example.org",
            "example.org:8080",
            "ftp://example.org",
            "https://",
            "https://example.org/",
            "https://example.org/page",
            "https://example.org?x",
            "https://user@example.org",
            "https://Example.org",
            "HTTPS://example.org",
            "https://example.org:443",
            "http://example.org:80",
            "https://example.org:",
            "https://example.org:08443",
            "https://example.org:80443",
            "https://example.org, https://example.com",
        ] {
            assert_eq!(wrong.parse::<Origin>(), Err(NoOrigin { text: wrong.to_owned() }));
        }
    }
}

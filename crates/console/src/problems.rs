//! Why a request is refused, and what to do next, as `application/problem+json` (RFC 9457).

use axum::{
    body::Body,
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::Response,
};
use serde_json::json;

/// The media type of problems.
pub const PROBLEM: &str = "application/problem+json";

/// Why a request is refused.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The status of the answer.
    pub status: StatusCode,
    /// A word for programs; the problem's type is `urn:keyhush:problem:` and this.
    pub code: &'static str,
    /// What kind of problem it is, for people; the same for every problem of this code.
    pub title: &'static str,
    /// What is wrong with this request.
    pub detail: String,
    /// What to do next.
    pub next: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self { status, code, title, detail: detail.into(), next: next.into(), headers: Vec::new() }
    }

    /// Nobody is known by the token, or there is none.
    pub fn unauthorized(detail: &str) -> Self {
        let next = "send the header Authorization: Bearer TOKEN; tokens are created on the server's machine with keyhush access create \
            NAME --role viewer --secrets DIR";
        let problem = Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "no valid access token", detail, next);
        problem.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"keyhush\""))
    }

    /// The role of the token is too low.
    pub fn forbidden(has: &str, needs: &str) -> Self {
        let detail = format!("this needs the role {needs}, and the token has the role {has}");
        let next = format!("use a token created with keyhush access create NAME --role {needs} --secrets DIR");
        Self::new(StatusCode::FORBIDDEN, "forbidden", "the token's role is too low", detail, next)
    }

    /// There is nothing at this path.
    pub fn no_such_path() -> Self {
        let next = "see /openapi.json for all paths";
        Self::new(StatusCode::NOT_FOUND, "no-such-path", "no such path", "there is nothing at this path", next)
    }

    /// The path has other methods.
    pub fn no_such_method(allow: &str) -> Self {
        let detail = format!("this path answers {allow} only");
        let title = "method not allowed";
        let problem = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "no-such-method",
            title,
            detail,
            "use one of the methods in the header Allow",
        );
        match HeaderValue::from_str(allow) {
            Ok(allow) => problem.with(ALLOW, allow),
            Err(_) => problem,
        }
    }

    /// What the request says cannot be meant.
    pub fn bad_request(detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "the request is wrong", detail, next)
    }

    /// What the request asks for is in conflict with how things stand.
    pub fn conflict(detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "not possible in the present state", detail, next)
    }

    /// Something on the server failed. What, is said to its operator in the server's log and not to who asks.
    pub fn internal(detail: impl Into<String>) -> Self {
        let next = "try again; if it happens again, the server's log and keyhush doctor say more";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed", detail, next)
    }

    /// It may be otherwise after some seconds.
    pub fn unavailable(detail: impl Into<String>, after_s: u64) -> Self {
        let next = format!("try again after {after_s} s");
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "not available now", detail, next);
        problem.with(RETRY_AFTER, HeaderValue::from(after_s))
    }

    /// The same with a header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The answer, to the request of this id.
    #[must_use]
    pub fn response(self, request: &str) -> Response {
        let body = json!({
            "type": format!("urn:keyhush:problem:{}", self.code),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "next": self.next,
            "request": request,
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        response.headers_mut().extend(self.headers);
        response
    }
}

//! Requests that were refused or failed: each answer has an id, and who keeps a log is told under which id what was answered.
//!
//! Told are the method, the route as this program names it, and the status. Nothing that a client sent is among them: neither its path, which can have a
//! ticket, nor its address. Answers that are well have no id, but those of a console, which draws them the same way.

use std::{fmt, sync::Arc};

use axum::{
    Router,
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue},
    middleware::{Next, from_fn},
    response::Response,
};

/// The header with the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request that was refused, or failed.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// Its id, which the answer has too.
    pub id: &'a str,
    /// Its method, where it is a usual one.
    pub method: &'a str,
    /// Its route, such as `/v1/report/{ticket}/{offset}`; nothing where there is none.
    pub route: &'a str,
    /// The status of the answer.
    pub status: u16,
}

/// Who is told of refused requests. It is called by the threads that answer, and should be quick.
#[derive(Clone)]
pub struct Tells(Arc<dyn Fn(&Refused<'_>) + Send + Sync>);

impl Tells {
    /// This function is told.
    pub fn new(tells: impl Fn(&Refused<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tells))
    }
}

impl Default for Tells {
    /// Nobody is told.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Tells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tells(..)")
    }
}

/// The same routes, whose refusals have an id and are told.
pub(crate) fn told(routes: Router, tells: Tells) -> Router {
    routes.layer(from_fn(move |request, next| tell(tells.clone(), request, next)))
}

async fn tell(Tells(tells): Tells, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    // Any word can be a method: one of a client's own is not repeated.
    let usual = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
    let method = usual.into_iter().find(|usual| *usual == request.method().as_str()).unwrap_or("other");
    let mut response = next.run(request).await;
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        let id =
            response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).map_or_else(request_id, str::to_owned);
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        let route = route.as_ref().map_or("", |route| route.as_str());
        tells(&Refused { id: &id, method, route, status: status.as_u16() });
    }
    response
}

/// 16 random hexadecimal digits. A count would tell anyone who asks twice how many requests were refused in between, and so when a round closed and
/// how many devices came too late (rule P26).
#[must_use]
pub fn request_id() -> String {
    let mut bytes = [0; 8];
    // Ids are for reading logs: without randomness requests are answered all the same.
    _ = getrandom::fill(&mut bytes);
    format!("{:016x}", u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Ids were a count: two answers that anybody may have told how many requests of devices were refused in between.
    #[test]
    fn p26_ids_of_requests_do_not_count_them() {
        let ids: BTreeSet<String> = (0..100).map(|_| request_id()).collect();
        assert!(ids.len() == 100 && ids.iter().all(|id| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit())));
        let numbers: Vec<u64> = ids.iter().map(|id| u64::from_str_radix(id, 16).unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] > 1 << 32), "{numbers:?}");
    }
}

//! HTTP statuses of answers, and refusals with their reasons.
//!
//! Words of a refusal are ours: nothing of a request is in them.

use axum::{
    body::Body,
    http::{
        HeaderValue, StatusCode,
        header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
    },
    response::Response,
};
use device::protocol::message::{Answer, Hello, Reason, Says, Unsupported, Wait};
use prost::Message;

/// Of messages of the protocol.
pub(super) const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// Why the routes refuse something before the coordinator hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    NoSuchPath,
    NoSuchMethod { allow: &'static str },
    NoSuchBlob,
    BadDigest,
    BadTicket,
    BadOffset,
    WrongType,
    Packed,
    Empty,
    TooLong,
    Broken,
    Slow,
    NoRoom,
    Overdue,
    Crowded,
    Range,
}

impl Refusal {
    const fn parts(self) -> (StatusCode, Reason, &'static str) {
        use Reason as R;
        use StatusCode as S;
        match self {
            Self::NoSuchPath => (S::NOT_FOUND, R::Malformed, "not found"),
            Self::NoSuchMethod { .. } => (S::METHOD_NOT_ALLOWED, R::Malformed, "method not allowed for this path"),
            Self::NoSuchBlob => (S::NOT_FOUND, R::Closed, "no such blob, or no longer"),
            Self::BadDigest => (S::BAD_REQUEST, R::Malformed, "a digest must be 64 lower-case hexadecimal digits"),
            Self::BadTicket => (S::BAD_REQUEST, R::Malformed, "a ticket must be 64 lower-case hexadecimal digits"),
            Self::BadOffset => (S::BAD_REQUEST, R::Malformed, "an offset must be an integer below 2^64"),
            Self::WrongType => (
                S::UNSUPPORTED_MEDIA_TYPE,
                R::Malformed,
                "messages must be application/x-protobuf, chunks application/octet-stream",
            ),
            Self::Packed => (S::UNSUPPORTED_MEDIA_TYPE, R::Malformed, "the body must not be compressed"),
            Self::Empty => (S::BAD_REQUEST, R::Malformed, "the body is empty"),
            Self::TooLong => (S::PAYLOAD_TOO_LARGE, R::TooLong, "the body is longer than 2^20 bytes"),
            Self::Broken => (S::BAD_REQUEST, R::Malformed, "the body is truncated"),
            Self::Slow => (S::REQUEST_TIMEOUT, R::TooMuch, "the body was sent too slowly"),
            Self::NoRoom => (S::SERVICE_UNAVAILABLE, R::TooMuch, "no memory for the body at the moment"),
            Self::Overdue => (S::SERVICE_UNAVAILABLE, R::Internal, "no answer in time"),
            Self::Crowded => (S::SERVICE_UNAVAILABLE, R::TooMuch, "too many connections"),
            Self::Range => (S::RANGE_NOT_SATISFIABLE, R::Malformed, "the range is out of bounds"),
        }
    }

    /// Seconds after which it may be otherwise; 0 where the same request is refused again.
    const fn after_s(self) -> u64 {
        match self {
            Self::NoRoom => 1,
            Self::Slow | Self::Overdue => 5,
            Self::Crowded => 30,
            _ => 0,
        }
    }

    /// Its status, its reason in words, and after how many seconds it may be otherwise.
    pub(super) const fn told(self) -> (StatusCode, &'static str, u64) {
        let (status, _, words) = self.parts();
        (status, words, self.after_s())
    }

    /// With the server's clock, in seconds since 1970.
    pub(super) fn response(self, time_s: u64) -> Response {
        let (status, reason, words) = self.parts();
        // There is room again in a moment, and a report that is half sent is not to wait for seconds.
        let answer = match self {
            Self::NoRoom => Answer::new(Says::Wait(Wait { after_ms: 1000 })),
            _ => Answer::refused(reason, words, time_s, self.after_s()),
        };
        let mut response = message(status, &answer);
        if let Self::NoSuchMethod { allow } = self {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.after_s() > 0 {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(self.after_s()));
        }
        response
    }
}

/// What the coordinator answers.
pub(super) fn answer(answer: &Answer) -> Response {
    message(status(answer), answer)
}

/// What programs of other versions are told.
pub(super) fn unsupported(hello: &Hello) -> Response {
    answer(&Answer::new(Says::Unsupported(Unsupported { oldest: hello.oldest, newest: hello.newest })))
}

/// A message of the protocol. None is kept by anybody on its way.
pub(super) fn message(status: StatusCode, message: &impl Message) -> Response {
    let mut response = Response::new(Body::from(message.encode_to_vec()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn status(answer: &Answer) -> StatusCode {
    let refused = match &answer.says {
        Some(Says::Refused(refused)) => refused,
        Some(Says::Unsupported(_)) => return StatusCode::BAD_REQUEST,
        Some(_) => return StatusCode::OK,
        None => return StatusCode::INTERNAL_SERVER_ERROR,
    };
    match Reason::try_from(refused.reason) {
        Ok(Reason::Malformed) => StatusCode::BAD_REQUEST,
        Ok(Reason::Signature | Reason::Clock) => StatusCode::UNAUTHORIZED,
        Ok(Reason::Stranger | Reason::NotAdmitted) => StatusCode::FORBIDDEN,
        Ok(Reason::Closed | Reason::Late) => StatusCode::GONE,
        Ok(Reason::OutOfBounds) => StatusCode::UNPROCESSABLE_ENTITY,
        Ok(Reason::TooLong) => StatusCode::PAYLOAD_TOO_LARGE,
        Ok(Reason::Unexpected) => StatusCode::CONFLICT,
        Ok(Reason::TooMuch) => StatusCode::TOO_MANY_REQUESTS,
        Ok(Reason::Internal) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

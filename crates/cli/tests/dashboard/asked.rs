//! Requests without a library: what came is read as it is.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// An answer.
pub(super) struct Answered {
    pub(super) status: u16,
    /// The header, in small letters.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Answered {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// One request on a connection of its own. An answer that does not end is read for two seconds.
pub(super) fn ask(address: &str, method: &str, path: &str, token: Option<&str>) -> Answered {
    let mut stream = TcpStream::connect(address).unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = if method == "GET" { "" } else { "Content-Length: 0\r\n" };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{token}{length}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let (mut bytes, mut part) = (Vec::new(), [0; 1 << 16]);
    while let Ok(read @ 1..) = stream.read(&mut part) {
        bytes.extend_from_slice(&part[..read]);
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a header");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = bytes.split_off(end + 4);
    let chunked = head.contains("transfer-encoding: chunked");
    Answered { status, body: if chunked { unchunked(&body) } else { body }, head }
}

/// The bytes of chunks; what is not whole is left out.
fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = str::from_utf8(&rest[..line]).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let Some(length @ 1..) = length else { break };
        let Some(chunk) = rest.get(line + 2..line + 2 + length) else { break };
        all.extend_from_slice(chunk);
        rest = rest.get(line + 4 + length..).unwrap_or_default();
    }
    all
}

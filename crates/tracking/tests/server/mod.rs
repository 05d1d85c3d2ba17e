//! A tracking server for tests: it answers as the real one did, or asks the real one, and keeps what it was asked.
//!
//! Written over plain sockets, so that every byte of a request is seen.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde::{Deserialize, Serialize};

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exchange {
    /// Its first line, its headers and its body, as they came.
    pub(crate) request: String,
    pub(crate) status: u16,
    pub(crate) answer: String,
}

impl Exchange {
    /// Such as `POST /api/2.0/mlflow/runs/create`.
    pub(crate) fn what(&self) -> &str {
        self.request.split_once(" HTTP/1.1").unwrap().0
    }

    pub(crate) fn body(&self) -> serde_json::Value {
        serde_json::from_str(self.request.split_once("\r\n\r\n").unwrap().1).unwrap_or_default()
    }
}

/// Answers requests.
pub(crate) type Answers = Box<dyn FnMut(&str) -> (u16, String) + Send>;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Exchange>>>,
}

impl Server {
    /// One that answers by a function of the request.
    pub(crate) fn answering(answers: Answers) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), None, answers)
    }

    /// On a port, with TLS or without.
    pub(crate) fn on(listener: TcpListener, tls: Option<Arc<ServerConfig>>, answers: Answers) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (of_thread, answers) = (Arc::clone(&seen), Arc::new(Mutex::new(answers)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, tls, seen, answers) =
                    (stream.unwrap(), tls.clone(), Arc::clone(&of_thread), Arc::clone(&answers));
                thread::spawn(move || match tls {
                    None => serve(stream, &seen, &answers),
                    Some(config) => {
                        serve(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &seen, &answers)
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Exchange> {
        self.seen.lock().unwrap().clone()
    }

    /// What it was asked, such as `runs/create`, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        let last = |exchange: &Exchange| {
            let what = exchange.what().split('?').next().unwrap();
            what.split_once("/mlflow/").unwrap().1.to_owned()
        };
        self.seen().iter().map(last).collect()
    }

    /// All numbers that were sent: name, step, value, time.
    pub(crate) fn numbers(&self) -> Vec<(String, u64, f64, u64)> {
        let batches =
            self.seen().into_iter().filter(|exchange| exchange.status == 200 && exchange.what().ends_with("log-batch"));
        let of_batch = |exchange: Exchange| {
            let metrics = exchange.body()["metrics"].as_array().cloned().unwrap_or_default();
            metrics
                .into_iter()
                .map(|m| {
                    let number = |key: &str| m[key].as_u64().unwrap();
                    (
                        m["key"].as_str().unwrap().to_owned(),
                        number("step"),
                        m["value"].as_f64().unwrap(),
                        number("timestamp"),
                    )
                })
                .collect::<Vec<_>>()
        };
        batches.flat_map(of_batch).collect()
    }
}

fn serve(stream: impl Read + Write, seen: &Mutex<Vec<Exchange>>, answers: &Mutex<Answers>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream) {
        let (status, answer) = {
            let mut answers = answers.lock().unwrap();
            (*answers)(&request)
        };
        seen.lock().unwrap().push(Exchange { request, status, answer: answer.clone() });
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        if stream.get_mut().write_all((head + &answer).as_bytes()).and_then(|()| stream.get_mut().flush()).is_err() {
            return;
        }
    }
}

/// A message of HTTP/1.1 with a `content-length`, or none; none where the connection ends.
fn read(stream: &mut impl BufRead) -> Option<String> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head += &line;
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(head + str::from_utf8(&body).unwrap())
}

/// Asks another server the same.
pub(crate) fn forwarded(request: &str, to: SocketAddr) -> (u16, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let answer = read(&mut BufReader::new(stream)).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// What the real server says of what it does not have.
pub(crate) const NOT_THERE: &str = r#"{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"}"#;

/// Answers well enough: an experiment that is there, runs with numbers for names.
pub(crate) fn obliging() -> Answers {
    let mut runs = 0;
    Box::new(move |request| {
        if request.contains("/experiments/get-by-name") {
            return (200, r#"{"experiment": {"experiment_id": "7"}}"#.into());
        }
        if request.contains("/runs/create") {
            runs += 1;
            return (200, format!(r#"{{"run": {{"info": {{"run_id": "run-{runs}"}}}}}}"#));
        }
        (200, "{}".into())
    })
}

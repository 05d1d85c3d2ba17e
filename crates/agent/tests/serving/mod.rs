//! A small server of the protocol for tests: plain rounds of one task, kept in memory, over loopback with or without TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io::Write,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use device::{
    evaluation::EvaluationPlan,
    guard::Asked,
    learner::told::LearnerTerms,
    local::{Algorithm, LocalPlan},
    protocol::{
        hex,
        message::{
            Answer, Assignment, Blob, DeviceKey, Enrolled, Hello, Later, Realm, Reason, Received, Says, Signed, Thanks,
            Wait, Wants,
        },
        task::{Bounds, Model, Task, Work},
        terms::{PrivacyTerms, StepTerms, TaskTerms},
    },
    upload::UploadTerms,
};
use flate2::{Compression, write::GzEncoder};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, header::RANGE, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use lm::{tokenizer::Rules, vocabulary::Vocabulary};
use privacy::{
    Adjacency, ClipNorm, Participation,
    encoding::{Encoding, VectorPlan},
    stages::{ClipBit, ClipRule, Clipping, Encoded},
    units::MinSeparation,
};
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const REALM: Realm = Realm([3; 32]);

/// What the server knows.
pub(crate) struct Serving {
    task: Vec<u8>,
    step_terms: StepTerms,
    models: Vec<Vec<u8>>,
    state: Mutex<State>,
    /// How often a model was asked for.
    pub(crate) fetched: AtomicU64,
    /// Requests that fail on purpose: every so many-th.
    pub(crate) breaks: u64,
    asked: AtomicU64,
}

#[derive(Default)]
struct State {
    enrolled: BTreeSet<DeviceKey>,
    step: u64,
    tickets: BTreeMap<[u8; 32], (DeviceKey, u64)>,
    arriving: BTreeMap<[u8; 32], Vec<u8>>,
    /// Whose report is in which step.
    reports: BTreeSet<(u64, DeviceKey)>,
    wrong: Vec<String>,
}

impl Serving {
    /// A task with simulated noise.
    pub(crate) fn new(labels: usize, breaks: u64) -> Arc<Self> {
        Self::with(labels, breaks, true)
    }

    /// A task of evaluations.
    pub(crate) fn of_evaluations(labels: usize) -> Arc<Self> {
        Self::of(labels, 0, true, Some(EvaluationPlan { most_examples: 20 }))
    }

    /// A task of which devices send the largest coordinates of their updates, and keep the others; each takes part three times.
    pub(crate) fn of_few(labels: usize, count: usize) -> Arc<Self> {
        let mut serving = Arc::into_inner(Self::new(labels, 0)).unwrap();
        let mut terms: TaskTerms = serde_json::from_slice(&serving.task).unwrap();
        terms.upload = Some(UploadTerms::Largest { momentum: 0.5, local_clip: None });
        let separation = MinSeparation::rounds_between(0).unwrap();
        terms.participation = Participation::MinSeparation { separation, max_participations: 3 };
        serving.task = serde_json::to_vec(&terms).unwrap();
        serving.step_terms.encoding = serving.step_terms.encoding.with_few(count).unwrap();
        Arc::new(serving)
    }

    /// The work of its first step, with so many coordinates to send.
    pub(crate) fn work(&self, count: usize) -> Work {
        let task = Arc::new(Task::read(&self.task, &Bounds::default()).unwrap());
        let model = Arc::new(Model::read(&self.models[0]).unwrap());
        let mut step = self.step_terms.clone();
        step.encoding = step.encoding.with_few(count).unwrap();
        let asked = Asked { task: task.digest(), step: 0, model: model.digest() };
        Work { task, model, step, asked, is_last: false }
    }

    pub(crate) fn with(labels: usize, breaks: u64, simulated: bool) -> Arc<Self> {
        Self::of(labels, breaks, simulated, None)
    }

    fn of(labels: usize, breaks: u64, simulated: bool, evaluation: Option<EvaluationPlan>) -> Arc<Self> {
        let words = Vocabulary::new((0..97).map(|n| format!("w{n}"))).unwrap();
        let dimension = (words.len() + 1) * labels;
        let clip = ClipNorm::new(0.5).unwrap();
        // Of tags four numbers are counted.
        let given = if evaluation.is_some() { 4 } else { dimension };
        let encoding = Encoding::new(VectorPlan::of_update(given, 12), clip, None, Adjacency::ZeroOut).unwrap();
        let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None).unwrap();
        let separation = MinSeparation::rounds_between(0).unwrap();
        let terms = TaskTerms {
            name: "tags".into(),
            realm: hex(&REALM.0),
            learner: LearnerTerms::Tags { labels: (0..labels).map(|n| format!("t{n}")).collect() },
            vocabulary: words.to_text(),
            rules: Rules::Words1,
            local: LocalPlan {
                algorithm: Algorithm::FedAvg { epochs: 1 },
                batch: 8,
                unroll: 1,
                most_tokens: None,
                greedy: false,
                update_penalty: 0.0,
                finetune: None,
            },
            full_weight_tokens: None,
            rounds: 100,
            goal: 10,
            participation: Participation::MinSeparation { separation, max_participations: 100 },
            privacy: PrivacyTerms {
                mechanism: "none".into(),
                noise_multiplier: None,
                epsilon: None,
                delta: None,
                simulated,
            },
            secure: false,
            timer_s: None,
            evaluation,
            upload: None,
        };
        let model =
            |step: u64| (0..dimension).flat_map(|i| ((i as u64 % 7 + step) as f32 * 1e-3).to_le_bytes()).collect();
        Arc::new(Self {
            task: serde_json::to_vec(&terms).unwrap(),
            step_terms: StepTerms { clipping, encoding, learning_rate: 0.1 },
            models: (0..100).map(model).collect(),
            state: Mutex::default(),
            fetched: AtomicU64::new(0),
            breaks,
            asked: AtomicU64::new(0),
        })
    }

    /// Accepts connections from now on.
    pub(crate) async fn listen(self: &Arc<Self>, tls: Option<TlsAcceptor>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, tls) = (serving.clone(), tls.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let serving = serving.clone();
                        async move { Ok::<_, Infallible>(serving.answer(request).await) }
                    });
                    match tls {
                        None => _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                        }
                    }
                });
            }
        });
        address
    }

    /// Reports of a step.
    pub(crate) fn reports(&self, step: u64) -> usize {
        self.state.lock().unwrap().reports.iter().filter(|(of, _)| *of == step).count()
    }

    pub(crate) fn next_step(&self) {
        self.state.lock().unwrap().step += 1;
    }

    pub(crate) fn wrong(&self) -> Vec<String> {
        self.state.lock().unwrap().wrong.clone()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return Response::default() };
        let (path, body) = (head.uri.path().to_owned(), body.to_bytes());
        let breaks = self.breaks > 0 && asked.is_multiple_of(self.breaks);
        let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        let mut response = Response::new(Full::default());
        match parts[..] {
            _ if breaks => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
            ["hello"] => {
                let hello = Hello { oldest: 1, newest: 1, realm: REALM.0.to_vec(), time_s: 2_000_000_000 };
                *response.body_mut() = Full::new(hello.encode_to_vec().into());
            }
            ["say"] => {
                let says = self.say(&body);
                *response.body_mut() = Full::new(Answer::new(says).encode_to_vec().into());
            }
            ["blob", digest] => {
                let all = self.models.iter().chain([&self.task]);
                let Some(bytes) = all.into_iter().find(|b| hex(&Sha256::digest(b)) == digest) else {
                    *response.status_mut() = StatusCode::NOT_FOUND;
                    return response;
                };
                self.fetched.fetch_add(u64::from(bytes.len() != self.task.len()), Ordering::Relaxed);
                let packed = packed(bytes);
                let from: usize = head.headers.get(RANGE).map_or(0, |range| {
                    let range = range.to_str().unwrap();
                    range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap()
                });
                if from > 0 {
                    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                }
                *response.body_mut() = Full::new(packed[from..].to_vec().into());
            }
            ["report", ticket, offset] => {
                let says = self.report(ticket, offset.parse().unwrap(), &body);
                *response.body_mut() = Full::new(Answer::new(says).encode_to_vec().into());
            }
            _ => *response.status_mut() = StatusCode::NOT_FOUND,
        }
        response
    }

    fn say(&self, bytes: &[u8]) -> Says {
        let Ok((device, request)) = Signed::open(bytes, &REALM) else {
            return no(Reason::Signature);
        };
        if request.time_s.abs_diff(2_000_000_000) > 1000 {
            return no(Reason::Clock);
        }
        let mut state = self.state.lock().unwrap();
        match request.wants {
            Some(Wants::Enrol(enrol)) if enrol.token == b"let me in" => {
                state.enrolled.insert(device);
                Says::Enrolled(Enrolled { after_s: 0 })
            }
            Some(Wants::Enrol(_)) => no(Reason::NotAdmitted),
            Some(_) if !state.enrolled.contains(&device) => no(Reason::Stranger),
            Some(Wants::CheckIn(_)) => self.assign(&mut state, device),
            Some(Wants::Next(next)) => match state.tickets.get(&next.ticket[..]) {
                Some((_, step)) if state.reports.contains(&(*step, device)) => thanks(*step),
                Some(_) => {
                    let offset = state.arriving.get(&next.ticket[..]).map_or(0, |a| a.len() as u64);
                    Says::Received(Received { offset })
                }
                None => no(Reason::Closed),
            },
            _ => Says::Wait(Wait { after_ms: 10 }),
        }
    }

    fn assign(&self, state: &mut State, device: DeviceKey) -> Says {
        let step = state.step;
        let ticket: [u8; 32] = Sha256::digest([&device.0[..], &step.to_le_bytes()].concat()).into();
        if step >= 100 || state.tickets.contains_key(&ticket) {
            return Says::Later(Later { after_s: 1 });
        }
        state.tickets.insert(ticket, (device, step));
        let blob = |bytes: &[u8]| Some(Blob { digest: Sha256::digest(bytes).to_vec(), bytes: bytes.len() as u64 });
        Says::Assignment(Assignment {
            ticket: ticket.to_vec(),
            task: blob(&self.task),
            model: blob(&self.models[step as usize]),
            step,
            attempt: 0,
            terms: serde_json::to_vec(&self.step_terms).unwrap(),
            tick_ms: 20,
            within_ms: 20_000,
            offer: Vec::new(),
        })
    }

    fn report(&self, ticket: &str, offset: u64, chunk: &[u8]) -> Says {
        let mut state = self.state.lock().unwrap();
        let Some((ticket, (device, step))) =
            state.tickets.iter().find(|(t, _)| hex(*t) == ticket).map(|(t, known)| (*t, *known))
        else {
            return no(Reason::Closed);
        };
        let arriving = state.arriving.entry(ticket).or_default();
        if offset == arriving.len() as u64 {
            arriving.extend_from_slice(chunk);
        }
        let arrived = arriving.len();
        if arrived < self.step_terms.encoding.packing().bytes() {
            return Says::Received(Received { offset: arrived as u64 });
        }
        if let Err(e) = Encoded::check(&state.arriving[&ticket], &self.step_terms.encoding) {
            state.wrong.push(e.to_string());
        }
        state.reports.insert((step, device));
        thanks(step)
    }
}

fn thanks(step: u64) -> Says {
    Says::Thanks(Thanks { eligible_from_step: step + 1, after_s: 0 })
}

fn no(reason: Reason) -> Says {
    Answer::refused(reason, "no", 2_000_000_000, 0).says.unwrap()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

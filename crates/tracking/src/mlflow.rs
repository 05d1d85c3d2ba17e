//! Requests of MLflow's REST API: experiments, runs, parameters, metrics by step, tags.
//!
//! `https://mlflow.org/docs/latest/api_reference/rest-api.html`. Requests were checked against the real server; its answers are in
//! `testdata`.

use hyper::Method;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{TrackError, http::Client};

const API: &str = "/api/2.0/mlflow";
/// The most numbers that a server accepts in one request.
pub(crate) const MOST_METRICS: usize = 1000;
/// The most parameters that a server accepts in one request.
pub(crate) const MOST_PARAMS: usize = 100;
/// The longest value of a parameter that older servers accept.
const LONGEST_PARAM: usize = 500;
/// The longest value of a tag.
const LONGEST_TAG: usize = 5000;

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Status {
    Running,
    Finished,
    Failed,
    Killed,
}

/// A name and a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Named {
    key: String,
    value: String,
}

impl Named {
    pub(crate) fn param(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: cut(value, LONGEST_PARAM) }
    }

    pub(crate) fn tag(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: cut(value, LONGEST_TAG) }
    }
}

/// A number of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Value {
    pub(crate) key: String,
    pub(crate) value: f64,
    /// In milliseconds since 1970.
    pub(crate) timestamp: u64,
    pub(crate) step: u64,
}

#[derive(Serialize)]
struct CreateExperiment<'a> {
    name: &'a str,
}

#[derive(Deserialize)]
struct ExperimentId {
    experiment_id: String,
}

#[derive(Deserialize)]
struct FoundExperiment {
    experiment: ExperimentId,
}

#[derive(Serialize)]
struct CreateRun<'a> {
    experiment_id: &'a str,
    run_name: &'a str,
    start_time: u64,
    tags: &'a [Named],
}

#[derive(Deserialize)]
struct MadeRun {
    run: Run,
}

#[derive(Serialize)]
struct SearchRuns<'a> {
    experiment_ids: [&'a str; 1],
    filter: &'a str,
    max_results: u32,
}

#[derive(Deserialize)]
struct FoundRuns {
    #[serde(default)]
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    info: Info,
}

#[derive(Deserialize)]
struct Info {
    run_id: String,
}

#[derive(Serialize)]
struct LogBatch<'a> {
    run_id: &'a str,
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    metrics: &'a [Value],
    #[serde(skip_serializing_if = "<[Named]>::is_empty")]
    params: &'a [Named],
    #[serde(skip_serializing_if = "<[Named]>::is_empty")]
    tags: &'a [Named],
}

#[derive(Serialize)]
struct UpdateRun<'a> {
    run_id: &'a str,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_time: Option<u64>,
}

/// A server of MLflow.
pub(crate) struct Mlflow {
    pub(crate) client: Client,
}

impl Mlflow {
    /// The experiment of our account; created if it does not exist.
    pub(crate) async fn experiment(&mut self) -> Result<String, TrackError> {
        let name = self.client.experiment().to_owned();
        if let Some(id) = self.find_experiment(&name).await? {
            return Ok(id);
        }
        let made = self.post::<ExperimentId>("experiments/create", &CreateExperiment { name: &name }).await;
        match made {
            Ok(made) => Ok(made.experiment_id),
            // Somebody else created it at the same time.
            Err(error @ TrackError::Refused { status: 400, .. }) => self.find_experiment(&name).await?.ok_or(error),
            Err(other) => Err(other),
        }
    }

    async fn find_experiment(&mut self, name: &str) -> Result<Option<String>, TrackError> {
        let path = format!("{API}/experiments/get-by-name?experiment_name={}", quoted(name));
        match self.client.ask(Method::GET, &path, Vec::new()).await {
            Ok(answer) => Ok(Some(understood::<FoundExperiment>(&answer)?.experiment.experiment_id)),
            Err(TrackError::Refused { status: 404, .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// The id of the run with a tag, if the server has one that is not deleted.
    pub(crate) async fn find_run(
        &mut self,
        experiment_id: &str,
        tag: &str,
        value: &str,
    ) -> Result<Option<String>, TrackError> {
        let filter = format!("tags.`{tag}` = '{value}'");
        let search = SearchRuns { experiment_ids: [experiment_id], filter: &filter, max_results: 1 };
        let found: FoundRuns = self.post("runs/search", &search).await?;
        Ok(found.runs.into_iter().next().map(|run| run.info.run_id))
    }

    /// Creates a run and returns its id.
    pub(crate) async fn create_run(
        &mut self,
        experiment_id: &str,
        run_name: &str,
        start_time: u64,
        tags: &[Named],
    ) -> Result<String, TrackError> {
        let made: MadeRun = self.post("runs/create", &CreateRun { experiment_id, run_name, start_time, tags }).await?;
        Ok(made.run.info.run_id)
    }

    /// Whether the server has a run, and it is not deleted.
    pub(crate) async fn has_run(&mut self, run_id: &str) -> Result<bool, TrackError> {
        match self.update(run_id, Status::Running, None).await {
            Ok(()) => Ok(true),
            Err(TrackError::Refused { status: 400 | 404, .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Logs numbers, parameters and tags of a run. Logging the same again changes nothing.
    pub(crate) async fn log(
        &mut self,
        run_id: &str,
        metrics: &[Value],
        params: &[Named],
        tags: &[Named],
    ) -> Result<(), TrackError> {
        self.tell("runs/log-batch", &LogBatch { run_id, metrics, params, tags }).await
    }

    /// Sets the status of a run, and when it ended.
    pub(crate) async fn update(
        &mut self,
        run_id: &str,
        status: Status,
        end_time: Option<u64>,
    ) -> Result<(), TrackError> {
        self.tell("runs/update", &UpdateRun { run_id, status, end_time }).await
    }

    async fn post<T: DeserializeOwned>(&mut self, what: &str, body: &impl Serialize) -> Result<T, TrackError> {
        understood(&self.client.ask(Method::POST, &format!("{API}/{what}"), json(body)).await?)
    }

    async fn tell(&mut self, what: &str, body: &impl Serialize) -> Result<(), TrackError> {
        self.client.ask(Method::POST, &format!("{API}/{what}"), json(body)).await.map(drop)
    }
}

/// Texts, numbers and lists of them can always be serialized.
fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

fn understood<T: DeserializeOwned>(answer: &[u8]) -> Result<T, TrackError> {
    let wrong = |error: serde_json::Error| TrackError::Refused {
        status: 200,
        message: format!("an unexpected answer ({error}): is this an MLflow server?"),
    };
    serde_json::from_slice(answer).map_err(wrong)
}

/// The beginning of a text, of at most `most` bytes.
fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// Percent-encoded, for a URL.
fn quoted(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let sign = |byte: u8| if plain(&byte) { (byte as char).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_in_addresses() {
        assert_eq!(quoted("my runs/é&?"), "my%20runs%2F%C3%A9%26%3F");
        assert_eq!(quoted("keyhush-1_2.3~"), "keyhush-1_2.3~");
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!((cut("aéb", 2), cut("aéb", 3), cut("", 5)), ("a".into(), "aé".into(), String::new()));
        assert_eq!(Named::param("a", &"x".repeat(600)).value.len(), LONGEST_PARAM);
    }

    #[test]
    fn another_server_is_recognised() {
        let said = understood::<MadeRun>(b"<html>").err().unwrap().to_string();
        assert!(said.contains("is this an MLflow server?"), "{said}");
    }
}

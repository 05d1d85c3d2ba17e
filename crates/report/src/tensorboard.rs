//! What a run measured, as an event file that TensorBoard reads.
//!
//! The frames are written by hand: records as in a TFRecord file, each an `Event` of TensorFlow's `event.proto` with a wall time, a
//! step and a summary of scalars. That is five fields of two messages, sixty lines; a crate for protocol buffers would bring a
//! code generator and TensorFlow's definitions to the build. `tensorboard-rs` (0.5.9) brings `protobuf`, `image` and `gethostname`,
//! names its file after clock, host and process, and puts the time of writing into every event: the same run would not give the
//! same bytes.
//!
//! The file follows from the other files of a run alone: it can be written anew at any time, and what more evaluations add
//! stands behind what was there. So a run that is resumed has no step twice, and a TensorBoard that is watching goes on
//! reading where it was.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use crc32c::crc32c;
use durable::files::{self, FileError};
use federated::{
    metrics::{
        METRICS_FILE, Metric, Metrics, TIMING_FILE, Timing,
        registry::{Absent, METRICS},
        training::{EPSILON, RHO},
    },
    price::Meaning,
};

use crate::run::time::seconds;

/// The name of the file in the folder of a run; TensorBoard takes any file that has `tfevents` in its name.
pub const EVENTS_FILE: &str = "events.out.tfevents.keyhush";

/// Brings the file of a run up to what its folder holds. `started` is when the run was created, in seconds since 1970.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write(folder: &Path, started: u64) -> Result<(), FileError> {
    let metrics: Vec<Metrics> = files::read_whole_lines(&folder.join(METRICS_FILE))?;
    let path = folder.join(EVENTS_FILE);
    let timing: Vec<Timing> = files::read_whole_lines(&folder.join(TIMING_FILE))?;
    save(&path, &events(&metrics, &timing, started as f64)).map_err(files::failed("write", &path))
}

/// The content of the file: an event for every evaluation. `started` is when the run was created, in seconds since 1970;
/// what it did since is counted from the times of its rounds, without pauses.
#[must_use]
pub fn events(metrics: &[Metrics], timing: &[Timing], started: f64) -> Vec<u8> {
    let mut file = Vec::new();
    let mut version = event(started, 0);
    bytes(&mut version, 3, b"brain.Event:2");
    record(&mut file, &version);
    let mut timing = timing.iter().peekable();
    let mut now = started;
    for line in metrics {
        while let Some(round) = timing.next_if(|t| t.round < line.round) {
            now += seconds(round);
        }
        let mut summary = Vec::new();
        for (tag, value) in scalars(line) {
            bytes(&mut summary, 1, &scalar(&tag, value));
        }
        let mut event = event(now, line.round);
        bytes(&mut event, 5, &summary);
        record(&mut file, &event);
    }
    file
}

/// Brings a file to this content. What is there stays where it is if it is the beginning of the content.
fn save(path: &Path, events: &[u8]) -> io::Result<()> {
    let there = match fs::read(path) {
        Ok(there) => there,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(e),
    };
    match events.strip_prefix(&there[..]) {
        Some(more) => fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(more),
        None => files::write(path, events).map_err(|e| e.error),
    }
}

/// What an evaluation shows, by tag: first what there always is, then the rest. An infinite epsilon is written as infinity, which
/// TensorBoard marks; another number that is infinite is left out.
fn scalars(line: &Metrics) -> Vec<(String, f64)> {
    let (always, sometimes): (Vec<&Metric>, Vec<&Metric>) =
        METRICS.iter().copied().partition(|metric| metric.absent == Absent::Zero);
    let scalar = |metric: &Metric| {
        let value = metric.of(line)?;
        let is_shown = metric.absent != Absent::Infinite || value.is_finite();
        is_shown.then_some((tag(metric, line.price.meaning)?, value))
    };
    always.into_iter().chain(sometimes).filter_map(scalar).collect()
}

/// The tag of a number; that of a price says what it means (rule P23).
fn tag(metric: &Metric, meaning: Meaning) -> Option<String> {
    let ending = match meaning {
        _ if *metric != EPSILON && *metric != RHO => "",
        Meaning::Guaranteed => "",
        Meaning::SoFar => "_so_far",
        Meaning::IfSecret => "_if_secret",
    };
    Some(format!("{}{ending}", metric.tag?))
}

/// An `Event` with its fields 1, `wall_time`, and 2, `step`.
fn event(wall_time: f64, step: u64) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend(wall_time.to_le_bytes());
    event.push(2 << 3);
    varint(&mut event, step);
    event
}

/// A `Summary.Value` with its fields 1, `tag`, and 2, `simple_value`.
fn scalar(tag: &str, value: f64) -> Vec<u8> {
    let mut scalar = Vec::new();
    bytes(&mut scalar, 1, tag.as_bytes());
    scalar.push(2 << 3 | 5);
    scalar.extend((value as f32).to_le_bytes());
    scalar
}

/// A field that holds bytes: a text or another message.
fn bytes(message: &mut Vec<u8>, field: u8, content: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, content.len() as u64);
    message.extend(content);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// A record: its length, the checksum of that, the content, the checksum of that.
fn record(file: &mut Vec<u8>, content: &[u8]) {
    let length = (content.len() as u64).to_le_bytes();
    for part in [&length, content] {
        file.extend(part);
        file.extend(masked(crc32c(part)).to_le_bytes());
    }
}

/// As TFRecord files keep checksums, so that one of data with checksums in it differs from them.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use federated::{
        metrics::{
            Measured,
            prediction::{ACCURACY_TOP1, ACCURACY_TOP3, NEXT_WORDS, PERPLEXITY},
        },
        price::Price,
    };
    use privacy::{Epsilon, Rho};

    use super::*;

    #[test]
    fn checksums_are_those_of_tfrecord_files() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // The first record of every event file: the length 24 and its checksum as TensorFlow writes them.
        assert_eq!(masked(crc32c(&24u64.to_le_bytes())).to_le_bytes(), [0xa3, 0x7f, 0x4b, 0x22]);
    }

    fn line(round: u64) -> Metrics {
        Metrics {
            round,
            measured: Measured::new(&NEXT_WORDS, |metric| match metric {
                m if *m == ACCURACY_TOP1 => Some(0.125),
                m if *m == ACCURACY_TOP3 => Some(0.25),
                m if *m == PERPLEXITY => None,
                _ => Some(0.5),
            }),
            targets: 10,
            by_devices: None,
            clip_norm: Some(0.75),
            tracked_clip_norm: None,
            fraction_below_clip: None,
            server_learning_rate: 1.0,
            planned_participations: 300,
            failed_attempts: 0,
            price: Price { meaning: Meaning::IfSecret, epsilon: Epsilon::INFINITE, rho: Some(Rho::new(0.5).unwrap()) },
            projected_epsilon: None,
        }
    }

    fn timing(round: u64) -> Timing {
        Timing {
            round,
            sample_s: 0.0,
            train_s: 1.5,
            train_busy_s: 3.0,
            threads: 2,
            release_s: 0.25,
            ledger_s: 0.25,
            optimizer_s: 0.0,
            evaluate_s: 0.0,
            checkpoint_s: 0.0,
        }
    }

    /// A field of a message: its number and its content.
    #[derive(Debug, PartialEq)]
    enum Field<'a> {
        Varint(u64, u64),
        Double(u64, f64),
        Float(u64, f32),
        Bytes(u64, &'a [u8]),
    }

    fn take<'a>(data: &mut &'a [u8], n: usize) -> &'a [u8] {
        let (taken, rest) = data.split_at(n);
        *data = rest;
        taken
    }

    fn read_varint(data: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = take(data, 1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn fields(mut message: &[u8]) -> Vec<Field<'_>> {
        let mut fields = Vec::new();
        while !message.is_empty() {
            let key = read_varint(&mut message);
            fields.push(match key & 7 {
                0 => Field::Varint(key >> 3, read_varint(&mut message)),
                1 => Field::Double(key >> 3, f64::from_le_bytes(take(&mut message, 8).try_into().unwrap())),
                2 => {
                    let length = read_varint(&mut message);
                    Field::Bytes(key >> 3, take(&mut message, length as usize))
                }
                _ => Field::Float(key >> 3, f32::from_le_bytes(take(&mut message, 4).try_into().unwrap())),
            });
        }
        fields
    }

    fn records(mut file: &[u8]) -> Vec<&[u8]> {
        let mut records = Vec::new();
        while !file.is_empty() {
            let mut checked = |n: usize| {
                let content = take(&mut file, n);
                assert_eq!(take(&mut file, 4), masked(crc32c(content)).to_le_bytes());
                content
            };
            let length = u64::from_le_bytes(checked(8).try_into().unwrap());
            records.push(checked(length as usize));
        }
        records
    }

    #[test]
    fn what_is_written_is_read_back() {
        let file = events(&[line(0), line(300)], &[timing(0), timing(1), timing(300)], 1000.5);
        let records = records(&file);
        assert_eq!(records.len(), 3);
        let version = [Field::Double(1, 1000.5), Field::Varint(2, 0), Field::Bytes(3, b"brain.Event:2")];
        assert_eq!(fields(records[0]), version);
        // Rounds 0 and 1 took two seconds each; round 300 comes after the evaluation.
        let last = fields(records[2]);
        assert_eq!(last[..2], [Field::Double(1, 1004.5), Field::Varint(2, 300)]);
        let Field::Bytes(5, summary) = last[2] else { panic!("{last:?}") };
        let scalars: Vec<(String, f32)> = fields(summary)
            .into_iter()
            .map(|value| {
                let Field::Bytes(1, value) = value else { panic!("{value:?}") };
                match fields(value)[..] {
                    [Field::Bytes(1, tag), Field::Float(2, value)] => (str::from_utf8(tag).unwrap().to_owned(), value),
                    ref other => panic!("{other:?}"),
                }
            })
            .collect();
        let expected = [
            ("accuracy/top1", 0.125),
            ("accuracy/top3", 0.25),
            ("accuracy/in_vocabulary", 0.5),
            ("privacy/epsilon_if_secret", f32::INFINITY),
            ("server/learning_rate", 1.0),
            ("server/planned_participations", 300.0),
            ("clip/norm", 0.75),
            ("privacy/rho_if_secret", 0.5),
        ];
        assert_eq!(scalars, expected.map(|(tag, value)| (tag.to_owned(), value)));
    }

    #[test]
    fn a_run_without_evaluations_has_a_file_that_says_what_it_is() {
        assert_eq!(records(&events(&[], &[], 1.0)).len(), 1);
    }

    #[test]
    fn more_evaluations_are_added_behind_and_others_replace_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(EVENTS_FILE);
        let one = events(&[line(0)], &[], 1.0);
        let two = events(&[line(0), line(300)], &[timing(0)], 1.0);
        assert!(two.starts_with(&one));
        save(&path, &one).unwrap();
        // As a crash while writing leaves it.
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&two[one.len()..one.len() + 7]).unwrap();
        let mut watching = fs::File::open(&path).unwrap();
        save(&path, &two).unwrap();
        let mut seen = Vec::new();
        io::Read::read_to_end(&mut watching, &mut seen).unwrap();
        assert_eq!(seen, two);
        save(&path, &two).unwrap();
        assert_eq!(fs::read(&path).unwrap(), two);
        let other = events(&[line(0), line(300)], &[timing(1)], 5.0);
        save(&path, &other).unwrap();
        assert_eq!(fs::read(&path).unwrap(), other);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        save(&path, &one).unwrap();
        assert_eq!(fs::read(&path).unwrap(), one);
    }
}

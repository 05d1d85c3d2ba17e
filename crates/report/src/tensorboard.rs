//! The scalars of a run as an event file for TensorBoard.
//!
//! Records as in a TFRecord file, each an `Event` of TensorFlow's `event.proto` with a wall time, a step and a summary of scalars. The
//! messages are those five fields, by derive; the frames around them are written here. `tensorboard-rs` (0.5.9) has both, but brings
//! `protobuf`, `image` and `gethostname`, names its file after clock, host and process, and puts the time of writing into every
//! event: the same run would not give the same bytes.
//!
//! The file follows from the other files of a run alone: it can be rewritten at any time, and what more rounds and evaluations
//! add comes after what was there. So a run that is resumed has no step twice, and a TensorBoard that is watching continues
//! reading where it was.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use crc32c::crc32c;
use durable::files::{self, FileError};
use prost::Message;

use crate::scalars::{Lines, Step};

/// The name of the file in the folder of a run; TensorBoard takes any file that has `tfevents` in its name.
pub const EVENTS_FILE: &str = "events.out.tfevents.keyhush";

/// Brings the file of a run up to what its folder holds. `started` is when the run was created, in seconds since 1970.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write(folder: &Path, started: u64) -> Result<(), FileError> {
    let path = folder.join(EVENTS_FILE);
    let lines = Lines::read(folder)?;
    save(&path, &events(&lines.steps(), started as f64)).map_err(files::failed("write", &path))
}

/// The content of the file: an event for every step. `started` is when the run was created, in seconds since 1970; what it did since is
/// counted from the times of its rounds, without pauses.
#[must_use]
pub fn events(steps: &[Step], started: f64) -> Vec<u8> {
    let mut file = Vec::new();
    let version = Event { file_version: Some("brain.Event:2".into()), ..Event::new(started, 0) };
    record(&mut file, &version.encode_to_vec());
    for Step { round, seconds, scalars, .. } in steps {
        let value = |(tag, value): &(String, f64)| Value { tag: tag.clone(), simple_value: *value as f32 };
        let summary = Some(Summary { value: scalars.iter().map(value).collect() });
        record(&mut file, &Event { summary, ..Event::new(started + seconds, *round) }.encode_to_vec());
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

/// `Event` of TensorFlow's `event.proto`, as far as it is written.
#[derive(Clone, PartialEq, Message)]
struct Event {
    /// Seconds since 1970.
    #[prost(double, required, tag = "1")]
    wall_time: f64,
    #[prost(uint64, required, tag = "2")]
    step: u64,
    /// Of the first event alone.
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

impl Event {
    const fn new(wall_time: f64, step: u64) -> Self {
        Self { wall_time, step, file_version: None, summary: None }
    }
}

/// `Summary` of `summary.proto`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `Summary.Value`.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, required, tag = "1")]
    tag: String,
    #[prost(float, required, tag = "2")]
    simple_value: f32,
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
    use crate::scalars::tests::{diagnostics, evaluation, timing};

    use super::*;

    #[test]
    fn checksums_are_those_of_tfrecord_files() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // The first record of every event file: the length 24 and its checksum as TensorFlow writes them.
        assert_eq!(masked(crc32c(&24u64.to_le_bytes())).to_le_bytes(), [0xa3, 0x7f, 0x4b, 0x22]);
    }

    fn lines(evaluations: &[u64], rounds: &[u64]) -> Vec<Step> {
        let metrics = evaluations.iter().map(|round| evaluation(*round)).collect();
        let of_rounds = || rounds.iter().copied();
        Lines {
            metrics,
            timing: of_rounds().map(timing).collect(),
            diagnostics: of_rounds().map(diagnostics).collect(),
        }
        .steps()
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

    /// The wall time, the step and the scalars of an event.
    fn read(record: &[u8]) -> (f64, u64, Vec<(String, f32)>) {
        let [Field::Double(1, time), Field::Varint(2, step), Field::Bytes(5, summary)] = fields(record)[..] else {
            panic!("{:?}", fields(record))
        };
        let scalar = |value| {
            let Field::Bytes(1, value) = value else { panic!("{value:?}") };
            match fields(value)[..] {
                [Field::Bytes(1, tag), Field::Float(2, value)] => (str::from_utf8(tag).unwrap().to_owned(), value),
                ref other => panic!("{other:?}"),
            }
        };
        (time, step, fields(summary).into_iter().map(scalar).collect())
    }

    #[test]
    fn what_is_written_is_read_back() {
        let file = events(&lines(&[0, 300], &[1, 2, 301]), 1000.5);
        let records = records(&file);
        assert_eq!(records.len(), 1 + 2 + 3);
        let version = [Field::Double(1, 1000.5), Field::Varint(2, 0), Field::Bytes(3, b"brain.Event:2")];
        assert_eq!(fields(records[0]), version);
        // A round took two seconds; round 301 comes after the evaluation.
        let (time, step, of_round) = read(records[2]);
        assert_eq!((time, step, of_round[0].clone()), (1002.5, 1, ("train_not_private/loss".to_owned(), 4.5)));
        assert!(of_round.contains(&("train_not_private/update_norm_median".to_owned(), 2.0)));
        assert!(of_round.contains(&("train_not_private/clipped_share".to_owned(), 0.75)));
        assert!(of_round.contains(&("seconds/round".to_owned(), 2.0)));
        let (time, step, scalars) = read(records[4]);
        assert_eq!((time, step), (1004.5, 300));
        assert_eq!(read(records[5]).1, 301);
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
        assert_eq!(records(&events(&[], 1.0)).len(), 1);
    }

    #[test]
    fn more_rounds_are_added_behind_and_others_replace_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(EVENTS_FILE);
        let one = events(&lines(&[0], &[]), 1.0);
        let two = events(&lines(&[0, 300], &[1]), 1.0);
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
        let other = events(&lines(&[0, 300], &[2]), 5.0);
        save(&path, &other).unwrap();
        assert_eq!(fs::read(&path).unwrap(), other);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        save(&path, &one).unwrap();
        assert_eq!(fs::read(&path).unwrap(), one);
    }
}

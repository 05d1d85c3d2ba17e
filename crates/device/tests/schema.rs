//! The schema for other languages says what the Rust types say: every message with every field set is read by the schema alone, no
//! field is unknown to it, and none of its fields is missing.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::collections::BTreeSet;

use keyhush_device::protocol::message::{
    Answer, Assignment, Blob, CheckIn, Enrol, Enrolled, Hello, Later, Next, Reason, Received, Refused, Request, Says,
    SecureMessage, Signed, Thanks, Unsupported, Wait, Wants,
};
use prost::Message;
use protox::prost_reflect::{DescriptorPool, DynamicMessage, Kind, ReflectMessage, Value};

fn schema() -> DescriptorPool {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/protocol");
    let files = protox::compile(["keyhush.proto"], [folder]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap()
}

/// What is wrong with a message as the schema reads it; what it has goes into `seen`.
fn judge(message: &DynamicMessage, seen: &mut BTreeSet<String>, wrong: &mut Vec<String>) {
    let name = message.descriptor().name().to_owned();
    for field in message.unknown_fields() {
        wrong.push(format!("{name} has a field {} that the schema does not know", field.number()));
    }
    for field in message.descriptor().fields() {
        // Of a choice one is set; all of them are, over all examples.
        if !message.has_field(&field) {
            if field.containing_oneof().is_none() {
                wrong.push(format!("{name}.{} is not set", field.name()));
            }
            continue;
        }
        seen.insert(format!("{name}.{}", field.name()));
        match (message.get_field(&field).as_ref(), field.kind()) {
            (Value::Message(inner), _) => judge(inner, seen, wrong),
            (Value::EnumNumber(number), Kind::Enum(numbers)) if numbers.get_value(*number).is_none() => {
                wrong.push(format!("{name}.{} has a number that the schema does not know", field.name()));
            }
            _ => {}
        }
    }
}

fn read(pool: &DescriptorPool, name: &str, bytes: &[u8], seen: &mut BTreeSet<String>) -> Vec<String> {
    let descriptor = pool.get_message_by_name(&format!("keyhush.v1.{name}")).unwrap();
    let message = DynamicMessage::decode(descriptor, bytes).unwrap();
    let mut wrong = Vec::new();
    judge(&message, seen, &mut wrong);
    if message.encode_to_vec() != bytes {
        wrong.push(format!("{name} is written in other bytes"));
    }
    wrong
}

fn blob() -> Option<Blob> {
    Some(Blob { digest: vec![1], bytes: 2 })
}

fn everything() -> Vec<(&'static str, Vec<u8>)> {
    let secure = || SecureMessage { ticket: vec![1], message: vec![2] };
    let assignment = Assignment {
        ticket: vec![1],
        task: blob(),
        model: blob(),
        step: 1,
        attempt: 2,
        terms: vec![3],
        tick_ms: 4,
        within_ms: 5,
        offer: vec![6],
    };
    let wants = [
        Wants::Enrol(Enrol { token: vec![1], attestation: vec![2] }),
        Wants::CheckIn(CheckIn { patience_ms: 1, resting: vec![vec![2]] }),
        Wants::Next(Next { ticket: vec![1], patience_ms: 2 }),
        Wants::Secure(secure()),
    ];
    let refused =
        |reason: Reason| Says::Refused(Refused { reason: reason.into(), words: "x".into(), time_s: 1, after_s: 2 });
    let says = [
        Says::Enrolled(Enrolled { after_s: 1 }),
        Says::Later(Later { after_s: 1 }),
        Says::Assignment(assignment),
        Says::Received(Received { offset: 1 }),
        Says::Wait(Wait { after_ms: 1 }),
        Says::Thanks(Thanks { eligible_from_step: 1, after_s: 2 }),
        Says::Secure(secure()),
        Says::Unsupported(Unsupported { oldest: 1, newest: 2 }),
    ];
    let reasons = (1..=11).map(|reason| refused(Reason::try_from(reason).unwrap()));
    let mut all = vec![
        ("Hello", Hello { oldest: 1, newest: 2, realm: vec![3], time_s: 4 }.encode_to_vec()),
        ("Signed", Signed { version: 1, device: vec![2], body: vec![3], signature: vec![4] }.encode_to_vec()),
    ];
    all.extend(wants.map(|wants| ("Request", Request { time_s: 1, number: 2, wants: Some(wants) }.encode_to_vec())));
    all.extend(says.into_iter().chain(reasons).map(|says| ("Answer", Answer::new(says).encode_to_vec())));
    all
}

#[test]
fn the_schema_says_what_the_types_say() {
    let pool = schema();
    let mut seen = BTreeSet::new();
    for (name, bytes) in everything() {
        assert_eq!(read(&pool, name, &bytes, &mut seen), Vec::<String>::new());
    }
    let messages = || pool.all_messages().filter(|m| m.package_name() == "keyhush.v1");
    let fields = messages().flat_map(|m| {
        let fields: Vec<String> = m.fields().map(|f| format!("{}.{}", m.name(), f.name())).collect();
        fields
    });
    let missing: Vec<String> = fields.filter(|field| !seen.contains(field)).collect();
    assert!(missing.is_empty(), "the types do not have {missing:?}");
    let reasons = pool.get_enum_by_name("keyhush.v1.Reason").unwrap();
    assert_eq!(reasons.values().count(), 12);
    for reason in reasons.values() {
        let ours = Reason::try_from(reason.number()).unwrap();
        let name: String = reason.name().to_lowercase().replace('_', "");
        assert_eq!(format!("{ours:?}").to_lowercase(), name);
    }
}

/// The test above can fail: a field more, or one less, is seen.
#[test]
fn a_field_that_only_one_side_has_is_noticed() {
    let pool = schema();
    let mut bytes = CheckIn { patience_ms: 1, resting: vec![vec![2]] }.encode_to_vec();
    assert!(read(&pool, "CheckIn", &bytes, &mut BTreeSet::new()).is_empty());
    bytes.extend([7 << 3, 1]);
    assert!(read(&pool, "CheckIn", &bytes, &mut BTreeSet::new())[0].contains("field 7"));
    assert!(read(&pool, "CheckIn", &[], &mut BTreeSet::new())[0].contains("not set"));
}

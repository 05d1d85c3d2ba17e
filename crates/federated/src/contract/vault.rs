//! The tests that every vault must pass.

use std::sync::Arc;

use crate::secrets::{SecretName, Vault};

/// The suite, for a vault that holds nothing. `make` reopens the same one, as a restart does.
pub fn vault(make: &dyn Fn() -> Arc<dyn Vault>) {
    // A vault is made with its first secret.
    make().create(SecretName::SigningKey, b"a first secret").unwrap();
    make().destroy(SecretName::SigningKey).unwrap();
    for name in SecretName::ALL {
        let others: Vec<SecretName> = SecretName::ALL.into_iter().filter(|other| *other != name).collect();
        let read = || make().read(name).expect("it can be read").map(|bytes| bytes.to_vec());
        let expect = |want: Option<&[u8]>, after: &str| {
            assert_eq!(read().as_deref(), want, "{} {after}", name.word());
            assert_eq!(make().exists(name).expect("it can be looked for"), want.is_some(), "{} {after}", name.word());
            let there = |other: &&SecretName| make().exists(**other).expect("it can be looked for");
            assert_eq!(others.iter().find(there), None, "{} {after}: another secret is there", name.word());
        };
        expect(None, "before anything");
        make().destroy(name).expect("nothing is there, and that is no failure");
        make().wipe_from(name, 0).expect("nothing is there, and that is no failure");
        make().create(name, b"one").unwrap();
        expect(Some(b"one"), "made");
        make().create(name, b"two and more").unwrap();
        expect(Some(b"two and more"), "made anew");
        make().append(name, b", and more").unwrap();
        expect(Some(b"two and more, and more"), "added to");
        make().wipe_from(name, 3).unwrap();
        expect(Some(b"two"), "wiped from 3 on");
        make().wipe_from(name, 30).unwrap();
        expect(Some(b"two"), "wiped behind its end");
        make().replace(name, b"three").unwrap();
        expect(Some(b"three"), "replaced");
        make().replace(name, b"").unwrap();
        expect(Some(b""), "replaced by nothing");
        make().append(name, &[0, 255, 10]).unwrap();
        expect(Some(&[0, 255, 10]), "bytes that are no text");
        make().wipe_from(name, 0).unwrap();
        expect(Some(b""), "wiped");
        make().destroy(name).unwrap();
        expect(None, "destroyed");
        make().append(name, b"new").unwrap();
        expect(Some(b"new"), "begun by adding to it");
        make().destroy(name).unwrap();
        expect(None, "destroyed again");
        assert!(!make().place(name).is_empty());
    }
}

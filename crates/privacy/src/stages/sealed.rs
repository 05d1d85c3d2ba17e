//! A sum encrypted at rest to survive a crash: the file is useless without the key.
//!
//! A server adds up reports as they arrive, for minutes. What it has added must survive its own end, and must not lie anywhere in the
//! clear (rules P12 and P20): so it is kept under AES-256-GCM, with a key that lives elsewhere and is destroyed when the sum is
//! released. What was sealed can be opened by the same run alone: the seal is over the encoding and over whatever the caller binds
//! it to.

use aes_gcm::{
    Aes256Gcm, Nonce,
    aead::{Aead, AeadInOut, KeyInit, Payload},
};
use zeroize::Zeroizing;

use super::Sum;
use crate::{
    encoding::{Encoding, EncodingError},
    rng::{NoRandomness, fill_from_os},
    workers::Alone,
};

/// The bytes of a nonce, which is drawn for every seal.
const NONCE: usize = 12;
/// The bytes of what shows that a seal is whole.
const TAG: usize = 16;
/// The bytes of a number.
const NUMBER: usize = size_of::<i64>();

/// The key that seals sums. It is wiped from memory when dropped; `Debug` shows nothing.
pub struct SealingKey(Zeroizing<[u8; 32]>);

impl SealingKey {
    /// The key of these bytes, which are as secret as the key.
    #[must_use]
    pub const fn from_secret_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    fn cipher(&self) -> Aes256Gcm {
        Aes256Gcm::new((&*self.0).into())
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey")
    }
}

impl Sum {
    /// The sum so far, for nobody but the holder of the key. `bound_to` says what it is the sum of: an attempt, and whose reports.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn seal(&self, key: &SealingKey, bound_to: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        let mut nonce = [0; NONCE];
        fill_from_os(&mut nonce)?;
        // A sum of a large model is tens of megabytes, and is sealed again and again: it is written down once, and sealed where it lies.
        let mut sealed = Vec::with_capacity(NONCE + (self.values.len() + 1) * NUMBER + TAG);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&self.users.to_le_bytes());
        self.values.iter().for_each(|value| sealed.extend_from_slice(&value.to_le_bytes()));
        let tag = sealed_in_place(&key.cipher(), &nonce, &mut sealed[NONCE..], &self.context(bound_to));
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// Opens what [`Self::seal`] made.
    ///
    /// # Errors
    /// When it is damaged, under another key, of another encoding or bound to something else.
    pub fn unseal(
        sealed: &[u8],
        key: &SealingKey,
        bound_to: &[u8],
        encoding: &Encoding,
    ) -> Result<Self, EncodingError> {
        let mut sum = Self::zero(encoding);
        let (nonce, cipher) = sealed.split_at_checked(NONCE).ok_or(EncodingError::Sealed)?;
        let nonce = Nonce::try_from(nonce).map_err(|_| EncodingError::Sealed)?;
        let payload = Payload { msg: cipher, aad: &sum.context(bound_to) };
        let plain = key.cipher().decrypt(&nonce, payload).map_err(|_| EncodingError::Sealed)?;
        let plain = Zeroizing::new(plain);
        let (numbers, rest) = plain.as_chunks::<NUMBER>();
        let (users, values) = numbers.split_first().ok_or(EncodingError::Sealed)?;
        if !rest.is_empty() || values.len() != sum.values.len() {
            return Err(EncodingError::Sealed);
        }
        sum.admit(encoding.id(), u64::from_le_bytes(*users))?;
        sum.values.iter_mut().zip(values).for_each(|(to, from)| *to = i64::from_le_bytes(*from));
        sum.check_size(&Alone)?;
        Ok(sum)
    }

    /// The associated data of the seal.
    fn context(&self, bound_to: &[u8]) -> Vec<u8> {
        [b"keyhush sum v1\0", &self.id.as_bytes()[..], bound_to].concat()
    }
}

/// AES-GCM takes messages of up to 64 GiB, far beyond the longest vector.
fn sealed_in_place(cipher: &Aes256Gcm, nonce: &[u8; NONCE], plain: &mut [u8], context: &[u8]) -> [u8; TAG] {
    let tag = cipher.encrypt_inout_detached(&Nonce::from(*nonce), context, plain.into());
    tag.expect("a vector is shorter than what AES-GCM takes").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encoding::VectorPlan, event::Adjacency, stages::Encoded, units::ClipNorm};

    fn encoding(clip: f64) -> Encoding {
        Encoding::new(VectorPlan::of_update(3, 12), ClipNorm::new(clip).unwrap(), None, Adjacency::ZeroOut).unwrap()
    }

    fn key(byte: u8) -> SealingKey {
        SealingKey::from_secret_bytes(Zeroizing::new([byte; 32]))
    }

    fn one(encoding: &Encoding) -> Encoded {
        Encoded::of(vec![7, -9, 1], encoding).unwrap()
    }

    #[test]
    fn a_sealed_sum_goes_on_where_it_stood() {
        let encoding = encoding(0.5);
        let mut sum = Sum::zero(&encoding);
        sum.add(&one(&encoding)).unwrap();
        let sealed = sum.seal(&key(1), b"attempt 0").unwrap();
        let mut again = Sum::unseal(&sealed, &key(1), b"attempt 0", &encoding).unwrap();
        again.add(&one(&encoding)).unwrap();
        assert_eq!((again.values.clone(), again.users), (vec![14, -18, 2], 2));
    }

    #[test]
    fn p20_it_opens_for_nobody_else_and_shows_nothing() {
        let encoding = encoding(0.5);
        let mut sum = Sum::zero(&encoding);
        sum.add(&one(&encoding)).unwrap();
        let sealed = sum.seal(&key(1), b"attempt 0").unwrap();
        assert_ne!(sealed, sum.seal(&key(1), b"attempt 0").unwrap(), "two seals of one sum tell nothing");
        let refused = |bytes: &[u8], key: &SealingKey, bound: &[u8], encoding: &Encoding| {
            matches!(Sum::unseal(bytes, key, bound, encoding), Err(EncodingError::Sealed))
        };
        assert!(refused(&sealed, &key(2), b"attempt 0", &encoding));
        assert!(refused(&sealed, &key(1), b"attempt 1", &encoding));
        assert!(refused(&sealed, &key(1), b"attempt 0", &self::encoding(0.25)));
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(refused(&damaged, &key(1), b"attempt 0", &encoding), "byte {at}");
            assert!(refused(&sealed[..at], &key(1), b"attempt 0", &encoding), "cut at {at}");
        }
    }
}

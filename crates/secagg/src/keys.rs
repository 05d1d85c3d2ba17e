//! A client's keys for one round, the secrets that two clients agree on, and their derivation. Everything is bound to the session, which
//! stands for parameters, model and directory: clients who were shown different ones share no key.

use aes_gcm::{
    Aes256Gcm, KeyInit,
    aead::{Aead, Payload},
};
use curve25519_dalek::MontgomeryPoint;
use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::{
    entropy::{Entropy, NoRandomness},
    masks::MaskKey,
    session::SessionId,
};

/// Bytes of a nonce.
const NONCE: usize = 12;
/// Bytes that sealing adds.
pub(crate) const SEAL_OVERHEAD: usize = NONCE + 16;

/// A client's public keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKeys {
    /// For shares on their way to one neighbour.
    pub sealing: [u8; 32],
    /// For the masks that two neighbours share.
    pub masking: [u8; 32],
    /// For what became of everybody, if the client is asked to sign it.
    pub signing: [u8; 32],
}

/// A key that would make the same secret with everyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WeakKey;

impl PublicKeys {
    /// Refuses keys of low order, whose agreed secret anyone knows, with which anyone signs, and one key for two uses.
    pub(crate) fn check(&self) -> Result<(), WeakKey> {
        let Self { sealing, masking, signing } = self;
        let weak = [sealing, masking].into_iter().any(|key| is_of_low_order(key) || !is_canonical(key));
        let twice = sealing == masking || [sealing, masking].contains(&signing);
        if weak || twice || verifying_key(signing).is_none() { Err(WeakKey) } else { Ok(()) }
    }

    /// All keys.
    pub(crate) const fn all(&self) -> [[u8; 32]; 3] {
        [self.sealing, self.masking, self.signing]
    }
}

/// Whether a key of X25519 is written in the one way in which it should be: below 2^255 - 19. Other bytes can mean the same key,
/// and would not be noticed as the same.
fn is_canonical(key: &[u8; 32]) -> bool {
    let below_top = key[31] < 0x7f || key[1..31].iter().any(|byte| *byte != 0xff) || key[0] < 0xed;
    key[31] < 0x80 && below_top
}

/// Whether a public key is a point of low order: 0, 1, the two of order 8, -1, and 0 and 1 as they should not be written.
/// The highest bit of a key does not count (RFC 7748, section 5).
fn is_of_low_order(key: &[u8; 32]) -> bool {
    const MIDDLE: [u8; 30] = [0xff; 30];
    let (mut key, last) = (*key, key[31] & 0x7f);
    key[31] = last;
    match (key[0], &key[1..31], last) {
        (0 | 1, middle, 0) if middle == [0; 30] => true,
        (0xec..=0xee, middle, 0x7f) if middle == MIDDLE => true,
        _ => ORDER_EIGHT.contains(&key),
    }
}

/// The points of order 8.
const ORDER_EIGHT: [[u8; 32]; 2] = [
    [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09,
        0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ],
    [
        0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04, 0x44,
        0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
    ],
];

/// One secret key of X25519 (RFC 7748). It is zeroized on drop, and `Debug` does not show it.
pub(crate) struct SecretKey(Zeroizing<[u8; 32]>);

impl SecretKey {
    pub(crate) fn draw(entropy: &mut dyn Entropy) -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0; 32]);
        entropy.fill(&mut *bytes)?;
        Ok(Self::from_bytes(&bytes))
    }

    pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    pub(crate) fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        self.0.clone()
    }

    pub(crate) fn public(&self) -> [u8; 32] {
        MontgomeryPoint::mul_base_clamped(*self.0).to_bytes()
    }

    /// What two agree on; refused where the other key leaves no choice. X25519 by way of the Edwards form of the curve, whose
    /// arithmetic has vectors: a round of many clients is mostly this. A key on the twist, which no honest client has, goes
    /// the usual way. Either takes the same time whatever the secret is.
    pub(crate) fn agree(&self, other: &[u8; 32]) -> Result<Agreed, WeakKey> {
        let point = MontgomeryPoint(*other);
        let shared = match point.to_edwards(0) {
            Some(edwards) => edwards.mul_clamped(*self.0).to_montgomery(),
            None => point.mul_clamped(*self.0),
        };
        let shared = Zeroizing::new(shared.to_bytes());
        if bool::from(shared.ct_eq(&[0; 32])) { Err(WeakKey) } else { Ok(Agreed(shared)) }
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(secret)")
    }
}

/// What two clients agreed on.
pub(crate) struct Agreed(Zeroizing<[u8; 32]>);

impl Agreed {
    /// The mask that the clients at two positions share.
    pub(crate) fn pair_mask(&self, session: &SessionId, a: u32, b: u32) -> MaskKey {
        MaskKey::new(*derive(&self.0, session, b"pair", &[a.min(b), a.max(b)]))
    }

    /// The key of what one sends the other.
    fn sealing(&self, session: &SessionId, from: u32, to: u32) -> Aes256Gcm {
        Aes256Gcm::new((&*derive(&self.0, session, b"share", &[from, to])).into())
    }

    /// Seals what one sends the other: a nonce, then the ciphertext. The nonce is drawn, so that nothing that is repeated after
    /// a crash can use one twice.
    pub(crate) fn seal(
        &self,
        session: &SessionId,
        from: u32,
        to: u32,
        plain: &[u8],
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<u8>, NoRandomness> {
        let mut nonce = [0; NONCE];
        entropy.fill(&mut nonce)?;
        let (cipher, aad) = (self.sealing(session, from, to), associated(session, from, to));
        let sealed = cipher
            .encrypt(&nonce.into(), Payload { msg: plain, aad: &aad })
            .expect("a few bytes are within what AES-GCM seals");
        Ok([&nonce[..], &sealed].concat())
    }

    /// Opens it; none where it is not what the one sealed for the other in this session.
    pub(crate) fn open(&self, session: &SessionId, from: u32, to: u32, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
        let (cipher, aad) = (self.sealing(session, from, to), associated(session, from, to));
        cipher.decrypt(&(*nonce).into(), Payload { msg: sealed, aad: &aad }).ok().map(Zeroizing::new)
    }
}

impl std::fmt::Debug for Agreed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Agreed(secret)")
    }
}

/// A client's signature of a view.
pub type Signature = [u8; 64];

/// The key with which a client signs what it was shown: fresh in every round, since it must not be known by it.
pub(crate) struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    pub(crate) fn draw(entropy: &mut dyn Entropy) -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0; 32]);
        entropy.fill(&mut *bytes)?;
        Ok(Self(ed25519_dalek::SigningKey::from_bytes(&bytes)))
    }

    pub(crate) fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// Signs a digest, which says what it is of.
    pub(crate) fn sign(&self, digest: &[u8; 32]) -> Signature {
        ed25519_dalek::Signer::sign(&self.0, digest).to_bytes()
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey(secret)")
    }
}

/// A key with which signatures can be checked; none that is weak.
fn verifying_key(key: &[u8; 32]) -> Option<ed25519_dalek::VerifyingKey> {
    ed25519_dalek::VerifyingKey::from_bytes(key).ok().filter(|key| !key.is_weak())
}

/// Whether a digest was signed with a key.
pub(crate) fn is_signed(key: &[u8; 32], digest: &[u8; 32], signature: &Signature) -> bool {
    let signature = ed25519_dalek::Signature::from_bytes(signature);
    verifying_key(key).is_some_and(|key| key.verify_strict(digest, &signature).is_ok())
}

/// b_i: what a client's own mask is made of.
pub(crate) struct SelfSeed(Zeroizing<[u8; 32]>);

impl SelfSeed {
    pub(crate) fn draw(entropy: &mut dyn Entropy) -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0; 32]);
        entropy.fill(&mut *bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) const fn from_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn mask(&self, session: &SessionId, position: u32) -> MaskKey {
        MaskKey::new(*derive(&self.0, session, b"self", &[position]))
    }

    /// What a client says of its seed before anyone could need it, so that a reconstructed one can be checked.
    pub(crate) fn commitment(&self, session: &SessionId, position: u32) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"keyhush secagg self seed v2");
        hash.update(session.0);
        hash.update(position.to_le_bytes());
        hash.update(*self.0);
        hash.finalize().into()
    }

    pub(crate) fn opens(&self, commitment: &[u8; 32], session: &SessionId, position: u32) -> bool {
        self.commitment(session, position).ct_eq(commitment).into()
    }
}

impl std::fmt::Debug for SelfSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SelfSeed(secret)")
    }
}

fn derive(secret: &[u8; 32], session: &SessionId, label: &[u8], positions: &[u32]) -> Zeroizing<[u8; 32]> {
    let mut info = [b"keyhush secagg v2 ", label].concat();
    positions.iter().for_each(|p| info.extend_from_slice(&p.to_le_bytes()));
    let mut key = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(Some(&session.0), secret)
        .expand(&info, &mut *key)
        .expect("32 bytes are within what HKDF-SHA-256 gives");
    key
}

/// Session and direction: a ciphertext means nothing elsewhere.
fn associated(session: &SessionId, from: u32, to: u32) -> Vec<u8> {
    [&session.0[..], &from.to_le_bytes(), &to.to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SimulatedEntropy;

    fn agreed() -> (Agreed, Agreed) {
        let mut entropy = SimulatedEntropy::from_seed(1);
        let (a, b) = (SecretKey::draw(&mut entropy).unwrap(), SecretKey::draw(&mut entropy).unwrap());
        (a.agree(&b.public()).unwrap(), b.agree(&a.public()).unwrap())
    }

    /// Our way and the usual way come to the same, whatever is agreed with: points of the curve, of the twist, of low order.
    #[test]
    fn agreement_is_that_of_x25519() {
        let mut entropy = SimulatedEntropy::from_seed(5);
        let mut draw = || {
            let mut bytes = [0; 32];
            entropy.fill(&mut bytes).unwrap();
            bytes
        };
        let (mut on_curve, mut on_twist) = (0, 0);
        for _ in 0..60 {
            let (secret, other) = (draw(), draw());
            let usual = x25519_dalek::StaticSecret::from(secret).diffie_hellman(&other.into());
            let ours = SecretKey::from_bytes(&secret).agree(&other).unwrap();
            assert_eq!(*ours.0, usual.to_bytes());
            let public = x25519_dalek::PublicKey::from(&x25519_dalek::StaticSecret::from(secret));
            assert_eq!(SecretKey::from_bytes(&secret).public(), public.to_bytes());
            *(if MontgomeryPoint(other).to_edwards(0).is_some() { &mut on_curve } else { &mut on_twist }) += 1;
        }
        assert!(on_curve > 10 && on_twist > 10, "{on_curve} and {on_twist}");
    }

    #[test]
    fn what_is_sealed_opens_for_its_recipient_in_its_session_and_nowhere_else() {
        let (ours, theirs) = agreed();
        let (session, other) = (SessionId([7; 32]), SessionId([8; 32]));
        let sealed = ours.seal(&session, 3, 5, b"two shares", &mut SimulatedEntropy::from_seed(2)).unwrap();
        assert_eq!(sealed.len(), SEAL_OVERHEAD + 10);
        assert_eq!(theirs.open(&session, 3, 5, &sealed).unwrap().as_slice(), b"two shares");
        assert!(theirs.open(&session, 5, 3, &sealed).is_none(), "sender and recipient swapped");
        assert!(theirs.open(&session, 3, 6, &sealed).is_none(), "another recipient");
        assert!(theirs.open(&other, 3, 5, &sealed).is_none(), "replayed from another session");
        for bit in 0..8 * sealed.len() {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(theirs.open(&session, 3, 5, &flipped).is_none(), "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert!(theirs.open(&session, 3, 5, &sealed[..len]).is_none(), "{len} bytes");
        }
        let wrong_key = SecretKey::from_bytes(&[9; 32]).agree(&SecretKey::from_bytes(&[4; 32]).public()).unwrap();
        assert!(wrong_key.open(&session, 3, 5, &sealed).is_none());
    }

    #[test]
    fn a_signature_holds_for_its_key_and_digest_only() {
        let mut entropy = SimulatedEntropy::from_seed(1);
        let (ours, other) = (SigningKey::draw(&mut entropy).unwrap(), SigningKey::draw(&mut entropy).unwrap());
        let signature = ours.sign(&[1; 32]);
        assert!(is_signed(&ours.public(), &[1; 32], &signature));
        assert!(!is_signed(&ours.public(), &[2; 32], &signature));
        assert!(!is_signed(&other.public(), &[1; 32], &signature));
        for bit in 0..8 * signature.len() {
            let mut flipped = signature;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_signed(&ours.public(), &[1; 32], &flipped), "bit {bit}");
        }
    }

    /// With a key of low order some signatures hold for every message; with one that is no point there are none.
    #[test]
    fn weak_keys_sign_nothing() {
        let (mut identity, good) = ([0; 32], SecretKey::from_bytes(&[5; 32]).public());
        identity[0] = 1;
        let mut no_point = [0; 32];
        no_point[0] = 2;
        let other = SecretKey::from_bytes(&[6; 32]).public();
        for signing in [identity, no_point] {
            assert!(PublicKeys { sealing: good, masking: other, signing }.check().is_err());
            let mut universal = [0; 64];
            universal[0] = 1;
            assert!(!is_signed(&signing, &[1; 32], &universal));
        }
    }

    #[test]
    fn a_pair_has_one_mask_whoever_derives_it_and_another_in_every_session() {
        let (ours, theirs) = agreed();
        let key = |agreed: &Agreed, session: u8, a, b| {
            let mut lanes = vec![0; 1024];
            let streams = [(agreed.pair_mask(&SessionId([session; 32]), a, b), crate::masks::Sign::Plus)];
            crate::masks::apply(&mut lanes, 0, 32, &streams).unwrap();
            lanes
        };
        assert_eq!(key(&ours, 1, 4, 2), key(&theirs, 1, 2, 4));
        assert_ne!(key(&ours, 1, 4, 2), key(&ours, 2, 4, 2));
        assert_ne!(key(&ours, 1, 4, 2), key(&ours, 1, 4, 3));
    }

    /// The points of low order of Curve25519, as every implementation must refuse them (RFC 7748, section 6.1).
    #[test]
    fn keys_of_low_order_are_refused() {
        let good = SecretKey::from_bytes(&[5; 32]).public();
        let signing = SigningKey::draw(&mut SimulatedEntropy::from_seed(8)).unwrap().public();
        let probe = SecretKey::from_bytes(&[9; 32]);
        // 2^255 - 19 less 1, itself, and one more; what is above is the same points again, and not of low order.
        let near_p = |first: u8| std::array::from_fn(|i| if i == 0 { first } else { 0xff });
        let small = |first: u8| std::array::from_fn(|i| if i == 0 { first } else { 0 });
        let weak = [small(0), small(1), near_p(0xec), near_p(0xed), near_p(0xee), ORDER_EIGHT[0], ORDER_EIGHT[1]];
        for mut key in weak {
            for last in [key[31] & 0x7f, key[31] | 0x80] {
                key[31] = last;
                assert!(probe.agree(&key).is_err(), "X25519 itself says so: {key:x?}");
                assert!(PublicKeys { sealing: key, masking: good, signing }.check().is_err());
                assert!(PublicKeys { sealing: good, masking: key, signing }.check().is_err());
            }
        }
        for strong in [small(2), small(9), near_p(0xeb), near_p(0xef), good] {
            assert!(!is_of_low_order(&strong) && probe.agree(&strong).is_ok(), "{strong:x?}");
        }
        assert!(PublicKeys { sealing: good, masking: good, signing }.check().is_err(), "one key for two uses");
        let other = SecretKey::from_bytes(&[6; 32]).public();
        assert!(PublicKeys { sealing: good, masking: other, signing }.check().is_ok());
    }

    /// The highest bit of a key does not count for X25519, and numbers from 2^255 - 19 on begin again at zero: the same key in
    /// other bytes is not a key.
    #[test]
    fn a_key_is_written_in_one_way() {
        let mut entropy = SimulatedEntropy::from_seed(6);
        let [good, other] = [0; 2].map(|_| SecretKey::draw(&mut entropy).unwrap().public());
        let signing = SigningKey::draw(&mut entropy).unwrap().public();
        assert!(PublicKeys { sealing: good, masking: other, signing }.check().is_ok());
        let mut high = good;
        high[31] |= 0x80;
        // 2^255 - 19 + 9: the base point again.
        let mut again = [0xff; 32];
        (again[0], again[31]) = (0xed + 9, 0x7f);
        for key in [high, again] {
            assert!(PublicKeys { sealing: key, masking: other, signing }.check().is_err());
            assert!(PublicKeys { sealing: other, masking: key, signing }.check().is_err());
        }
        let mut last = [0xff; 32];
        (last[0], last[31]) = (0xeb, 0x7f);
        assert!(is_canonical(&last) && is_canonical(&good));
        for twice in [good, other] {
            assert!(PublicKeys { sealing: good, masking: other, signing: twice }.check().is_err());
        }
    }

    #[test]
    fn a_commitment_opens_with_its_seed_position_and_session_only() {
        let seed = SelfSeed::draw(&mut SimulatedEntropy::from_seed(3)).unwrap();
        let session = SessionId([1; 32]);
        let commitment = seed.commitment(&session, 4);
        assert!(seed.opens(&commitment, &session, 4));
        assert!(!seed.opens(&commitment, &session, 5));
        assert!(!seed.opens(&commitment, &SessionId([2; 32]), 4));
        assert!(!SelfSeed::draw(&mut SimulatedEntropy::from_seed(4)).unwrap().opens(&commitment, &session, 4));
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut entropy = SimulatedEntropy::from_seed(1);
        assert_eq!(format!("{:?}", SecretKey::draw(&mut entropy).unwrap()), "SecretKey(secret)");
        assert_eq!(format!("{:?}", SelfSeed::draw(&mut entropy).unwrap()), "SelfSeed(secret)");
        assert_eq!(format!("{:?}", agreed().0), "Agreed(secret)");
    }
}

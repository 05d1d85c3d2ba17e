//! What a hostile server or client makes: directories and ciphertexts of its own, and what it does with secrets that it got.

use aes_gcm::{
    Aes256Gcm, KeyInit,
    aead::{Aead, Payload},
};
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use ed25519_dalek::{Signer, SigningKey};
use hkdf::Hkdf;
use keyhush_secagg::{
    ClientId, Pseudonym, PublicKeys, Signature,
    client::{Client, ClientError, Reply},
    directory::{Admission, Member, Name, Proof},
    graph::{self, Graph},
    masks::MaskKey,
    message::{AdvertiseKeys, Neighbourhood, View},
    parameters::{Adversary, Floor, Parameters},
    session::{Coin, Offer, SessionId, Terms},
};
use sha2::{Digest, Sha256};
use x25519_dalek::{PublicKey, StaticSecret};

use super::{Device, Drawing};

const COIN: Coin = Coin([7; 32]);

/// A client of the server's making: it has keys, and says what it likes.
pub(crate) struct Puppet {
    id: u64,
    sealing: StaticSecret,
    masking: StaticSecret,
    signing: SigningKey,
}

impl Puppet {
    pub(crate) fn new(id: u64) -> Self {
        let secret = |label: &[u8]| StaticSecret::from(sha256(&[label, &id.to_le_bytes()]));
        let signing = SigningKey::from_bytes(&sha256(&[b"signing", &id.to_le_bytes()]));
        Self { id, sealing: secret(b"sealing"), masking: secret(b"masking"), signing }
    }

    pub(crate) fn member(&self) -> Member {
        let [sealing, masking] = [&self.sealing, &self.masking].map(|s| PublicKey::from(s).to_bytes());
        let keys = PublicKeys { sealing, masking, signing: self.signing.verifying_key().to_bytes() };
        Member { pseudonym: pseudonym(self.id), keys, evidence: Vec::new() }
    }

    /// Signs a view, whatever it was shown.
    pub(crate) fn sign(&self, view: &View) -> Signature {
        signature(self.signing.to_bytes(), view)
    }

    /// Seals anything for somebody, as the protocol would.
    pub(crate) fn seal<const N: usize>(
        &self,
        session: &SessionId,
        way: [u32; 2],
        to: &[u8; 32],
        plain: &[u8],
    ) -> [u8; N] {
        let agreed = self.sealing.diffie_hellman(&PublicKey::from(*to)).to_bytes();
        let cipher = Aes256Gcm::new(&derive(&agreed, session, b"share", &way).into());
        let aad = [&session.0[..], &way[0].to_le_bytes(), &way[1].to_le_bytes()].concat();
        let nonce = [5; 12];
        let sealed = cipher.encrypt(&nonce.into(), Payload { msg: plain, aad: &aad }).unwrap();
        [&nonce[..], &sealed].concat().try_into().unwrap()
    }
}

/// The mask of a pair, for who holds the secret key of one of them.
pub(crate) fn pair_mask(secret: [u8; 32], other: &[u8; 32], session: &SessionId, a: u32, b: u32) -> MaskKey {
    let agreed = StaticSecret::from(secret).diffie_hellman(&PublicKey::from(*other)).to_bytes();
    MaskKey::new(derive(&agreed, session, b"pair", &[a.min(b), a.max(b)]))
}

/// The mask of a client's own, for who holds its seed.
pub(crate) fn self_mask(seed: [u8; 32], session: &SessionId, position: u32) -> MaskKey {
    MaskKey::new(derive(&seed, session, b"self", &[position]))
}

/// The pseudonym of a client that is called by its number.
pub(crate) fn pseudonym(id: u64) -> Pseudonym {
    Pseudonym(u128::from(id).to_be_bytes())
}

/// That somebody was shown a view, for who holds its key, whatever it was shown.
pub(crate) fn signature(secret: [u8; 32], view: &View) -> Signature {
    SigningKey::from_bytes(&secret).sign(&sha256(&[b"keyhush secagg view v2", &view.encode()])).to_bytes()
}

fn derive(secret: &[u8; 32], session: &SessionId, label: &[u8], positions: &[u32]) -> [u8; 32] {
    let mut info = [b"keyhush secagg v2 ", label].concat();
    positions.iter().for_each(|p| info.extend_from_slice(&p.to_le_bytes()));
    let mut key = [0; 32];
    Hkdf::<Sha256>::new(Some(&session.0), secret).expand(&info, &mut key).unwrap();
    key
}

pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|p| hash.update(p));
    hash.finalize().into()
}

/// The offer of a server that makes its directories itself.
pub(crate) fn offer(terms: Terms) -> Offer {
    Offer { terms, nonce: [9; 32], coin: COIN.commitment() }
}

/// What a client is told of a directory with anything in it, all of it proved.
pub(crate) fn neighbourhood(offer: &Offer, parameters: Parameters, members: &[Member], position: u32) -> Neighbourhood {
    let rest = |m: &Member| {
        let PublicKeys { sealing, masking, signing } = &m.keys;
        sha256(&[b"keyhush secagg member v2", sealing, masking, signing, &m.evidence])
    };
    let leaf = |m: &Member| [&m.pseudonym.0[..], &rest(m)].concat();
    let leaves: Vec<Vec<u8>> = members.iter().map(leaf).collect();
    let mut tree = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    leaves.iter().for_each(|leaf| tree.push(leaf.clone()));
    let root: [u8; 32] = (*tree.root().as_bytes()).into();
    let graph = Graph::new(&parameters, &sha256(&[b"keyhush secagg graph v2", &COIN.0, &root]));
    let committee = parameters.committee();
    let (size, quorum) = committee.map_or((0, 0), |c| (c.size, c.quorum));
    let numbers = [parameters.clients(), parameters.degree(), parameters.threshold(), size, quorum]
        .map(u32::to_le_bytes)
        .concat();
    let session = sha256(&[b"keyhush secagg session v2", &offer.hash().0, &root, &numbers, &COIN.0]);
    let seed = sha256(&[b"keyhush secagg committee v2", &session]);
    let mut shown = graph.neighbours(position);
    shown.extend(graph::committee(parameters.clients(), size, &seed));
    shown.sort_unstable();
    shown.dedup();
    shown.retain(|at| *at != position);
    let known = |at: usize| at as u32 == position || shown.contains(&(at as u32));
    let proof = match offer.terms.assumptions.adversary {
        Adversary::Curious => Proof::Beside(beside(&leaves, 0, &known)),
        Adversary::SemiMalicious => {
            Proof::Whole(members.iter().map(|m| Name { pseudonym: m.pseudonym, rest: rest(m) }).collect())
        }
    };
    let members = shown.iter().map(|at| members[*at as usize].clone()).collect();
    Neighbourhood { offer: offer.hash(), parameters, root, coin: COIN, position, members, proof }
}

/// The hashes of subtrees that nobody known is in, from left to right: as slow as can be.
fn beside(leaves: &[Vec<u8>], first: usize, known: &dyn Fn(usize) -> bool) -> Vec<[u8; 32]> {
    if !(first..first + leaves.len()).any(known) {
        return vec![hash_of(leaves)];
    }
    if leaves.len() == 1 {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
    [beside(left, first, known), beside(right, first + left.len(), known)].concat()
}

fn hash_of(leaves: &[Vec<u8>]) -> [u8; 32] {
    if let [one] = leaves {
        return sha256(&[&[0], one]);
    }
    let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
    sha256(&[&[1], &hash_of(left), &hash_of(right)])
}

/// A client, what it draws from and its own entry in the directory: the first, since it is called zero.
pub(crate) fn zero(
    offer: Offer,
    floor: Floor,
    admission: &dyn Admission,
) -> Result<(Client, Drawing, Member), ClientError> {
    let mut entropy = Device::entropy(5, ClientId(0));
    let (client, keys) = Client::begin(offer, floor, admission, &mut entropy)?;
    Ok((client, entropy, AdvertiseKeys::decode(&keys).unwrap().member))
}

/// What a client is to answer.
pub(crate) fn sent(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Send(bytes) => bytes.to_vec(),
        other => panic!("no answer: {other:?}"),
    }
}

/// Members that the server made up.
pub(crate) fn puppets(ids: std::ops::Range<u64>) -> impl Iterator<Item = Member> {
    ids.map(|id| Puppet::new(id).member())
}

/// A key of Ed25519 with which anybody signs anything, and one that is no point at all.
pub(crate) fn bad_signing_keys() -> [[u8; 32]; 2] {
    [1, 2].map(|first| std::array::from_fn(|i| if i == 0 { first } else { 0 }))
}

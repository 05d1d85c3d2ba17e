//! What a hostile server or client makes: directories and ciphertexts of its own, and what it does with secrets that it got.

use aes_gcm::{
    Aes256Gcm, KeyInit,
    aead::{Aead, Payload},
};
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use hkdf::Hkdf;
use keyhush_secagg::{
    ClientId, PublicKeys,
    directory::Member,
    graph::Graph,
    masks::MaskKey,
    message::{Listing, Neighbourhood, View, Voucher},
    parameters::Parameters,
    session::{Coin, Offer, SessionId, Terms},
};
use sha2::{Digest, Sha256};
use x25519_dalek::{PublicKey, StaticSecret};

const COIN: Coin = Coin([7; 32]);

/// A client of the server's making: it has keys, and says what it likes.
pub(crate) struct Puppet {
    id: u64,
    sealing: StaticSecret,
    masking: StaticSecret,
}

impl Puppet {
    pub(crate) fn new(id: u64) -> Self {
        let secret = |label: &[u8]| StaticSecret::from(sha256(&[label, &id.to_le_bytes()]));
        Self { id, sealing: secret(b"sealing"), masking: secret(b"masking") }
    }

    pub(crate) fn member(&self) -> Member {
        let [sealing, masking] = [&self.sealing, &self.masking].map(|s| PublicKey::from(s).to_bytes());
        Member { client: ClientId(self.id), keys: PublicKeys { sealing, masking }, evidence: Vec::new() }
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

/// That somebody was shown a view, for who holds its sealing key, whatever it was shown.
pub(crate) fn voucher(secret: [u8; 32], other: &[u8; 32], session: &SessionId, way: [u32; 2], view: &View) -> Voucher {
    let agreed = StaticSecret::from(secret).diffie_hellman(&PublicKey::from(*other)).to_bytes();
    let digest = sha256(&[b"keyhush secagg view v1", &view.encode()]);
    *derive(&agreed, session, &[b"agree ", &digest[..]].concat(), &way).first_chunk().unwrap()
}

fn derive(secret: &[u8; 32], session: &SessionId, label: &[u8], positions: &[u32]) -> [u8; 32] {
    let mut info = [b"keyhush secagg v1 ", label].concat();
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
pub(crate) fn neighbourhood(parameters: Parameters, members: &[Member], position: u32) -> Neighbourhood {
    let mut tree = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    for Member { client, keys, evidence } in members {
        tree.push([&client.0.to_le_bytes()[..], &keys.sealing, &keys.masking, evidence].concat());
    }
    let root: [u8; 32] = (*tree.root().as_bytes()).into();
    let proof = |at: u32| tree.prove_inclusion(at as usize).as_bytes().to_vec();
    let graph = Graph::new(&parameters, &sha256(&[b"keyhush secagg graph v1", &COIN.0, &root]));
    let listing = |at: u32| Listing { member: members[at as usize].clone(), proof: proof(at) };
    let neighbours = graph.neighbours(position).into_iter().map(listing).collect();
    Neighbourhood { parameters, root, coin: COIN, position, own_proof: proof(position), neighbours }
}

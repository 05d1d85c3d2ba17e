//! Estimates the duration of secure aggregation from a real round of a few clients, scaled by the number of neighbours.

use std::time::Instant;

use secagg::{
    ClientId,
    client::{Client, Reply},
    directory::Everybody,
    entropy::OsEntropy,
    parameters::{Assumptions, Floor},
    server::{CollectKeys, Connect, Serial},
    session::{Inputs, Terms},
};

use super::WorkError;
use crate::{engine::Means, plan::Plan};

/// Clients of the round that is measured: everybody is everybody's neighbour.
const CLIENTS: u32 = 12;

/// Seconds that a round of the planned size takes beside training, on all threads; none where sums are plain.
pub(super) fn seconds(plan: &Plan, means: Means) -> Result<f64, WorkError> {
    let phase = plan.phase(0);
    let Some(secure) = &phase.secure else { return Ok(0.0) };
    let bits = phase.coding(plan.stage(0).clip)?.residues.map_or(32, |residues| residues.bits());
    let watch = Instant::now();
    let pairs = round(Terms {
        task: [0; 32],
        model: [0; 32],
        round: 0,
        assumptions: Assumptions::new(0.1, 0.1, secure.assumptions.adversary),
        most_clients: CLIENTS,
        least_survivors: CLIENTS,
        dimension: phase.coordinates() as u32,
        bits,
        inputs: Inputs::Noised,
        most_evidence: 0,
    })?;
    let planned = phase.cohort as f64 * f64::from(secure.parameters(secure.of_group(phase.cohort))?.degree());
    Ok(watch.elapsed().as_secs_f64() * planned / pairs / means.threads as f64)
}

/// A round in which nobody vanishes, message by message; gives how many are whose neighbours.
fn round(terms: Terms) -> Result<f64, WorkError> {
    let input = vec![0; terms.dimension as usize];
    let floor = Floor { clients: CLIENTS, survivors: CLIENTS, corrupted: 0.1, ..Floor::default() };
    let mut server = CollectKeys::open(terms, &mut OsEntropy)?;
    let mut clients = Vec::new();
    for id in (0..u64::from(CLIENTS)).map(ClientId) {
        let (client, keys) = Client::begin(*server.offer(), floor, &Everybody, &mut OsEntropy)?;
        server.receive(id, &keys, &Everybody)?;
        clients.push((id, client));
    }
    let mut server = server.close(Connect::Found)?;
    let pairs = f64::from(CLIENTS * server.parameters().degree());
    for (id, client) in &mut clients {
        server.receive(*id, &answer(client, server.neighbourhood(*id))?)?;
    }
    let mut server = server.close()?;
    for (id, client) in &mut clients {
        answer(client, server.delivery(*id))?;
        server.receive(*id, &client.mask(&input)?)?;
    }
    let mut server = server.close()?;
    let is_needed = server.is_needed();
    for (id, client) in clients.iter_mut().filter(|_| is_needed) {
        server.receive(*id, &answer(client, server.view(*id))?)?;
    }
    let mut server = server.close()?;
    for (id, client) in &mut clients {
        server.receive(*id, &answer(client, server.request(*id))?)?;
    }
    server.close(&Serial)?;
    Ok(pairs)
}

/// What a client says to a message: nothing where it only takes note.
fn answer(client: &mut Client, message: Option<Vec<u8>>) -> Result<Vec<u8>, WorkError> {
    let message = message.ok_or("the server has nothing to say")?;
    match client.receive(&message, &Everybody, &mut OsEntropy)? {
        Reply::Send(answer) => Ok(answer.to_vec()),
        Reply::Ready => Ok(Vec::new()),
        Reply::Ignored(why) => Err(why.into()),
    }
}

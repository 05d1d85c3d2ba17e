//! How long secure aggregation takes: a real round of a few, and the rest is a matter of how many are whose neighbours.

use std::time::Instant;

use federated::{plan::Plan, run::Means};
use secagg::{
    ClientId,
    client::Client,
    directory::Everybody,
    entropy::OsEntropy,
    parameters::{Adversary, Assumptions, Floor},
    server::{CollectKeys, Connect, Serial},
    session::{Inputs, Terms},
};

/// Clients of the round that is measured: everybody is everybody's neighbour.
const CLIENTS: u32 = 12;

/// Seconds that a round of the planned size takes beside training, on all threads; none where sums are plain.
pub(super) fn seconds(plan: &Plan, means: Means) -> anyhow::Result<f64> {
    let phase = plan.phase(0);
    let Some(secure) = &phase.secure else { return Ok(0.0) };
    let bits = phase.coding(plan.stage(0).clip)?.residues.map_or(32, |residues| residues.bits());
    let watch = Instant::now();
    round(Terms {
        task: [0; 32],
        model: [0; 32],
        round: 0,
        assumptions: Assumptions::new(0.1, 0.1, Adversary::Curious),
        most_clients: CLIENTS,
        least_survivors: CLIENTS,
        dimension: phase.coordinates() as u32,
        bits,
        inputs: Inputs::Noised,
    })?;
    let pairs = f64::from(CLIENTS * (CLIENTS - 1));
    let planned = phase.cohort as f64 * f64::from(secure.parameters(secure.of_group(phase.cohort))?.degree());
    Ok(watch.elapsed().as_secs_f64() * planned / pairs / means.threads as f64)
}

/// A round in which nobody vanishes, message by message.
fn round(terms: Terms) -> anyhow::Result<()> {
    let silent = || anyhow::anyhow!("a client has no answer");
    let input = vec![0; terms.dimension as usize];
    let mut server = CollectKeys::open(terms, &mut OsEntropy)?;
    let mut clients = Vec::new();
    for id in (0..u64::from(CLIENTS)).map(ClientId) {
        let (client, keys) = Client::begin(*server.offer(), id, Floor::none(), &Everybody, &mut OsEntropy)?;
        server.receive(id, &keys, &Everybody)?;
        clients.push((id, client));
    }
    let mut server = server.close(Connect::Insecure { degree: CLIENTS - 1, threshold: CLIENTS / 2 })?;
    for (id, client) in &mut clients {
        let neighbourhood = server.neighbourhood(*id).ok_or_else(silent)?;
        let shares = client.receive(&neighbourhood, &Everybody, &mut OsEntropy)?.ok_or_else(silent)?;
        server.receive(*id, &shares)?;
    }
    let mut server = server.close()?;
    for (id, client) in &mut clients {
        client.receive(&server.delivery(*id).ok_or_else(silent)?, &Everybody, &mut OsEntropy)?;
        server.receive(*id, &client.mask(&input)?)?;
    }
    let mut server = server.close()?.close()?;
    for (id, client) in &mut clients {
        let request = server.request(*id).ok_or_else(silent)?;
        let shares = client.receive(&request, &Everybody, &mut OsEntropy)?.ok_or_else(silent)?;
        server.receive(*id, &shares)?;
    }
    server.close(&Serial)?;
    Ok(())
}

//! The state of one device in an attempt, and what it is told.

use device::protocol::message::{Assignment, DeviceKey, Received, Says, SecureMessage, Ticket};

use super::{Aggregation, Desk, Hears, Progress, Running};

/// What a device that asks is to hear.
pub(super) enum PartStands {
    Now(Says),
    Thanks(u64),
    Later,
    Late,
    Closed,
}

/// How the part of a device stands.
pub(super) fn standing_of(running: &Running, device: &DeviceKey) -> PartStands {
    let Some(desk) = &running.desk else { return PartStands::Closed };
    let Some(place) = desk.of(device) else { return PartStands::Closed };
    if let Aggregation::Secure(secure) = &desk.opening.aggregation {
        return match secure.next(device) {
            Hears::Message(message) => {
                PartStands::Now(Says::Secure(SecureMessage { ticket: place.ticket.0.to_vec(), message }))
            }
            Hears::Nothing => PartStands::Later,
            Hears::NoMore if desk.is_over() => PartStands::Later,
            Hears::NoMore => PartStands::Late,
        };
    }
    match place.progress {
        Progress::Merged => PartStands::Thanks(running.asking.limits.after(desk.opening.at.round)),
        Progress::Arrived => PartStands::Later,
        Progress::Working { .. } if !desk.is_over() => PartStands::Now(Says::Received(Received { offset: 0 })),
        Progress::Working { .. } | Progress::Late | Progress::Expired => PartStands::Late,
    }
}

/// What a device is told that is given the task.
pub(super) fn assignment(desk: &Desk, ticket: Ticket, progress: Progress, now: u64) -> Option<Says> {
    let Progress::Working { until } = progress else { return None };
    let opening = &desk.opening;
    let offer = match &opening.aggregation {
        Aggregation::Plain(_) => Vec::new(),
        Aggregation::Secure(secure) => secure.offer()?.encode(),
    };
    Some(Says::Assignment(Assignment {
        ticket: ticket.0.to_vec(),
        task: Some(opening.task.clone()),
        model: Some(opening.model.clone()),
        step: opening.step,
        attempt: opening.at.attempt,
        terms: opening.terms.clone(),
        tick_ms: opening.windows.tick_ms,
        within_ms: until.saturating_sub(now),
        offer,
    }))
}

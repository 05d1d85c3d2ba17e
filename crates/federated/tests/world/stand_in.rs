//! A device of the schedules that is no real one: the least that speaks the protocol. It has no keys, no backoff and no guard but a list, so
//! that thousands of schedules take no time; `real` is the other kind.

use device::protocol::message::{Answer, Assignment, CheckIn, Enrol, Next, Reason, Says, Ticket, Wants};

use super::{
    Said, Sums, World,
    evaluations::{Of, encoding_of},
    one_hot,
    secure::SecurePart,
};

#[derive(Debug, Clone)]
pub(super) enum Doing {
    Strange,
    Idle,
    /// It has something to say of secure aggregation.
    Speaking(Box<Assignment>),
    Working(Box<Assignment>),
    Reporting(Box<Assignment>),
    Asking(Box<Assignment>),
}

impl World {
    pub(super) fn stand_in_acts(&mut self, device: usize) {
        if self.chance.is(self.faults.device_crashes) {
            // What it worked on is gone; what it gave is on record.
            self.devices[device].doing = Doing::Idle;
            self.devices[device].secure = None;
        }
        match self.devices[device].doing.clone() {
            Doing::Strange => self.says(device, Said::Wants(Wants::Enrol(Enrol::default())), 20_000),
            Doing::Idle => self.says(
                device,
                Said::Wants(Wants::CheckIn(CheckIn { patience_ms: 10_000, resting: Vec::new() })),
                30_000,
            ),
            Doing::Speaking(assignment) => {
                let message = self.devices[device].secure.as_ref().unwrap().says(&assignment);
                self.says(device, Said::Wants(Wants::Secure(message)), 6_000);
            }
            Doing::Working(assignment) => {
                let input = one_hot(device, &encoding_of(&assignment));
                if self.devices[device].secure.as_mut().is_some_and(|secure| !secure.mask(&input)) {
                    return self.gives_up(device);
                }
                self.devices[device].given.insert(Of::assignment(&assignment));
                self.devices[device].doing = Doing::Reporting(assignment);
                self.stand_in_acts(device);
            }
            Doing::Reporting(assignment) => {
                let ticket = Ticket(assignment.ticket.as_slice().try_into().unwrap());
                let masked = self.devices[device].secure.as_ref().and_then(SecurePart::masked);
                self.says(device, Said::Report(ticket, masked), 5_000);
            }
            Doing::Asking(assignment) => {
                let next = Next { ticket: assignment.ticket.clone(), patience_ms: 5_000 };
                self.says(device, Said::Wants(Wants::Next(next)), 12_000);
            }
        }
    }

    /// The part that a device has is over for it.
    pub(super) fn gives_up(&mut self, device: usize) {
        self.devices[device].doing = Doing::Idle;
        self.devices[device].secure = None;
        self.wake(device, 3_000);
    }

    pub(super) fn stand_in_hears(&mut self, device: usize, answer: &Answer) {
        let doing = self.devices[device].doing.clone();
        match (answer.says.as_ref().unwrap(), doing) {
            (Says::Enrolled(_), Doing::Strange) => {
                self.devices[device].doing = Doing::Idle;
                let after = self.chance.below(2_000);
                self.wake(device, after);
            }
            (Says::Later(later), Doing::Idle) => self.wake(device, later.after_s.min(60) * 1000 + 500),
            (Says::Assignment(assignment), Doing::Idle) => self.is_assigned(device, assignment),
            (Says::Received(received), Doing::Reporting(assignment) | Doing::Asking(assignment)) => {
                let all = received.offset > 0;
                self.devices[device].doing = if all { Doing::Asking(assignment) } else { Doing::Reporting(assignment) };
                self.wake(device, 10);
            }
            (Says::Secure(message), Doing::Speaking(assignment) | Doing::Asking(assignment)) => {
                self.hears_secure(device, assignment, &message.message);
            }
            (
                Says::Wait(wait),
                Doing::Speaking(assignment) | Doing::Reporting(assignment) | Doing::Asking(assignment),
            ) => {
                self.devices[device].doing = Doing::Asking(assignment);
                self.wake(device, u64::from(wait.after_ms).max(10));
            }
            (Says::Thanks(_), Doing::Reporting(assignment) | Doing::Asking(assignment)) => {
                self.devices[device].thanked.insert((Of::assignment(&assignment), assignment.attempt));
                self.devices[device].doing = Doing::Idle;
                self.devices[device].secure = None;
                self.wake(device, 1_000);
            }
            // What it said is not what was expected: it asks what is.
            (Says::Refused(refused), Doing::Speaking(assignment) | Doing::Reporting(assignment))
                if refused.reason == i32::from(Reason::Unexpected) =>
            {
                self.devices[device].doing = Doing::Asking(assignment);
                self.wake(device, 100);
            }
            (Says::Refused(refused), doing) => {
                let strange = refused.reason == i32::from(Reason::Stranger);
                let idle = !matches!(doing, Doing::Working(_) | Doing::Strange);
                if strange {
                    self.devices[device].doing = Doing::Strange;
                } else if idle {
                    self.devices[device].doing = Doing::Idle;
                    self.devices[device].secure = None;
                }
                if strange || idle {
                    self.wake(device, 3_000);
                }
            }
            // An answer to something that it no longer waits for.
            _ => {}
        }
    }

    fn is_assigned(&mut self, device: usize, assignment: &Assignment) {
        if self.devices[device].given.contains(&Of::assignment(assignment)) {
            // Its guard refuses: to the server it is a device that does not come.
            return self.wake(device, 60_000);
        }
        if self.chance.is(self.faults.vanish) {
            return self.wake(device, assignment.within_ms + 30_000);
        }
        let encoding = encoding_of(assignment);
        if self.faults.sums == Sums::Secure {
            let part = SecurePart::begin(assignment, &encoding, self.chance.next());
            self.devices[device].secure = Some(part);
            self.devices[device].doing = Doing::Speaking(Box::new(assignment.clone()));
            return self.wake(device, 10);
        }
        self.works(device, Box::new(assignment.clone()));
    }

    /// It trains.
    pub(super) fn works(&mut self, device: usize, assignment: Box<Assignment>) {
        self.devices[device].doing = Doing::Working(assignment);
        let trains = 500 + self.chance.below(9_000);
        self.wake(device, trains);
    }
}

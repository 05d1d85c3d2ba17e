//! Counts connections in total and by address, and finds the one that has been idle longest.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::limits::Limits;

/// Nobody is sent away who has waited for less than this.
const SPARED: Duration = Duration::from_secs(1);
/// The most that are told at a time that there is no place for them; others find the door closed.
const TOLD: usize = 64;

/// What becomes of a connection.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The connection is admitted.
    In(Entry),
    /// The client is told that there is no place.
    Told(Entry),
    /// The connection is closed.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Census {
    limits: Limits,
    people: Mutex<People>,
    /// How often somebody was sent away who waited.
    pub(crate) evicted: AtomicU64,
}

#[derive(Debug, Default)]
struct People {
    next: u64,
    inside: usize,
    told: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Those without a request, the longest first.
    waiting: BTreeMap<(Instant, u64), Arc<Notify>>,
}

/// A connection in the census, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    census: Arc<Census>,
    number: u64,
    /// `None` for those who are only told.
    address: Option<IpAddr>,
    since: Mutex<Option<Instant>>,
    leave: Arc<Notify>,
}

impl Census {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, people: Mutex::default(), evicted: AtomicU64::new(0) })
    }

    /// Somebody connects, perhaps a proxy that speaks for many.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, is_proxy: bool) -> Admission {
        let address = one(address);
        let most = if address.is_loopback() || is_proxy { self.limits.by_loopback } else { self.limits.by_address };
        let mut people = self.lock();
        let from_there = people.by_address.get(&address).copied().unwrap_or(0);
        let full = people.inside >= self.limits.connections && !self.send_away(&mut people);
        people.next += 1;
        let entry = |address| Entry {
            census: Arc::clone(self),
            number: people.next,
            address,
            since: Mutex::new(None),
            leave: Arc::new(Notify::new()),
        };
        if full || from_there >= most {
            if people.told >= TOLD {
                return Admission::Closed;
            }
            let told = entry(None);
            people.told += 1;
            return Admission::Told(told);
        }
        let admitted = entry(Some(address));
        people.inside += 1;
        *people.by_address.entry(address).or_insert(0) += 1;
        drop(people);
        admitted.waits();
        Admission::In(admitted)
    }

    /// Makes place for one more, if somebody has waited long enough.
    pub(crate) fn make_place(&self) -> bool {
        self.send_away(&mut self.lock())
    }

    fn send_away(&self, people: &mut People) -> bool {
        let Some(longest) = people.waiting.first_entry() else { return false };
        if longest.key().0.elapsed() < SPARED {
            return false;
        }
        longest.remove().notify_one();
        self.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn lock(&self) -> MutexGuard<'_, People> {
        // Nothing panics while it is held.
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// It has no request under way from now on.
    pub(crate) fn waits(&self) {
        if self.address.is_none() {
            return;
        }
        let now = Instant::now();
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let mut people = self.census.lock();
        if let Some(before) = since.replace(now) {
            people.waiting.remove(&(before, self.number));
        }
        people.waiting.insert((now, self.number), Arc::clone(&self.leave));
    }

    /// It has a request under way from now on, and is not sent away.
    pub(crate) fn works(&self) {
        if let Some(since) = self.since.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.census.lock().waiting.remove(&(since, self.number));
        }
    }

    /// Until its place is needed for somebody else.
    pub(crate) async fn sent_away(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.works();
        let mut people = self.census.lock();
        let Some(address) = self.address else {
            people.told -= 1;
            return;
        };
        people.inside -= 1;
        if let Some(count) = people.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                people.by_address.remove(&address);
            }
        }
    }
}

/// What counts as one address: all of a /64 of IPv6 can be one machine's.
pub(crate) fn one(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(connections: usize, by_address: usize) -> Arc<Census> {
        Census::new(Limits { connections, by_address, ..Limits::default() })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_share_and_gets_it_back() {
        let census = census(100, 2);
        let all: Vec<_> = (0..3).map(|_| census.admit(address("192.0.2.1"), false)).collect();
        assert!(matches!(all[1], Admission::In(_)) && matches!(all[2], Admission::Told(_)));
        assert!(
            matches!(census.admit(address("::ffff:192.0.2.1"), false), Admission::Told(_)),
            "the same in other words"
        );
        assert!(matches!(census.admit(address("192.0.2.2"), false), Admission::In(_)));
        drop(all);
        assert!(matches!(census.admit(address("192.0.2.1"), false), Admission::In(_)));
        assert_eq!(census.lock().by_address.len(), 0, "nothing is kept of those who left");
    }

    #[test]
    fn a_proxy_that_is_trusted_has_room_for_many() {
        let census = census(100, 2);
        let all: Vec<_> = (0..9).map(|_| census.admit(address("192.0.2.1"), true)).collect();
        assert!(all.iter().all(|admission| matches!(admission, Admission::In(_))));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let census = census(100, 1);
        let _first = census.admit(address("2001:db8::1"), false);
        assert!(matches!(census.admit(address("2001:db8::2"), false), Admission::Told(_)));
        assert!(matches!(census.admit(address("2001:db8:0:1::1"), false), Admission::In(_)));
    }

    #[test]
    fn those_who_wait_make_place_and_those_who_work_do_not() {
        let census = census(2, 100);
        let admitted = |admission| match admission {
            Admission::In(entry) => entry,
            other => panic!("not admitted: {other:?}"),
        };
        let (works, waits) =
            (admitted(census.admit(address("192.0.2.1"), false)), admitted(census.admit(address("192.0.2.2"), false)));
        works.works();
        assert!(matches!(census.admit(address("192.0.2.3"), false), Admission::Told(_)), "nobody has waited for long");
        std::thread::sleep(SPARED);
        let third = admitted(census.admit(address("192.0.2.3"), false));
        assert_eq!(census.evicted.load(Ordering::Relaxed), 1);
        assert!(
            census.lock().waiting.keys().all(|(_, number)| *number == third.number),
            "the waiting one was sent away"
        );
        drop(waits);
        third.works();
        std::thread::sleep(SPARED);
        assert!(matches!(census.admit(address("192.0.2.4"), false), Admission::Told(_)), "both work");
    }

    #[test]
    fn not_everybody_is_told() {
        let census = census(0, 100);
        let told: Vec<_> = (0..=TOLD).map(|_| census.admit(address("192.0.2.1"), false)).collect();
        assert!(matches!(told[TOLD - 1], Admission::Told(_)) && matches!(told[TOLD], Admission::Closed));
    }
}

//! What a real device has learned and not sent, kept between rounds (Deep Gradient Compression; masks that keep the rest).
//!
//! A part of an update leaves; the rest waits for a later round ([`crate::upload`]), in a file of the device's own. It is made of what was typed and
//! is as private: it never leaves, only what training adds up with it does, after it is clipped.
//!
//! **It outlives its text.** A device deletes text once it was learned from. The rest is learned from it, and is kept for so many days, counted
//! from the day on which the oldest of it was learned; then all of it goes, and the next round begins with nothing. With 0 days nothing is ever kept.
//! It goes earlier where the plan has no later round for this device, where the owner deletes their text, and where newer tasks need the room: all tasks
//! together have as many bytes as one may have.
//!
//! **Clocks are wrong at times** ([`crate::days`]). The latest day that this was told is in the file, which is therefore written once on each day on which
//! something is kept; a clock that is set back makes nothing younger, also over restarts.
//!
//! **It is of one task.** The digest of a task covers model and vocabulary, so another layout is another task. A rest of another length than the
//! model is not used.
//!
//! **Crashes.** After the guard has an input on record, and before the first byte of it leaves, the host deletes the text and then saves what is
//! kept from then on ([`Unsent::left`]). So what has left is owed no more, whatever becomes of it, as text is used up whatever becomes of it: nothing is
//! sent twice. A crash between the two loses what was learned from that text, and the rest of before stays. A crash before the first byte
//! loses what would have left. In both cases the diary has an input that nobody thanked for.
//!
//! **A disk that is full** costs no text: before anybody learns, the store is asked for as much room as it would take to save what comes of it
//! ([`Unsent::before`], [`Store::has_room`]), and nothing that is kept is touched for that. Where there is none, nobody learns. A disk that fills up during training
//! costs the text of that round, which is deleted by the time that this is known; so does a store that cannot tell.
//!
//! The bytes: `keyhush unsent`, the format as 4 bytes, the latest day that it was told as 4, the number of tasks as 4; of each the task (32), the day on which the oldest of it was
//! learned (4), that of the last input (4), the numbers of rest and velocity (4 each), and these as floats; SHA-256 of all that. Numbers are little-endian.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    days::Told,
    guard::{Asked, Store, StoreError, TaskDigest},
    upload::Rest,
};

const NAME: &[u8; 14] = b"keyhush unsent";
const FORMAT: u32 = 2;
const HEAD: usize = NAME.len() + 4 + 4 + 4;
const OF_TASK: usize = 32 + 4 * 4;
const CHECKSUM: usize = 32;

/// Tasks of which something is kept: a newer one takes the place of the one that was longest not sent for.
pub const MOST_TASKS: usize = 4;

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Days, from that on which the oldest of it was learned.
    pub days: u32,
    /// Bytes of all tasks together: as many as the device accepts of one ([`crate::protocol::task::Bounds::unsent_bytes`]).
    pub bytes: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { days: 30, bytes: 64 << 20 }
    }
}

/// Why what was kept cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnsentError {
    /// What is there is not what was saved.
    #[error(
        "what this device learned and has not sent is damaged; delete it with keyhush device --forget-text, and the device starts without it"
    )]
    Damaged,
    /// The place where it is kept failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is kept of one task. Its numbers are there once, however often this is cloned.
#[derive(Debug, Clone)]
struct Kept {
    task: TaskDigest,
    /// The day on which the oldest of it was learned, and that of the last input.
    since: u32,
    last: u32,
    rest: Arc<Rest>,
}

impl Kept {
    /// Without a look at its numbers.
    fn is(&self, other: &Self) -> bool {
        let of = |kept: &Self| (kept.task, kept.since, kept.last);
        of(self) == of(other) && Arc::ptr_eq(&self.rest, &other.rest)
    }
}

/// What training came to, until it is known whether it leaves.
#[derive(Debug)]
struct Learned {
    asked: Asked,
    rest: Option<Rest>,
}

/// What a device has learned and not sent.
#[derive(Debug)]
pub struct Unsent<S> {
    store: S,
    keep: Keep,
    kept: Vec<Kept>,
    learned: Option<Learned>,
    /// The latest day that this was told, by the clock as it is now.
    seen: u32,
}

impl<S: Store> Unsent<S> {
    /// What is kept in a store, within these limits; what is older goes before this returns.
    ///
    /// # Errors
    /// When it cannot be read, or not be deleted.
    pub fn open(mut store: S, keep: Keep, today: u32) -> Result<Self, UnsentError> {
        let (seen, kept) = store.load()?.map_or(Ok((0, Vec::new())), |bytes| decode(&bytes))?;
        let mut unsent = Self { store, keep, kept, learned: None, seen };
        unsent.let_go_of_old(today)?;
        Ok(unsent)
    }

    /// What is kept of a task whose model has so many parameters.
    #[must_use]
    pub fn of(&self, task: &TaskDigest, parameters: usize) -> Option<&Arc<Rest>> {
        let fits = |rest: &Rest| rest.vectors().iter().all(|v| v.is_empty() || v.len() == parameters);
        self.kept.iter().find(|kept| kept.task == *task).map(|kept| &kept.rest).filter(|rest| fits(rest))
    }

    /// The same for somebody who is about to learn, where there is room for what would be kept then: otherwise text would be learned from and deleted,
    /// and nothing of it leave. What is kept is not touched.
    ///
    /// # Errors
    /// When there is no room: then nothing is to be learned that would be kept.
    pub fn before(
        &mut self,
        task: TaskDigest,
        parameters: usize,
        has_velocity: bool,
    ) -> Result<Option<Arc<Rest>>, UnsentError> {
        let bytes = 4 * parameters as u64 * if has_velocity { 2 } else { 1 };
        let others = self.kept.iter().filter(|kept| kept.task != task).map(|kept| kept.rest.bytes());
        let mut then: Vec<u64> = others.collect();
        then.extend((self.keep.days > 0 && bytes <= self.keep.bytes).then_some(bytes));
        then.drain(..self.too_many(&then));
        // Who keeps nothing, and kept nothing, writes nothing.
        if !(then.is_empty() && self.kept.is_empty()) {
            let of_tasks = then.iter().map(|bytes| OF_TASK as u64 + bytes).fold(0, u64::saturating_add);
            self.store.has_room(of_tasks.saturating_add((HEAD + CHECKSUM) as u64))?;
        }
        Ok(self.of(&task, parameters).cloned())
    }

    /// What is to be kept if an input leaves. Nothing of it is durable yet.
    pub fn learned(&mut self, asked: Asked, rest: Option<Rest>) {
        self.learned = Some(Learned { asked, rest });
    }

    /// The input of this step is about to leave: what is kept from now on. Durable when this returns.
    ///
    /// # Errors
    /// When it cannot be saved: then the input may not leave.
    pub fn left(&mut self, step: u64, today: u32) -> Result<(), UnsentError> {
        let Some(Learned { asked, rest }) = self.learned.take().filter(|learned| learned.asked.step == step) else {
            return Ok(());
        };
        let (mut kept, today) = self.as_of(today);
        let since = kept.iter().find(|kept| kept.task == asked.task).map_or(today, |kept| kept.since);
        kept.retain(|kept| kept.task != asked.task);
        let rest = rest.filter(|rest| rest.bytes() <= self.keep.bytes);
        kept.extend(rest.map(|rest| Kept { task: asked.task, since, last: today, rest: Arc::new(rest) }));
        self.replace(kept, today)
    }

    /// Deletes what is too old.
    ///
    /// # Errors
    /// When that cannot be saved.
    pub fn let_go_of_old(&mut self, today: u32) -> Result<(), UnsentError> {
        let (kept, today) = self.as_of(today);
        self.replace(kept, today)
    }

    /// Deletes everything, also what training came to and has not left.
    ///
    /// # Errors
    /// When that cannot be saved.
    pub fn clear(&mut self) -> Result<(), UnsentError> {
        self.learned = None;
        self.replace(Vec::new(), self.seen)
    }

    /// Deletes everything that is in a store, also what cannot be read.
    ///
    /// # Errors
    /// When that cannot be saved.
    pub fn forget(store: &mut S) -> Result<(), UnsentError> {
        match store.load()? {
            Some(_) => Ok(store.save(&encode(0, &[]))?),
            None => Ok(()),
        }
    }

    /// Describes it for its owner; nothing where there is nothing.
    #[must_use]
    pub fn page(&self, today: u32) -> Option<String> {
        let (kept, today) = self.as_of(today);
        let oldest = kept.iter().map(|kept| kept.since).min()?;
        let days = today.saturating_sub(oldest);
        let ago = match days {
            0 => "from today".to_owned(),
            1 => "from 1 day ago".to_owned(),
            days => format!("from {days} days ago"),
        };
        let (tasks, s) = (self.kept.len(), if self.kept.len() == 1 { "" } else { "s" });
        Some(format!(
            "Learned from your text and not sent yet, for {tasks} task{s}: the oldest of it is {ago}.\nkeyhush device --forget-text deletes it.\n"
        ))
    }

    /// Gives the store back, for tests of restarts.
    #[cfg(any(test, feature = "contract"))]
    pub fn into_store(self) -> S {
        self.store
    }

    /// What is kept with the days of today's clock, and the day.
    fn as_of(&self, today: u32) -> (Vec<Kept>, u32) {
        let told = Told::new(today, self.kept.iter().map(|kept| kept.last).fold(self.seen, u32::max));
        let by_now = |kept: &Kept| {
            let [since, last] = [kept.since, kept.last].map(|day| told.recorded(day));
            Kept { since, last, ..kept.clone() }
        };
        (self.kept.iter().map(by_now).collect(), told.today)
    }

    fn replace(&mut self, mut kept: Vec<Kept>, today: u32) -> Result<(), UnsentError> {
        kept.retain(|kept| today.saturating_sub(kept.since) < self.keep.days);
        let bytes: Vec<u64> = kept.iter().map(|kept| kept.rest.bytes()).collect();
        kept.drain(..self.too_many(&bytes));
        let is_same = kept.len() == self.kept.len() && kept.iter().zip(&self.kept).all(|(new, old)| new.is(old));
        let is_same_day = today == self.seen || kept.is_empty();
        if !(is_same && is_same_day) {
            self.store.save(&encode(today, &kept))?;
            self.kept = kept;
        }
        self.seen = today;
        Ok(())
    }

    /// How many of the rests with so many bytes have to make room: what was longest not sent for goes first.
    fn too_many(&self, bytes: &[u64]) -> usize {
        let fits = |from: usize| {
            let left = &bytes[from..];
            left.len() <= MOST_TASKS && left.iter().copied().fold(0, u64::saturating_add) <= self.keep.bytes
        };
        (0..bytes.len()).find(|from| fits(*from)).unwrap_or(bytes.len())
    }
}

fn encode(seen: u32, all: &[Kept]) -> Vec<u8> {
    let numbers: usize = all.iter().flat_map(|kept| kept.rest.vectors()).map(<[f32]>::len).sum();
    let mut out = Vec::with_capacity(HEAD + all.len() * OF_TASK + 4 * numbers + CHECKSUM);
    out.extend_from_slice(NAME);
    [FORMAT, seen, all.len() as u32].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    for Kept { task, since, last, rest } in all {
        let vectors = rest.vectors();
        out.extend_from_slice(&task.0);
        let numbers = [*since, *last, vectors[0].len() as u32, vectors[1].len() as u32];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        vectors.into_iter().flatten().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    }
    let checksum = Sha256::digest(&out);
    out.extend_from_slice(&checksum);
    out
}

/// The latest day, and what is kept.
fn decode(bytes: &[u8]) -> Result<(u32, Vec<Kept>), UnsentError> {
    read(bytes).ok_or(UnsentError::Damaged)
}

fn read(bytes: &[u8]) -> Option<(u32, Vec<Kept>)> {
    let (said, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
    if Sha256::digest(said)[..] != *checksum || !said.starts_with(NAME) || said.len() < HEAD {
        return None;
    }
    let number = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if number(said, NAME.len())? != FORMAT {
        return None;
    }
    let (seen, count) = (number(said, NAME.len() + 4)?, number(said, NAME.len() + 8)?);
    let mut left = &said[HEAD..];
    let mut all = Vec::new();
    for _ in 0..count {
        let (head, after) = left.split_at_checked(OF_TASK)?;
        let numbers = [number(head, 32)?, number(head, 36)?, number(head, 40)?, number(head, 44)?];
        let [since, last, rest, velocity] = numbers;
        let (rest, after) = floats(after, rest)?;
        let (velocity, after) = floats(after, velocity)?;
        all.push(Kept {
            task: TaskDigest(*head.first_chunk()?),
            since,
            last,
            rest: Arc::new(Rest::new(rest, velocity)),
        });
        left = after;
    }
    left.is_empty().then_some((seen, all))
}

fn floats(bytes: &[u8], count: u32) -> Option<(Vec<f32>, &[u8])> {
    let (floats, after) = bytes.split_at_checked((count as usize).checked_mul(4)?)?;
    Some((floats.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect(), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        days::CLOCK_IS_SET,
        guard::{MemoryStore, ModelDigest},
    };

    const KEEP: Keep = Keep { days: 30, bytes: 1000 };

    fn asked(task: u8, step: u64) -> Asked {
        Asked { task: TaskDigest([task; 32]), step, model: ModelDigest::of(&[f32::from(task), step as f32]) }
    }

    fn rest(of: f32) -> Rest {
        Rest::new(vec![of, 0.0, -of], vec![of, of, 0.0])
    }

    fn kept<S: Store>(unsent: &Unsent<S>, task: u8) -> Option<&Rest> {
        unsent.of(&TaskDigest([task; 32]), 3).map(|rest| &**rest)
    }

    fn open(store: MemoryStore, today: u32) -> Unsent<MemoryStore> {
        Unsent::open(store, KEEP, today).unwrap()
    }

    #[test]
    fn what_was_learned_is_kept_once_it_leaves_and_not_before() {
        let mut unsent = open(MemoryStore::default(), 100);
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        assert_eq!(kept(&unsent, 1), None);
        // A crash before the guard has it: nothing was sent, and nothing is kept.
        let mut unsent = open(unsent.into_store(), 100);
        assert_eq!(kept(&unsent, 1), None);
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, 100).unwrap();
        let mut unsent = open(unsent.into_store(), 100);
        assert_eq!(kept(&unsent, 1), Some(&rest(1.0)));
        // What training came to in a step that was never sent is not that of the next one.
        unsent.learned(asked(1, 3), Some(rest(3.0)));
        unsent.left(5, 100).unwrap();
        unsent.left(3, 100).unwrap();
        assert_eq!(kept(&unsent, 1), Some(&rest(1.0)));
    }

    #[test]
    fn it_is_of_one_task_and_one_model() {
        let mut unsent = open(MemoryStore::default(), 100);
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, 100).unwrap();
        assert_eq!(kept(&unsent, 2), None);
        assert_eq!(unsent.of(&TaskDigest([1; 32]), 4), None, "of another length");
        for task in 2..=5 {
            unsent.learned(asked(task, 7), Some(rest(2.0)));
            unsent.left(7, 101).unwrap();
        }
        assert_eq!(kept(&unsent, 1), None, "the one that was longest not sent for makes way");
        assert!((2..=5).all(|task| kept(&unsent, task).is_some()));
        // The plan has no later round for it.
        unsent.learned(asked(3, 9), None);
        unsent.left(9, 101).unwrap();
        assert_eq!(kept(&open(unsent.into_store(), 101), 3), None);
    }

    /// The day counts on which the oldest text came into it, however often something was sent since.
    #[test]
    fn it_goes_when_its_oldest_text_is_too_old() {
        let mut unsent = open(MemoryStore::default(), 100);
        for (step, today) in [(0, 100), (1, 110), (2, 129)] {
            unsent.learned(asked(1, step), Some(rest(1.0)));
            unsent.left(step, today).unwrap();
        }
        unsent.let_go_of_old(129).unwrap();
        assert!(kept(&unsent, 1).is_some());
        let store = unsent.store.clone();
        unsent.let_go_of_old(130).unwrap();
        assert_eq!(kept(&unsent, 1), None);
        assert_eq!(unsent.store.bytes.as_ref().map(Vec::len), Some(HEAD + CHECKSUM), "its bytes are gone too");
        assert_eq!(kept(&open(store, 130), 1), None, "also where the device was off");
        // With 0 days nothing is ever kept.
        let mut unsent = Unsent::open(MemoryStore::default(), Keep { days: 0, ..KEEP }, 100).unwrap();
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, 100).unwrap();
        assert_eq!((kept(&unsent, 1), &unsent.store.bytes), (None, &None));
    }

    /// One input of a clock that was ten years ahead was kept for ten years.
    #[test]
    fn a_clock_that_was_wrong_keeps_nothing_longer() {
        let (now, ahead) = (CLOCK_IS_SET + 100, CLOCK_IS_SET + 3750);
        let mut unsent = open(MemoryStore::default(), ahead);
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, ahead).unwrap();
        unsent.let_go_of_old(ahead + 10).unwrap();
        // It is right again, in this life and after a restart: ten days of thirty have passed.
        for (mut unsent, age) in [(open(unsent.store.clone(), now), 10), (unsent, 10)] {
            unsent.let_go_of_old(now).unwrap();
            assert_eq!(
                (unsent.kept[0].since, kept(&unsent, 1)),
                (now - age, Some(&rest(1.0))),
                "it ends nothing early"
            );
            let mut unsent = open(unsent.into_store(), now + 29 - age);
            assert!(kept(&unsent, 1).is_some());
            unsent.let_go_of_old(now + 30 - age).unwrap();
            assert_eq!(kept(&unsent, 1), None);
        }
        // Set back between two inputs: the oldest text counts.
        let mut unsent = open(MemoryStore::default(), now);
        for (step, today) in [(0, now), (1, now + 20), (2, now - 50)] {
            unsent.learned(asked(1, step), Some(rest(1.0)));
            unsent.left(step, today).unwrap();
        }
        assert_eq!((unsent.kept[0].since, unsent.kept[0].last), (now - 70, now - 50));
    }

    /// Many clocks begin in 1970 after a restart, until somebody tells them.
    #[test]
    fn a_clock_that_is_not_set_stands_still() {
        let now = CLOCK_IS_SET + 100;
        let mut unsent = open(MemoryStore::default(), now);
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, now).unwrap();
        let mut unsent = open(unsent.into_store(), 0);
        unsent.learned(asked(1, 1), Some(rest(2.0)));
        unsent.left(1, 3).unwrap();
        assert_eq!((unsent.kept[0].since, unsent.kept[0].last), (now, now));
        unsent.let_go_of_old(now + 29).unwrap();
        assert!(kept(&unsent, 1).is_some());
        unsent.let_go_of_old(now + 30).unwrap();
        assert_eq!(kept(&unsent, 1), None);
    }

    /// A clock that was set back while the device was off made what was kept as young as its last input.
    #[test]
    fn days_that_passed_before_a_restart_have_passed() {
        let (now, later) = (CLOCK_IS_SET + 100, CLOCK_IS_SET + 125);
        let mut unsent = open(MemoryStore::default(), now);
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, now).unwrap();
        for day in now..=later {
            unsent.let_go_of_old(day).unwrap();
        }
        let mut unsent = open(unsent.into_store(), now);
        assert_eq!(unsent.kept[0].since, now - 25);
        assert!(unsent.page(now).unwrap().contains("from 25 days ago"));
        unsent.let_go_of_old(now + 4).unwrap();
        assert!(kept(&unsent, 1).is_some());
        unsent.let_go_of_old(now + 5).unwrap();
        assert_eq!(kept(&unsent, 1), None);
    }

    /// A server with four tasks got four times the room that a device has for one.
    #[test]
    fn all_tasks_together_have_the_room_of_one() {
        let rest = |floats: usize| Rest::new(vec![1.0; floats], Vec::new());
        let mut unsent = open(MemoryStore::default(), 100);
        // What was longest not sent for makes way; what never fits is not kept, and nothing makes way for it.
        for (task, floats, tasks) in [
            (1, 100, vec![1]),
            (2, 100, vec![1, 2]),
            (3, 50, vec![1, 2, 3]),
            (4, 101, vec![3, 4]),
            (5, 251, vec![3, 4]),
        ] {
            unsent.learned(asked(task, 0), Some(rest(floats)));
            unsent.left(0, 100).unwrap();
            assert_eq!(unsent.kept.iter().map(|kept| kept.task.0[0]).collect::<Vec<u8>>(), tasks);
        }
    }

    #[test]
    fn what_the_owner_deletes_is_gone() {
        let mut unsent = open(MemoryStore::default(), 100);
        assert_eq!(unsent.page(100), None);
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, 100).unwrap();
        assert!(unsent.page(102).unwrap().contains("from 2 days ago"));
        unsent.learned(asked(1, 1), Some(rest(2.0)));
        unsent.clear().unwrap();
        unsent.left(1, 100).unwrap();
        assert_eq!((kept(&unsent, 1), unsent.page(100)), (None, None));
        assert_eq!(kept(&open(unsent.into_store(), 100), 1), None);
    }

    #[test]
    fn what_is_damaged_can_be_deleted() {
        let mut disk = MemoryStore { bytes: Some(b"keyhush unsent, damaged".to_vec()) };
        assert!(Unsent::open(disk.clone(), KEEP, 100).is_err());
        Unsent::forget(&mut disk).unwrap();
        assert!(Unsent::open(disk, KEEP, 100).is_ok());
    }

    /// A store that has room for so many bytes, and keeps what it had.
    struct Fails(MemoryStore, usize);

    impl Store for Fails {
        fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
            self.0.load()
        }

        fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
            self.has_room(bytes.len() as u64)?;
            self.0.save(bytes)
        }

        fn has_room(&mut self, bytes: u64) -> Result<(), StoreError> {
            match bytes > self.1 as u64 {
                true => Err(StoreError::Failed { doing: "write", place: "it".into(), problem: "full".into() }),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn what_cannot_be_saved_is_an_error_and_what_was_kept_stays() {
        let mut unsent = Unsent::open(Fails(MemoryStore::default(), 1000), KEEP, 100).unwrap();
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, 100).unwrap();
        unsent.store.1 = 0;
        unsent.learned(asked(1, 1), Some(rest(2.0)));
        assert!(unsent.left(1, 101).is_err() && unsent.clear().is_err() && unsent.let_go_of_old(200).is_err());
        assert_eq!(kept(&unsent, 1), Some(&rest(1.0)));
    }

    /// Text was learned from and deleted in every round, and no report left.
    #[test]
    fn who_cannot_keep_anything_learns_nothing_until_there_is_room() {
        let of_tasks = |tasks: usize| HEAD + tasks * (OF_TASK + 24) + CHECKSUM;
        let mut unsent = Unsent::open(Fails(MemoryStore::default(), 0), KEEP, 100).unwrap();
        let before = |unsent: &mut Unsent<Fails>, task: u8| unsent.before(TaskDigest([task; 32]), 3, true);
        for room in [0, of_tasks(0), of_tasks(1) - 1] {
            unsent.store.1 = room;
            assert!(before(&mut unsent, 1).is_err(), "{room} bytes are not enough for what would be kept");
        }
        unsent.store.1 = of_tasks(1);
        assert_eq!(before(&mut unsent, 1), Ok(None));
        assert_eq!(unsent.store.0.bytes, None, "nothing is written for that");
        unsent.learned(asked(1, 0), Some(rest(1.0)));
        unsent.left(0, 100).unwrap();
        let durable = unsent.store.0.bytes.clone();
        assert_eq!(before(&mut unsent, 1), Ok(Some(Arc::new(rest(1.0)))));
        // With another task there is more to save, and a smaller save that worked says nothing of that.
        unsent.let_go_of_old(100).unwrap();
        assert!(before(&mut unsent, 2).is_err());
        unsent.store.1 = of_tasks(2);
        assert_eq!(before(&mut unsent, 2), Ok(None));
        assert_eq!(unsent.store.0.bytes, durable, "what is kept is not touched");
        // What is too large to be kept, or never kept, needs no room; what it takes the place of makes some.
        unsent.store.1 = of_tasks(1);
        assert_eq!(unsent.before(TaskDigest([2; 32]), 251, false), Ok(None));
        unsent.store.1 = 0;
        assert!(before(&mut unsent, 1).is_err(), "it may have worked before");
        let mut nothing = Unsent::open(Fails(MemoryStore::default(), 0), Keep { days: 0, ..KEEP }, 100).unwrap();
        assert_eq!(before(&mut nothing, 1), Ok(None));
    }

    #[test]
    fn damage_is_noticed() {
        let mut unsent = open(MemoryStore::default(), 100);
        for task in [1, 2] {
            unsent.learned(asked(task, 0), Some(rest(1.0)));
            unsent.left(0, 100).unwrap();
        }
        let whole = unsent.into_store().bytes.unwrap();
        assert!(Unsent::open(MemoryStore { bytes: Some(whole.clone()) }, KEEP, 100).is_ok());
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            let opened = Unsent::open(MemoryStore { bytes: Some(damaged) }, KEEP, 100);
            assert!(matches!(opened, Err(UnsentError::Damaged)), "byte {at}");
            assert!(Unsent::open(MemoryStore { bytes: Some(whole[..at].to_vec()) }, KEEP, 100).is_err(), "{at} bytes");
        }
    }
}

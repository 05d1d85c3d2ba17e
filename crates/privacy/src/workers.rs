//! Runs work that splits into pieces: on the calling thread, or on threads of the caller.
//!
//! This crate starts no threads: it also runs in browsers. What can be done in pieces, such as the noise of a long vector, is given to
//! [`Workers`], and callers with threads provide them. No result depends on them: every piece has its own place, and its own stream of
//! random words. Nor is any piece taken on trust: work that was not done, or not to its end, is an error ([`Undone`]), since a piece of
//! a vector without its noise would be the sum itself.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use thiserror::Error;

/// Does pieces of work that do not depend on each other.
pub trait Workers: Sync {
    /// Does the pieces `0..pieces`, each once, in any order and at the same time or not; returns when all are done.
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync));
}

/// The thread that asks, one piece after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Workers for Alone {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..pieces).for_each(work);
    }
}

/// Workers that left something out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("only {done} of {pieces} pieces of a vector were processed; the vector must not be used")]
pub struct Undone {
    /// The number of pieces.
    pub pieces: usize,
    /// The number of pieces that were done.
    pub done: usize,
}

/// Does something with each of some values, which workers take one by one.
///
/// # Errors
/// What went wrong with the first of them, in their order; or that some were left out.
pub fn each<T: Send, E: Send + From<Undone>>(
    workers: &dyn Workers,
    values: impl IntoIterator<Item = T>,
    work: impl Fn(usize, T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let waiting: Vec<Mutex<Option<T>>> = values.into_iter().map(|value| Mutex::new(Some(value))).collect();
    let (done, wrong) = (AtomicUsize::new(0), Mutex::new(None::<(usize, E)>));
    workers.each(waiting.len(), &|piece| {
        let taken = waiting.get(piece).and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(value) = taken else { return };
        match work(piece, value) {
            Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
            Err(problem) => {
                let mut wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner);
                if wrong.as_ref().is_none_or(|(first, _)| piece < *first) {
                    *wrong = Some((piece, problem));
                }
            }
        }
    });
    if let Some((_, problem)) = wrong.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(problem);
    }
    let (pieces, done) = (waiting.len(), done.into_inner());
    if done == pieces { Ok(()) } else { Err(Undone { pieces, done }.into()) }
}

/// The same for what cannot go wrong by itself.
///
/// # Errors
/// When some were left out.
pub fn all<T: Send>(
    workers: &dyn Workers,
    values: impl IntoIterator<Item = T>,
    work: impl Fn(usize, T) + Sync,
) -> Result<(), Undone> {
    each(workers, values, |piece, value| {
        work(piece, value);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Backwards, some pieces twice, and those from a number on not at all.
    struct Careless {
        until: usize,
    }

    impl Workers for Careless {
        fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
            (0..pieces.min(self.until)).rev().chain(0..3).chain([pieces + 7]).for_each(work);
        }
    }

    fn doubled(workers: &dyn Workers) -> Result<Vec<i64>, Undone> {
        let mut values: Vec<i64> = (0..100).collect();
        all(workers, values.chunks_mut(7), |_, some| some.iter_mut().for_each(|v| *v *= 2))?;
        Ok(values)
    }

    #[test]
    fn every_piece_is_done_once_in_any_order() {
        let want: Vec<i64> = (0..100).map(|v| 2 * v).collect();
        assert_eq!(doubled(&Alone).unwrap(), want);
        assert_eq!(doubled(&Careless { until: usize::MAX }).unwrap(), want);
    }

    #[test]
    fn p13_a_piece_that_was_left_out_is_an_error() {
        assert_eq!(doubled(&Careless { until: 14 }).unwrap_err(), Undone { pieces: 15, done: 14 });
    }

    #[test]
    fn what_went_wrong_first_in_order_is_said() {
        let wrong = |piece: usize, _| if piece % 4 == 1 { Err(Undone { pieces: piece, done: 0 }) } else { Ok(()) };
        for workers in [&Alone as &dyn Workers, &Careless { until: usize::MAX }] {
            assert_eq!(each(workers, 0..10, wrong).unwrap_err().pieces, 1);
        }
    }
}

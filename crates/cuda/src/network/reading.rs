//! What the card reads in a chunk: the text of its users, step by step, and which step it is at.
//!
//! It has as many steps as the user with the most of them. So a user who types without end would take the memory of all others: there is
//! room for some steps in any case, which the memory of a chunk accounts for ([`USUAL_STEPS`]), and beyond that for so many bytes.

use super::Factor;
use crate::{
    card::{Card, Memory},
    error::CudaError,
    held::Held,
    schedule::{Lists, Schedule},
    shape::Shape,
};

/// Steps of a user that there is room for in any case.
pub(super) const USUAL_STEPS: usize = 256;
/// Bytes of the text of a chunk at most, beyond the usual steps. The host holds it a few times more: what is read, and what is read ahead.
const MOST_BYTES: usize = 1 << 30;
/// Up to so many bytes there is room for more steps than are needed, so that room is seldom made again.
const SMALL: usize = 1 << 26;

/// What the card reads in a chunk, and which step it is at.
pub(crate) struct Reading {
    pub(crate) step: Memory<i32>,
    pub(super) inputs: Memory<i32>,
    pub(super) targets: Memory<i32>,
    pub(super) order: Memory<i32>,
    pub(super) shares: Memory<f32>,
    pub(super) touched: Memory<i32>,
    /// What weights and products are multiplied with: see [`Factor`].
    pub(super) factors: Memory<f32>,
    pub(crate) flags: Memory<i32>,
    pub(super) features: Memory<f32>,
    /// Steps that there is room for.
    room: usize,
}

impl Reading {
    /// Bytes of a step of all users, with these lists.
    pub(super) const fn bytes_of_step(shape: &Shape, lists: Lists) -> usize {
        let each = 2 + if lists.order { 1 } else { 0 } + if lists.touched { 4 } else { 0 };
        let known = if shape.many_people { shape.rows * shape.context } else { 0 };
        4 * shape.users * (shape.tokens() * each + 2 + known)
    }

    /// The most steps of a user that there is ever room for.
    pub(super) fn most_steps(shape: &Shape, lists: Lists) -> usize {
        (MOST_BYTES / Self::bytes_of_step(shape, lists)).max(USUAL_STEPS)
    }

    /// For how many steps room is made where so many are needed.
    fn room_for(steps: usize, bytes_of_step: usize) -> usize {
        let more = steps.next_power_of_two();
        if more.saturating_mul(bytes_of_step) <= SMALL { more } else { steps }
    }

    /// What people typed, and how much.
    pub(super) fn held(&mut self) -> Vec<Held<'_>> {
        // The rate is everybody's. All fields stand here, so that none is forgotten.
        let Self { step, inputs, targets, order, shares, touched, factors: _, flags, features, room: _ } = self;
        let mut all: Vec<Held<'_>> = [step, inputs, targets, order, touched, flags].map(Held::I32).into();
        all.extend([shares, features].map(Held::F32));
        all
    }

    pub(super) fn new(card: &Card, shape: &Shape, steps: usize, lists: Lists) -> Result<Self, CudaError> {
        let (each, tokens) = (steps * shape.users, steps * shape.users * shape.tokens());
        Ok(Self {
            step: card.zeros(2)?,
            inputs: card.zeros(tokens)?,
            targets: card.zeros(tokens)?,
            order: card.zeros(if lists.order { tokens } else { 0 })?,
            shares: card.zeros(each)?,
            touched: card.zeros(if lists.touched { 4 * tokens } else { 0 })?,
            factors: card.zeros(Factor::COUNT)?,
            flags: card.zeros(each)?,
            features: card.zeros(shape.features(steps))?,
            room: steps,
        })
    }

    /// Makes room for so many steps. Whether there was none, so that memory moved: what was there before is cleared and given back first.
    pub(super) fn make_room(
        &mut self,
        card: &Card,
        shape: &Shape,
        steps: usize,
        lists: Lists,
    ) -> Result<bool, CudaError> {
        if steps <= self.room {
            return Ok(false);
        }
        self.held().into_iter().try_for_each(|held| held.clear(card))?;
        card.wait()?;
        *self = Self::new(card, shape, 1, lists)?;
        card.wait()?;
        let each = Self::bytes_of_step(shape, lists);
        let room = Self::room_for(steps, each);
        let (needed, free) = (room.saturating_mul(each), card.free()?);
        if needed > free {
            return Err(no_room(free, shape.users));
        }
        *self = Self::new(card, shape, room, lists)?;
        Ok(true)
    }

    pub(super) fn upload(&mut self, card: &Card, shape: &Shape, schedule: &Schedule) -> Result<(), CudaError> {
        let each = schedule.rate / shape.tokens() as f32;
        card.upload(&[0.0, 1.0, -each, each, schedule.rate], &mut self.factors)?;
        card.upload(&[0, schedule.steps as i32], &mut self.step)?;
        card.upload(&schedule.inputs, &mut self.inputs)?;
        card.upload(&schedule.targets, &mut self.targets)?;
        card.upload(&schedule.order, &mut self.order)?;
        card.upload(&schedule.shares, &mut self.shares)?;
        card.upload(&schedule.touched, &mut self.touched)?;
        card.upload(&schedule.flags, &mut self.flags)?;
        card.upload(&schedule.features, &mut self.features)
    }
}

/// How much somebody typed is theirs, and is not said (rule P12).
fn no_room(free: usize, users: usize) -> CudaError {
    CudaError::Refused(format!(
        "the GPU has {} MiB free beside the models of {users} users, and the text of the longest of them needs more; set local.most_tokens, or use fewer local.epochs",
        free >> 20
    ))
}

#[cfg(test)]
mod tests {
    use lm::model::config::ModelConfig;

    use super::*;
    use crate::central::one_reading;

    fn shape(users: usize, rows: usize, unroll: usize) -> Shape {
        Shape::new(&ModelConfig::preset("tiny").unwrap(), &one_reading(rows, unroll), users).unwrap()
    }

    /// Rounded up to a power of two, the text of one long user could take twice what it needs, and what there was before beside it.
    #[test]
    fn room_is_made_ahead_only_where_it_is_small() {
        let each = 100 * (80 * 28 + 8);
        assert_eq!([1, 3, 20, 200, 256].map(|steps| Reading::room_for(steps, each)), [1, 4, 32, 256, 256]);
        assert_eq!([300, 4000, 1 << 40].map(|steps| Reading::room_for(steps, each)), [300, 4000, 1 << 40]);
        assert_eq!(Reading::room_for(usize::MAX / 2, usize::MAX), usize::MAX / 2);
    }

    #[test]
    fn nobody_takes_more_than_a_gibibyte_for_their_text_but_for_the_usual_steps() {
        let all = Lists { order: true, touched: true };
        let few = Lists { order: false, touched: true };
        assert_eq!(Reading::bytes_of_step(&shape(100, 8, 10), all), 100 * (80 * 28 + 8));
        assert_eq!(Reading::bytes_of_step(&shape(100, 8, 10), few), 100 * (80 * 24 + 8));
        let people = Shape { many_people: true, context: 3, ..shape(1, 8, 10) };
        assert_eq!(Reading::bytes_of_step(&people, few), 80 * 24 + 8 + 4 * 8 * 3);
        let steps = Reading::most_steps(&shape(50, 8, 10), all);
        assert!((9000..10_000).contains(&steps), "{steps}");
        assert_eq!(Reading::most_steps(&shape(400, 128, 128), all), USUAL_STEPS);
    }

    #[test]
    fn who_has_too_much_text_is_told_what_to_do_and_nobody_how_much_it_is() {
        let said = no_room(5 << 20, 40).to_string();
        assert!(["5 MiB", "40 users", "local.most_tokens"].iter().all(|part| said.contains(part)), "{said}");
    }
}

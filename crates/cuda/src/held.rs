//! Everything the card holds of people's data, in one list: it is cleared after a round, and a test checks the same list.

use crate::{
    card::{Card, Memory},
    error::CudaError,
};

/// Memory that has something of somebody in it while a round lasts.
pub(crate) enum Held<'a> {
    F32(&'a mut Memory<f32>),
    F64(&'a mut Memory<f64>),
    I32(&'a mut Memory<i32>),
    I64(&'a mut Memory<i64>),
    U8(&'a mut Memory<u8>),
    U32(&'a mut Memory<u32>),
    U64(&'a mut Memory<u64>),
}

impl Held<'_> {
    /// Makes it zero.
    pub(crate) fn clear(self, card: &Card) -> Result<(), CudaError> {
        match self {
            Self::F32(memory) => card.clear(memory),
            Self::F64(memory) => card.clear(memory),
            Self::I32(memory) => card.clear(memory),
            Self::I64(memory) => card.clear(memory),
            Self::U8(memory) => card.clear(memory),
            Self::U32(memory) => card.clear(memory),
            Self::U64(memory) => card.clear(memory),
        }
    }

    /// Whether it is zero: for tests.
    pub(crate) fn reads_zero(self, card: &Card) -> Result<bool, CudaError> {
        match self {
            Self::F32(memory) => is_zero(card, memory, 1.0),
            Self::F64(memory) => is_zero(card, memory, 1.0),
            Self::I32(memory) => is_zero(card, memory, 1),
            Self::I64(memory) => is_zero(card, memory, 1),
            Self::U8(memory) => is_zero(card, memory, 1),
            Self::U32(memory) => is_zero(card, memory, 1),
            Self::U64(memory) => is_zero(card, memory, 1),
        }
    }
}

/// Makes all of it zero, also what comes after something that cannot be cleared; says so when it is done.
pub(crate) fn clear_all<'a>(all: impl IntoIterator<Item = Held<'a>>, card: &Card) -> Result<(), CudaError> {
    let cleared: Vec<Result<(), CudaError>> = all.into_iter().map(|held| held.clear(card)).collect();
    cleared.into_iter().collect::<Result<(), _>>()?;
    card.wait()
}

fn is_zero<T>(card: &Card, memory: &Memory<T>, something: T) -> Result<bool, CudaError>
where
    T: cudarc::driver::DeviceRepr + Copy + Default + PartialEq,
{
    let mut values = vec![something; memory.len()];
    card.download(memory, &mut values)?;
    Ok(values.iter().all(|value| *value == T::default()))
}

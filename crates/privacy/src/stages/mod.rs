//! From a raw update to what anyone may see: `Update -> Clipped -> Encoded -> Sum -> Released`.
//!
//! Each step consumes the type before it, and no type can be made in another way, so a step cannot be left out: what
//! the optimizer takes is a [`Released`], which only a mechanism makes, from a [`Sum`], which holds nothing but
//! [`Encoded`] vectors whose integer norm was checked, exactly, against the bound that the accountant uses. To audit,
//! look for three words: [`Sum::assertion`] (a securely aggregated sum, whose parts nobody can check),
//! [`Sum::release_without_privacy`] and [`Released::restore`].

mod clipped;
mod encoded;
mod released;

pub use self::{
    clipped::{ClipBit, ClipRule, ClipRuleError, Clipped, Clipping, Contribution, LayerClip, Update, project},
    encoded::{Encoded, Sum},
    released::{Released, RestoreError},
};

//! The stages from a raw update to a release: `Update -> Clipped -> Encoded -> Sum -> Released`.
//!
//! Each step consumes the type before it, and no type can be made in another way, so a step cannot be left out: what
//! a ledger takes, and gives back to the optimizer as recorded, is a [`Released`], which only a mechanism makes, from a
//! [`Sum`], which holds nothing but [`Encoded`] vectors whose integer norm was checked, exactly, against the bound that the
//! accountant uses. What a release says is a [`Published`], which anyone may copy and read back, and which opens no door.
//! Between sum and release, a [`Quotient`] may divide by the weight. Where users add the noise themselves, the way is
//! `Update -> Clipped -> Encoded -> NoisedSum -> Released`, and there is never a sum without noise.
//!
//! To audit, look for four words: [`Sum::assertion`] (a sum whose parts were not checked here: of secure aggregation, whose parts
//! nobody can check, by [`Residues::sum`]; of a card, which checked them itself, by the engine `cuda`; and of tests), [`Residues::noised_sum`] (the same, and nobody can check that its noise is there),
//! [`Sum::across_processes`] (sums of several processes of one run) and [`Sum::release_without_privacy`].
//!
//! ```
//! use keyhush_privacy::{
//!     Adjacency, ClipNorm, NoiseMatrix, NoiseMultiplier, Participation, Segment,
//!     encoding::{Encoding, NoisePlan, VectorPlan},
//!     mechanism::{Correlation, Mechanism, MechanismPlan},
//!     rng::{NoiseKey, NoiseSource, Purpose, Randomness},
//!     stages::{ClipBit, ClipRule, Clipping, Contribution, Sum, Update},
//!     step_keys::{MemoryShelf, SecretSteps},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clip = ClipNorm::new(0.5)?;
//! let noise = NoisePlan::of_update(NoiseMultiplier::new(7.0)?);
//! let encoding = Encoding::new(VectorPlan::of_update(3, 20), clip, Some(&noise), Adjacency::ZeroOut)?;
//! // A run keeps its keys in files; here they end with the program.
//! let mut keys = SecretSteps::new(NoiseKey::generate()?, MemoryShelf::default());
//! let plan = MechanismPlan {
//!     stream: 0,
//!     adjacency: Adjacency::ZeroOut,
//!     participation: Participation::Once,
//!     correlation: Correlation::Matrix(NoiseMatrix::Tree),
//!     segments: vec![Segment::of(1000)],
//!     distributed: None,
//! };
//! let mut mechanism = Mechanism::init(plan, encoding.layout(), Randomness::Secret)?;
//!
//! let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None)?;
//! let mut sum = Sum::zero(&encoding);
//! for (user, delta) in [vec![0.1, -0.2, 0.0], vec![30.0, 40.0, 0.0], vec![f32::NAN, 0.0, 0.0]].into_iter().enumerate() {
//!     let own = NoiseSource::from(NoiseKey::generate()?);
//!     let mut rounding = own.stream(Purpose::Rounding, &[user as u64]).chunk(0);
//!     sum.add(&Update::new(delta).clip(&clipping, Contribution::default())?.encode(&encoding, &mut rounding)?)?;
//! }
//! let released = mechanism.release(sum, &mut keys)?;
//! let noised_sum = released.update(&encoding)?; // (0.4, 0.2, 0.0) plus noise of standard deviation 3.5
//! assert_eq!(noised_sum.len(), 3);
//! # Ok(())
//! # }
//! ```
//!
//! A step cannot be skipped, forged or repeated:
//!
//! ```compile_fail,E0423
//! use keyhush_privacy::stages::{Published, Released};
//! fn forged(published: Published) -> Released {
//!     Released(published)
//! }
//! ```
//!
//! ```compile_fail,E0599
//! use keyhush_privacy::stages::Released;
//! fn read_back(bytes: &[u8]) -> Released {
//!     Released::parse(bytes).unwrap()
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use keyhush_privacy::stages::Released;
//! fn copied(released: &Released) -> Released {
//!     released.clone() // what is cloned is what was published
//! }
//! ```
//!
//! ```compile_fail,E0451
//! use keyhush_privacy::stages::Published;
//! fn changed(values: Vec<i64>, published: Published) -> Published {
//!     Published { values, ..published }
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use keyhush_privacy::{mechanism::Mechanism, stages::{Encoded, Released}, step_keys::StepKeys};
//! fn skipped(mechanism: &mut Mechanism, one: Encoded, keys: &mut dyn StepKeys) -> Released {
//!     mechanism.release(one, keys).unwrap()
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use keyhush_privacy::{mechanism::Mechanism, stages::{Released, Sum}};
//! fn without_its_noise(mechanism: &mut Mechanism, sum: Sum) -> Released {
//!     mechanism.release_noised(sum).unwrap()
//! }
//! ```
//!
//! ```compile_fail,E0382
//! use keyhush_privacy::{mechanism::Mechanism, stages::{Released, Sum}, step_keys::StepKeys};
//! fn repeated(mechanism: &mut Mechanism, sum: Sum, keys: &mut dyn StepKeys) -> [Released; 2] {
//!     [mechanism.release(sum, keys).unwrap(), mechanism.release(sum, keys).unwrap()]
//! }
//! ```

mod clipped;
mod encoded;
mod published;
mod quotient;
mod residues;
#[cfg(feature = "os-entropy")]
mod sealed;

#[cfg(feature = "os-entropy")]
pub use self::sealed::SealingKey;
pub use self::{
    clipped::{ClipBit, ClipRule, ClipRuleError, Clipped, Clipping, Contribution, LayerClip, Update, project},
    encoded::{Arriving, Encoded, SoFar, Spare, Sum},
    published::{Published, Released, UnreadableRelease},
    quotient::Quotient,
    residues::{NoisedSum, Residues},
};

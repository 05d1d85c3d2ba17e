//! stub
use super::{AccountError, AccountantKind, Judgement, Precision, release::Reduced};
use crate::units::Delta;
pub(super) fn judge(_r: &Reduced<'_>, _d: Delta, _p: Precision) -> Result<Judgement, AccountError> {
    Err(AccountError::Unsupported { accountant: AccountantKind::Pld, event: "x", advice: "y" })
}

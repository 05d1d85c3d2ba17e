//! The key that hides the addresses from which devices enrol, stored with the secrets.
//!
//! How many devices enrolled in this hour, in all and from each address, must be known after a restart, or somebody who can make a
//! server start again enrols as many as they like. So it is counted in the database, by digests of addresses under this key: a copy
//! of the database does not show from where devices came. It is drawn once. Where it is lost, only who enrolled from where in this hour is.

use std::path::Path;

use durable::{
    disk::{Disk, OsDisk},
    files::{self, Replacement, beside, failed},
};
use federated::{protocol::admission::PlaceKey, secrets::FileVault};
use zeroize::Zeroizing;

use super::DatabaseError;

/// The file in the folder of secrets.
const FILE: &str = "places";

/// The key in a folder of secrets, which is for its owner alone; drawn where there is none.
///
/// # Errors
/// When the disk fails, or the file holds something else.
pub fn place_key(secrets: &Path) -> Result<PlaceKey, DatabaseError> {
    FileVault::in_folder(secrets)?;
    let path = secrets.join(FILE);
    let mut key = Zeroizing::new([0; 32]);
    match OsDisk.read(&path).map_err(failed("read", &path))?.map(Zeroizing::new) {
        Some(bytes) if bytes.len() == key.len() => key.copy_from_slice(&bytes),
        Some(_) => return Err(DatabaseError::PlacesDamaged { place: path }),
        None => {
            getrandom::fill(&mut *key).map_err(DatabaseError::Randomness)?;
            let by = Replacement { new: &beside(&path, ".new"), private: true, time: None };
            files::replace(&OsDisk, &path, by, |out| out.write_all(&*key))?;
        }
    }
    Ok(PlaceKey::new(key))
}

//! Tokens and roles: who may see and do what.
//!
//! A token is 160 random bits and is shown once, when it is created. What is stored is its SHA-256 digest, with a name, a role and a time, in
//! `access.json` of the folder of secrets, for its owner alone. The file is small and is read for every request, so a token that is revoked
//! is refused from then on. Guessing needs no limit of its own: at a million guesses per second, the chance to find one of a thousand tokens
//! within a century is below 10^-29.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use durable::{
    disk::{Disk, Lock, OsDisk},
    files::{self, Replacement, beside, failed},
};
use federated::secrets::FileVault;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::ConsoleError;

/// The file in the folder of secrets.
const FILE: &str = "access.json";
/// Each token begins with this, so that programs that look for secrets in texts recognise it.
const BEGINS: &str = "keyhush_";
/// The random bytes of a token.
const BYTES: usize = 20;
/// How often it is tried to take the lock, and how long to wait between.
const TRIES: usize = 200;
const BETWEEN: Duration = Duration::from_millis(10);

/// What somebody may see and do. Each role may do all that those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees what is released: tasks, metrics, epsilon, statements, ledgers.
    Viewer,
    /// Also sees exact counts of devices, which are outside the guarantee, and pauses, resumes and stops tasks.
    Operator,
    /// Also creates tasks.
    Officer,
}

impl Role {
    /// All roles, the lowest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Officer];

    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Officer => "officer",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = Self::ALL.into_iter().find(|role| role.word() == text);
        role.ok_or_else(|| format!("a role must be viewer, operator or officer, not {text:?}"))
    }
}

/// A token that was created, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Granted {
    /// The token's name: whose it is, or what it is for.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// When it was created.
    pub created: String,
    /// The SHA-256 digest of the token, in hexadecimal digits.
    pub sha256: String,
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    tokens: Vec<Granted>,
}

/// A token, to be shown to its owner once.
pub struct Token(Zeroizing<String>);

impl Token {
    /// The text of the token.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    fn draw() -> Result<Self, ConsoleError> {
        let mut drawn = Zeroizing::new([0; BYTES]);
        getrandom::fill(&mut *drawn).map_err(ConsoleError::Randomness)?;
        Ok(Self(Zeroizing::new(format!("{BEGINS}{}", *Zeroizing::new(ledger::hex(&*drawn))))))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Somebody whose token is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// The token's name.
    pub name: String,
    /// What it allows.
    pub role: Role,
}

/// The tokens of a server. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct Access {
    path: PathBuf,
}

impl Access {
    /// Those in a folder of secrets.
    #[must_use]
    pub fn in_secrets(secrets: &Path) -> Self {
        Self { path: secrets.join(FILE) }
    }

    /// Whether a token was ever created.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn exists(&self) -> Result<bool, ConsoleError> {
        Ok(self.path.try_exists().map_err(failed("look at", &self.path))?)
    }

    /// Creates a token. It works from now on, also on a server that runs.
    ///
    /// # Errors
    /// A name that is none, or is taken; a damaged file; or a disk that fails.
    pub fn create(&self, name: &str, role: Role) -> Result<Token, ConsoleError> {
        let known = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if !(1..=64).contains(&name.len()) || !name.chars().all(known) {
            return Err(ConsoleError::Name { name: name.to_owned() });
        }
        let _lock = self.lock()?;
        let mut written = self.read()?;
        if written.tokens.iter().any(|granted| granted.name == name) {
            return Err(ConsoleError::Taken { name: name.to_owned() });
        }
        let token = Token::draw()?;
        let created = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default().to_string();
        written.tokens.push(Granted {
            name: name.to_owned(),
            role,
            created,
            sha256: ledger::hex(&digest(token.text())),
        });
        self.write(&written)?;
        Ok(token)
    }

    /// All tokens, in the order in which they were created.
    ///
    /// # Errors
    /// A damaged file, or a disk that fails.
    pub fn list(&self) -> Result<Vec<Granted>, ConsoleError> {
        Ok(self.read()?.tokens)
    }

    /// Revokes a token: it is refused from now on, also by a server that runs.
    ///
    /// # Errors
    /// When there is none of this name; a damaged file; or a disk that fails.
    pub fn revoke(&self, name: &str) -> Result<Granted, ConsoleError> {
        let _lock = self.lock()?;
        let mut written = self.read()?;
        let Some(at) = written.tokens.iter().position(|granted| granted.name == name) else {
            let names: Vec<&str> = written.tokens.iter().map(|granted| granted.name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(ConsoleError::Unknown { name: name.to_owned(), there });
        };
        let revoked = written.tokens.remove(at);
        self.write(&written)?;
        Ok(revoked)
    }

    /// Whose token this is; none if it is nobody's. It takes the same time whichever tokens there are and whichever is shown.
    ///
    /// # Errors
    /// A damaged file, or a disk that fails: then nobody has access.
    pub fn who(&self, token: &str) -> Result<Option<Who>, ConsoleError> {
        let shown = digest(token);
        let written = self.read()?;
        let (mut found, mut at) = (Choice::from(0), 0);
        for (i, granted) in written.tokens.iter().enumerate() {
            let known: [u8; 32] = ledger::unhex(&granted.sha256).map_err(|error| self.damaged(error))?;
            let same = known.ct_eq(&shown);
            at = u64::conditional_select(&at, &(i as u64), same);
            found |= same;
        }
        let granted = written.tokens.get(at as usize).filter(|_| bool::from(found));
        Ok(granted.map(|granted| Who { name: granted.name.clone(), role: granted.role }))
    }

    fn read(&self) -> Result<Written, ConsoleError> {
        match OsDisk.mode(&self.path).map_err(failed("look at", &self.path))? {
            Some(mode) if mode & 0o077 != 0 => {
                return Err(ConsoleError::Loose { path: self.path.clone(), mode: mode & 0o7777 });
            }
            _ => {}
        }
        let Some(bytes) = OsDisk.read(&self.path).map_err(failed("read", &self.path))? else {
            return Ok(Written::default());
        };
        serde_json::from_slice(&bytes).map_err(|error| self.damaged(error))
    }

    fn write(&self, written: &Written) -> Result<(), ConsoleError> {
        let mut text = serde_json::to_vec_pretty(written).map_err(|error| self.damaged(error))?;
        text.push(b'\n');
        let by = Replacement { new: &beside(&self.path, ".new"), private: true, time: None };
        Ok(files::replace(&OsDisk, &self.path, by, |out| out.write_all(&text))?)
    }

    /// Two commands at a time do not lose what the other wrote.
    fn lock(&self) -> Result<Lock, ConsoleError> {
        FileVault::in_folder(files::folder(&self.path)).map_err(Box::new)?;
        let place = beside(&self.path, ".lock");
        for _ in 0..TRIES {
            if let Some(lock) = OsDisk.lock(&place).map_err(failed("lock", &place))? {
                return Ok(lock);
            }
            std::thread::sleep(BETWEEN);
        }
        Err(ConsoleError::Busy { path: self.path.clone() })
    }

    fn damaged(&self, problem: impl fmt::Display) -> ConsoleError {
        ConsoleError::Damaged { path: self.path.clone(), problem: problem.to_string() }
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_is_known_until_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::in_secrets(&folder.path().join("secrets"));
        assert!(!access.exists().unwrap());
        assert_eq!(access.who("keyhush_").unwrap(), None, "nobody has access before a token is created");
        let viewer = access.create("wall", Role::Viewer).unwrap();
        let operator = access.create("ann@home", Role::Operator).unwrap();
        assert!(viewer.text().starts_with(BEGINS) && viewer.text().len() == BEGINS.len() + 2 * BYTES);
        let other = Access::in_secrets(&folder.path().join("secrets"));
        let who = |name: &str, role| Some(Who { name: name.to_owned(), role });
        assert_eq!(other.who(viewer.text()).unwrap(), who("wall", Role::Viewer));
        assert_eq!(other.who(operator.text()).unwrap(), who("ann@home", Role::Operator));
        for wrong in
            ["", "keyhush_", &viewer.text()[1..], &viewer.text().to_uppercase(), &format!("{} ", viewer.text())]
        {
            assert_eq!(other.who(wrong).unwrap(), None, "{wrong}");
        }
        assert_eq!(access.revoke("wall").unwrap().role, Role::Viewer);
        assert_eq!(other.who(viewer.text()).unwrap(), None);
        assert_eq!(other.who(operator.text()).unwrap(), who("ann@home", Role::Operator));
        assert!(matches!(access.revoke("wall"), Err(ConsoleError::Unknown { .. })));
        assert_eq!(access.list().unwrap().len(), 1);
    }

    #[test]
    fn the_file_holds_digests_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = folder.path().join("secrets");
        let access = Access::in_secrets(&secrets);
        let token = access.create("wall", Role::Viewer).unwrap();
        let path = secrets.join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&token.text()[BEGINS.len()..]) && !format!("{token:?}").contains(BEGINS), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            assert!(matches!(access.who(token.text()), Err(ConsoleError::Loose { mode: 0o640, .. })));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        for damaged in [
            &text[..text.len() / 2],
            "",
            "{\"tokens\":1}",
            &text.replace("viewer", "owner"),
            &text.replace("\"sha256\": \"", "\"sha256\": \"0"),
        ] {
            fs::write(&path, damaged).unwrap();
            assert!(matches!(access.who(token.text()), Err(ConsoleError::Damaged { .. })), "{damaged}");
        }
    }

    #[test]
    fn names_are_names_and_each_is_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::in_secrets(&folder.path().join("secrets"));
        for wrong in ["", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(matches!(access.create(wrong, Role::Viewer), Err(ConsoleError::Name { .. })), "{wrong}");
        }
        access.create("wall", Role::Viewer).unwrap();
        assert!(matches!(access.create("wall", Role::Officer), Err(ConsoleError::Taken { .. })));
        assert!("owner".parse::<Role>().is_err() && "officer".parse() == Ok(Role::Officer));
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Officer);
    }

    /// Two commands at once: both tokens are there.
    #[test]
    fn tokens_that_are_created_at_once_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::in_secrets(&folder.path().join("secrets"));
        std::thread::scope(|scope| {
            for i in 0..8 {
                let access = access.clone();
                scope.spawn(move || access.create(&format!("t{i}"), Role::Viewer).unwrap());
            }
        });
        assert_eq!(access.list().unwrap().len(), 8);
    }
}

//! Parses `mlflow:URL`: the server, and the account on it.
//!
//! User names, passwords and certificates come from the environment variables of MLflow's own clients: everybody on a machine can read
//! command lines.

use std::{fmt, path::PathBuf, str::FromStr};

use hyper::{Uri, header::HeaderValue};

use crate::TrackError;

/// A tracking server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as the address has them.
    pub(crate) authority: String,
    /// The prefix of every path of the API; empty, or starting with a slash.
    pub(crate) prefix: String,
}

/// MLflow's own clients refuse folders since 3.17, unless MLFLOW_ALLOW_FILE_STORE is set.
const NO_SERVER: &str = "is not the address of a server. Folders and databases are written by an MLflow server only: start one with \
    `mlflow server --backend-store-uri sqlite:///mlflow.db` (or with your own folder or database), and give its address, such as \
    mlflow:http://127.0.0.1:5000";

impl FromStr for Address {
    type Err = TrackError;

    fn from_str(text: &str) -> Result<Self, TrackError> {
        // What may hold a password or a token is not repeated.
        let may_be_secret = text.contains(['@', '?', '#']);
        let shown = if may_be_secret { "the address after --track".to_owned() } else { format!("{text:?}") };
        let wrong = |problem| TrackError::Address { address: shown.clone(), problem };
        let example = "is not an address of a tracking server: give mlflow:URL, such as mlflow:http://127.0.0.1:5000";
        let url = text.strip_prefix("mlflow:").ok_or_else(|| wrong(example))?;
        let secret = "contains a user name or a password: use MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN";
        if url.contains('@') {
            return Err(wrong(secret));
        }
        if url.contains(['?', '#']) {
            return Err(wrong(
                "contains a ? or #: give the address of the server alone, and a token in MLFLOW_TRACKING_TOKEN",
            ));
        }
        let uri: Uri = url.parse().map_err(|_| wrong(NO_SERVER))?;
        let (tls, usual) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(wrong(NO_SERVER)),
        };
        if tls && !cfg!(feature = "tls") {
            return Err(TrackError::NoTls);
        }
        let authority = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong(NO_SERVER));
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { tls, host, port: uri.port_u16().unwrap_or(usual), authority, prefix })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tls, authority, prefix, .. } = self;
        write!(f, "http{}://{authority}{prefix}", if *tls { "s" } else { "" })
    }
}

/// The account on a server, and where its runs go.
#[derive(Clone)]
pub struct Account {
    /// The experiment that the run is put into.
    pub experiment: String,
    /// The header of every request.
    pub(crate) authorization: Option<HeaderValue>,
    /// A PEM file with root certificates; those of the machine by default.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "certificates are for TLS"))]
    pub(crate) roots: Option<PathBuf>,
}

/// The default experiment.
const EXPERIMENT: &str = "keyhush";

impl Account {
    /// Reads the environment: `MLFLOW_EXPERIMENT_NAME`, `MLFLOW_TRACKING_TOKEN` or `MLFLOW_TRACKING_USERNAME` and
    /// `MLFLOW_TRACKING_PASSWORD`, `MLFLOW_TRACKING_SERVER_CERT_PATH`.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn from_environment() -> Result<Self, TrackError> {
        Self::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Reads the variables that `variable` returns by name.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn new(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self, TrackError> {
        const TOKEN: &str = "MLFLOW_TRACKING_TOKEN";
        const USER: &str = "MLFLOW_TRACKING_USERNAME";
        const PASSWORD: &str = "MLFLOW_TRACKING_PASSWORD";
        let (name, value) = match (variable(TOKEN), variable(USER), variable(PASSWORD)) {
            (Some(token), _, _) => (TOKEN, Some(format!("Bearer {token}"))),
            (None, Some(user), Some(password)) => {
                (PASSWORD, Some(format!("Basic {}", base64(&format!("{user}:{password}")))))
            }
            (None, None, None) => (USER, None),
            (None, Some(_), None) => {
                return Err(TrackError::Variable {
                    name: PASSWORD,
                    problem: "is missing: MLFLOW_TRACKING_USERNAME is set without it",
                });
            }
            (None, None, Some(_)) => {
                return Err(TrackError::Variable {
                    name: USER,
                    problem: "is missing: MLFLOW_TRACKING_PASSWORD is set without it",
                });
            }
        };
        let header = |value: String| {
            let mut header = HeaderValue::try_from(value).map_err(|_| TrackError::Variable {
                name,
                problem: "contains characters that are not allowed in an HTTP header",
            })?;
            header.set_sensitive(true);
            Ok::<HeaderValue, TrackError>(header)
        };
        Ok(Self {
            experiment: variable("MLFLOW_EXPERIMENT_NAME").unwrap_or_else(|| EXPERIMENT.to_owned()),
            authorization: value.map(header).transpose()?,
            roots: variable("MLFLOW_TRACKING_SERVER_CERT_PATH").map(PathBuf::from),
        })
    }

    /// A warning if a password would be sent unencrypted.
    #[must_use]
    pub fn warning(&self, address: &Address) -> Option<String> {
        let here =
            address.host == "localhost" || address.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let said = "is not encrypted: everybody on the network path can read the password or token; use https://";
        (self.authorization.is_some() && !address.tls && !here).then(|| format!("{address} {said}"))
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({:?})", self.experiment)
    }
}

/// Base64 (RFC 4648), for the header. Fifteen lines: a crate would be one more to trust with a password.
fn base64(text: &str) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut written = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * place)) as usize & 63] as char;
            written.push(if place <= three.len() { sign } else { '=' });
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<String, String> {
        let address: Address = text.parse().map_err(|e: TrackError| e.to_string())?;
        Ok(format!("{address} {}:{}", address.host, address.port))
    }

    #[test]
    fn addresses_are_servers_and_nothing_else() {
        assert_eq!(address("mlflow:http://127.0.0.1:5000").unwrap(), "http://127.0.0.1:5000 127.0.0.1:5000");
        assert_eq!(
            address("mlflow:https://tracking.example.org/").unwrap(),
            "https://tracking.example.org tracking.example.org:443"
        );
        assert_eq!(address("mlflow:http://[::1]:81/ml/flow/").unwrap(), "http://[::1]:81/ml/flow ::1:81");
        for (wrong, says) in [
            ("http://127.0.0.1:5000", "give mlflow:URL"),
            ("wandb:x", "give mlflow:URL"),
            ("mlflow:runs/mlflow", "start one with `mlflow server"),
            ("mlflow:./mlruns", "start one with `mlflow server --backend-store-uri"),
            ("mlflow:file:///data/mlruns", "start one with `mlflow server"),
            ("mlflow:sqlite:///mlflow.db", "start one with `mlflow server"),
            ("mlflow:databricks", "start one with `mlflow server"),
            ("mlflow:", "start one with `mlflow server"),
            ("mlflow:http://a/?b=c", "the server alone"),
        ] {
            let said = address(wrong).unwrap_err();
            assert!(said.contains(says), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        for (text, says) in [
            ("mlflow:https://me:geheim@example.org", "MLFLOW_TRACKING_PASSWORD"),
            // These were repeated: a token behind a question mark, and passwords in what is no address.
            ("mlflow:https://example.org/?token=geheim", "MLFLOW_TRACKING_TOKEN"),
            ("mlflow:https://example.org/#geheim", "MLFLOW_TRACKING_TOKEN"),
            ("mlflow:https://me:ge heim geheim@example.org", "MLFLOW_TRACKING_PASSWORD"),
            ("https://me:geheim@example.org", "give mlflow:URL"),
        ] {
            let said = address(text).unwrap_err();
            assert!(said.contains(says) && !said.contains("heim"), "{said}");
        }
    }

    fn account(variables: &[(&'static str, &str)]) -> Result<Account, TrackError> {
        Account::new(|name| variables.iter().find(|known| known.0 == name).map(|known| known.1.to_owned()))
    }

    #[test]
    fn who_we_are_comes_from_the_environment() {
        let nobody = account(&[]).unwrap();
        assert_eq!((nobody.experiment.as_str(), nobody.authorization), ("keyhush", None));
        let named = account(&[("MLFLOW_EXPERIMENT_NAME", "mine"), ("MLFLOW_TRACKING_TOKEN", "abc")]).unwrap();
        assert_eq!(
            (named.experiment.as_str(), named.authorization.clone().unwrap().to_str().unwrap()),
            ("mine", "Bearer abc")
        );
        assert!(!format!("{named:?} {:?}", named.authorization).contains("abc"));
        let both = [("MLFLOW_TRACKING_USERNAME", "Aladdin"), ("MLFLOW_TRACKING_PASSWORD", "open sesame")];
        // The example of RFC 7617.
        assert_eq!(
            account(&both).unwrap().authorization.unwrap().to_str().unwrap(),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        );
        for (half, missing) in
            [(both[0], "MLFLOW_TRACKING_PASSWORD is missing"), (both[1], "MLFLOW_TRACKING_USERNAME is missing")]
        {
            assert!(account(&[half]).unwrap_err().to_string().contains(missing));
        }
        assert!(account(&[("MLFLOW_TRACKING_TOKEN", "a\nb")]).is_err());
    }

    #[test]
    fn a_password_without_tls_is_warned_of_unless_it_stays_here() {
        let account = account(&[("MLFLOW_TRACKING_TOKEN", "abc")]).unwrap();
        let warned = |text: &str| account.warning(&text.parse().unwrap()).is_some();
        assert!(warned("mlflow:http://example.org"));
        assert!(
            !warned("mlflow:https://example.org")
                && !warned("mlflow:http://[::1]:5000")
                && !warned("mlflow:http://localhost")
        );
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        let written = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(base64);
        assert_eq!(written, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }
}

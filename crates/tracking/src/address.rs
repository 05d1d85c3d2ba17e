//! `mlflow:URL`: which server, and who we are to it.
//!
//! Names, passwords and certificates come from the environment, by the names that MLflow's own clients know: a command line can be read
//! by everybody on a machine.

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
    /// What stands before every path of the API; empty, or from a slash on.
    pub(crate) prefix: String,
}

impl FromStr for Address {
    type Err = TrackError;

    fn from_str(text: &str) -> Result<Self, TrackError> {
        let wrong = |problem| TrackError::Address { address: text.to_owned(), problem };
        let example = "is not an address of a tracking server: give mlflow:URL, such as mlflow:http://127.0.0.1:5000";
        let url = text.strip_prefix("mlflow:").ok_or_else(|| wrong(example))?;
        let no_server = "names no server: start one with `mlflow server`, and give its address, such as mlflow:http://127.0.0.1:5000";
        let uri: Uri = url.parse().map_err(|_| wrong(no_server))?;
        let (tls, usual) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(wrong(no_server)),
        };
        let authority = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        let secret = "has a name or a password in it: use MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN";
        if authority.contains('@') {
            // Not shown again: it is secret.
            return Err(TrackError::Address { address: "the address after --track".into(), problem: secret });
        }
        if uri.query().is_some() {
            return Err(wrong("has a question mark in it: give the server alone"));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong(no_server));
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

/// Who we are to a server, and where its runs go.
#[derive(Clone)]
pub struct Account {
    /// The experiment that the run is put into.
    pub experiment: String,
    /// What is sent along with every request.
    pub(crate) authorization: Option<HeaderValue>,
    /// Whom to believe who the server is; the machine's certificates where none is named.
    pub(crate) roots: Option<PathBuf>,
}

/// The experiment where nobody names one.
const EXPERIMENT: &str = "keyhush";

impl Account {
    /// As the environment says: `MLFLOW_EXPERIMENT_NAME`, `MLFLOW_TRACKING_TOKEN` or `MLFLOW_TRACKING_USERNAME` and
    /// `MLFLOW_TRACKING_PASSWORD`, `MLFLOW_TRACKING_SERVER_CERT_PATH`.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn from_environment() -> Result<Self, TrackError> {
        Self::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// As `variable` says of each name.
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
                    problem: "is missing: there is a name without a password",
                });
            }
            (None, None, Some(_)) => {
                return Err(TrackError::Variable {
                    name: USER,
                    problem: "is missing: there is a password without a name",
                });
            }
        };
        let header = |value: String| {
            let mut header = HeaderValue::try_from(value)
                .map_err(|_| TrackError::Variable { name, problem: "has characters that HTTP cannot carry" })?;
            header.set_sensitive(true);
            Ok::<HeaderValue, TrackError>(header)
        };
        Ok(Self {
            experiment: variable("MLFLOW_EXPERIMENT_NAME").unwrap_or_else(|| EXPERIMENT.to_owned()),
            authorization: value.map(header).transpose()?,
            roots: variable("MLFLOW_TRACKING_SERVER_CERT_PATH").map(PathBuf::from),
        })
    }

    /// What should be known of what is sent along with requests to a server.
    #[must_use]
    pub fn warning(&self, address: &Address) -> Option<String> {
        let here =
            address.host == "localhost" || address.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let said = "is spoken to without TLS: whoever listens on the way reads the password; use https://";
        (self.authorization.is_some() && !address.tls && !here).then(|| format!("{address} {said}"))
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({:?})", self.experiment)
    }
}

/// As headers carry names and passwords (RFC 4648). Fifteen lines: a crate for them would be one more to trust with a password.
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
            ("mlflow:runs/mlflow", "start one with `mlflow server`"),
            ("mlflow:sqlite:///mlflow.db", "start one with `mlflow server`"),
            ("mlflow:", "start one with `mlflow server`"),
            ("mlflow:http://a/?b=c", "question mark"),
        ] {
            let said = address(wrong).unwrap_err();
            assert!(said.contains(says), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        let said = address("mlflow:https://me:geheim@example.org").unwrap_err();
        assert!(said.contains("MLFLOW_TRACKING_PASSWORD") && !said.contains("geheim"), "{said}");
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

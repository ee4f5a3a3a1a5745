//! Where a server listens: an address and a port, or a socket in the file system.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// How the address of a socket in the file system begins.
const UNIX: &str = "unix:";
/// Bytes of a path that the kernel keeps of a socket, but for the zero at its end.
const PATH_BYTES_MAX: usize = 107;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At an address and a port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// At this path of the file system.
    Unix(Arc<Path>),
}

impl Address {
    /// The port; 0 of a socket in the file system, as Redis says.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp(address) => address.port(),
            Self::Unix(_) => 0,
        }
    }

    /// The address of the host; `None`: a socket in the file system.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip()),
            Self::Unix(_) => None,
        }
    }

    /// The path; `None`: an address and a port.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// The path as text; nothing where there is none.
    pub(crate) fn path_text(&self) -> String {
        self.path().map_or(String::new(), |path| path.display().to_string())
    }

    /// As clients see an end of a connection: a path stands beside port 0, as Redis says.
    pub fn endpoint(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(path) => format!("{}:0", path.display()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither form.
    #[error(
        "write ADDRESS:PORT, as in 127.0.0.1:6380, localhost:6380 or [::1]:6380, or unix:PATH, as \
         in unix:/run/nicol.sock"
    )]
    Form,
    /// No address has this name.
    #[error("no address of a host named {0:?} is known here; write its address")]
    Name(String),
    /// The kernel would cut the path.
    #[error("the path of a socket has at most {PATH_BYTES_MAX} bytes, and this one has {0}")]
    Long(usize),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let Some(path) = text.strip_prefix(UNIX) else {
            return text.parse().or_else(|_| resolve(text)).map(Self::Tcp);
        };
        match path.len() {
            0 => Err(AddressError::Form),
            // The kernel ends a path at a zero.
            _ if path.contains('\0') => Err(AddressError::Form),
            len if len > PATH_BYTES_MAX => Err(AddressError::Long(len)),
            _ => Ok(Self::Unix(PathBuf::from(path).into())),
        }
    }
}

/// The address of HOST:PORT, of version 4 if it has one.
fn resolve(text: &str) -> Result<SocketAddr, AddressError> {
    let (host, port) = text.rsplit_once(':').ok_or(AddressError::Form)?;
    let named = host.starts_with(|first: char| first.is_ascii_alphabetic())
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let port: u16 = port.parse().map_err(|_| AddressError::Form)?;
    if !named {
        return Err(AddressError::Form);
    }
    let unknown = || AddressError::Name(host.to_owned());
    let found: Vec<_> = (host, port).to_socket_addrs().map_err(|_| unknown())?.collect();
    let four = found.iter().find(|address| address.is_ipv4());
    four.or(found.first()).copied().ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_its_text_says() {
        for (text, port, endpoint) in [
            ("127.0.0.1:6380", 6380, "127.0.0.1:6380"),
            ("[::1]:7", 7, "[::1]:7"),
            ("unix:/run/n.sock", 0, "/run/n.sock:0"),
            ("unix:a b", 0, "a b:0"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.port(), address.endpoint().as_str()), (port, endpoint));
            assert_eq!(address.to_string(), text);
            assert_eq!(address.ip().is_none(), address.path().is_some());
        }
        let named: Address = "localhost:6380".parse().unwrap();
        assert!(named.ip().is_some_and(|ip| ip.is_loopback()) && named.port() == 6380);
        let nowhere = "no-such-host.invalid:6380".parse::<Address>();
        assert_eq!(nowhere, Err(AddressError::Name("no-such-host.invalid".into())));
        for text in [
            "",
            "6380",
            "localhost",
            "localhost:x",
            "a b:1",
            ":1",
            "unix:",
            "unix:a\0b",
            "/run/n.sock",
        ] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Form), "{text}");
        }
        let longest = format!("unix:{}", "p".repeat(PATH_BYTES_MAX));
        assert!(longest.parse::<Address>().is_ok());
        assert_eq!(format!("{longest}p").parse::<Address>(), Err(AddressError::Long(108)));
    }
}

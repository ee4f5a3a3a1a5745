//! TLS of clients' connections.

use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConnection};

/// Do clients show a certificate?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They need not, and nobody looks at one.
    Ignored,
    /// They may; one that the authority has not signed is refused.
    Optional,
    /// They must.
    Required,
}

/// The files of a server with TLS, each in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and behind it those of the authorities between it and the root.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates.
    pub authorities: Option<PathBuf>,
    /// Whether clients show one; `None`: they must if there are authorities.
    pub clients: Option<ClientCertificates>,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, or not in PEM.
    #[error("{}: {reason}; give a readable file in PEM", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The certificate, the key and the authorities do not belong together, or are refused.
    #[error("{}: {reason}", file.display())]
    Refused {
        /// The file that is at fault.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// Certificates of clients are asked for, and nothing says who signs them.
    #[error("clients' certificates need the file of the authorities that sign them")]
    NoAuthorities,
}

/// What every connection with TLS shares.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<rustls::ServerConfig>,
    identifies: bool,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file that is missing or refused, and why.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let certificates = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| unreadable(&files.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let refused = |file: &Path, reason: String| TlsError::Refused { file: file.into(), reason };
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&files.certificate, error.to_string()))?;
        let default = match files.authorities {
            Some(_) => ClientCertificates::Required,
            None => ClientCertificates::Ignored,
        };
        let clients = files.clients.unwrap_or(default);
        let builder = match (clients, &files.authorities) {
            (ClientCertificates::Ignored, _) => builder.with_no_client_auth(),
            (_, None) => return Err(TlsError::NoAuthorities),
            (_, Some(file)) => {
                let roots = Arc::new(roots(file)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match clients {
                    ClientCertificates::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                let verifier =
                    verifier.build().map_err(|error| refused(file, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(certificates, key);
        let config = config.map_err(|error| refused(&files.key, error.to_string()))?;
        Ok(Self { config: config.into(), identifies: clients == ClientCertificates::Required })
    }

    /// Whether every client has shown a certificate that an authority has signed.
    pub fn identifies_clients(&self) -> bool {
        self.identifies
    }

    /// The server's side of a new connection.
    pub fn accept(&self) -> io::Result<Session> {
        let session = ServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
        Ok(Session(Box::new(session)))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|error| unreadable(file, &error))?;
    if all.is_empty() {
        let reason = "there is no certificate in it".to_owned();
        return Err(TlsError::File { file: file.into(), reason });
    }
    Ok(all)
}

fn roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        let added = roots.add(certificate);
        added
            .map_err(|error| TlsError::Refused { file: file.into(), reason: error.to_string() })?;
    }
    Ok(roots)
}

fn unreadable(file: &Path, error: &pem::Error) -> TlsError {
    TlsError::File { file: file.into(), reason: error.to_string() }
}

/// The server's side of one connection, over a socket that does not block.
#[derive(Debug)]
pub struct Session(Box<ServerConnection>);

impl Session {
    /// Reads what the client has said, and answers its handshake. `Ok(0)`: it says no more.
    pub fn read(&mut self, socket: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // It hung up without a farewell: what it has sent is whole commands, or none.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            self.0.read_tls(socket)?;
            let processed = self.0.process_new_packets();
            // The handshake's next message, or why there is none.
            match (self.send(socket), processed) {
                (_, Err(error)) => return Err(io::Error::new(ErrorKind::InvalidData, error)),
                (Err(error), _) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Takes what it can of `bytes`, once all that it took before is sent.
    pub fn write(&mut self, socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        self.send(socket)?;
        let taken = self.0.writer().write(bytes)?;
        match self.send(socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what has been taken and is not sent yet.
    pub fn send(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.0.wants_write() {
            if self.0.write_tls(socket)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether something that was taken is not sent yet.
    pub fn has_unsent(&self) -> bool {
        self.0.wants_write()
    }

    /// Says that nothing more will be sent.
    pub fn say_farewell(&mut self, socket: &mut impl Write) -> io::Result<()> {
        self.0.send_close_notify();
        self.send(socket)
    }
}

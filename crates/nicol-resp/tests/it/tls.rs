//! Clients over TLS, with and without certificates of their own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Client, command, serve, text};
use nicol_resp::{ClientCertificates, ServerHandle, Tls, TlsError, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An authority, and the folder of what it has signed.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

/// A certificate and its key.
struct Signed {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = std::env::temp_dir().join(format!("nicol-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        Signed { certificate: certificate.der().clone(), key }
    }

    fn files(&self, clients: Option<ClientCertificates>) -> TlsFiles {
        let authorities = clients.map(|_| self.dir.join("ca.pem"));
        let [certificate, key] = ["server.pem", "server.key"].map(|name| self.dir.join(name));
        TlsFiles { certificate, key, authorities, clients }
    }

    fn serve(&self, clients: Option<ClientCertificates>) -> ServerHandle {
        self.sign("server");
        let tls = Tls::load(&self.files(clients)).unwrap();
        serve(|config| config.tls = Some(tls))
    }

    /// A client that trusts this authority, and shows a certificate if it has one.
    fn connect(&self, server: &ServerHandle, own: Option<&Signed>) -> Secure {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            Some(own) => {
                let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
                config.with_client_auth_cert(vec![own.certificate.clone()], key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(server.address().to_string()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Secure(StreamOwned::new(session, socket))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.dir);
    }
}

struct Secure(StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    fn try_ask(&mut self, request: &[u8], len: usize) -> std::io::Result<Vec<u8>> {
        self.0.write_all(request)?;
        let mut reply = vec![0; len];
        self.0.read_exact(&mut reply)?;
        Ok(reply)
    }

    fn ask(&mut self, request: &[u8], reply: &[u8]) {
        let found = self.try_ask(request, reply.len()).unwrap();
        assert_eq!(text(&found), text(reply));
    }
}

#[test]
fn clients_speak_tls_and_large_replies_come_whole() {
    let authority = Authority::new("whole");
    let server = authority.serve(None);
    let mut client = authority.connect(&server, None);
    client.ask(b"PING\r\n", b"+PONG\r\n");
    let value: Vec<u8> = (0..1_000_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
    client.ask(&command(&[b"SET", b"k", &value]), b"+OK\r\n");
    // Far more than the sockets hold, before anything is read.
    client.0.write_all(&b"GET k\r\n".repeat(15)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let reply = [b"$1000000\r\n", &value[..], b"\r\n"].concat();
    for _ in 0..15 {
        let mut found = vec![0; reply.len()];
        client.0.read_exact(&mut found).unwrap();
        assert!(found == reply, "a reply came damaged");
    }
    // Many small commands in records of their own.
    for number in 0..500 {
        client.ask(format!("SET n {number}\r\n").as_bytes(), b"+OK\r\n");
    }
    client.ask(b"GET n\r\nQUIT\r\n", b"$3\r\n499\r\n+OK\r\n");
    assert_eq!(client.0.read(&mut [0; 1]).unwrap(), 0, "the server says farewell");
}

#[test]
fn who_speaks_no_tls_is_hung_up_on_and_nobody_else_minds() {
    let authority = Authority::new("plain");
    let server = authority.serve(None);
    let mut plain = Client::connect(&server);
    plain.send(b"SET k v\r\nGET k\r\n");
    let found = plain.read(1 << 16);
    assert!(!text(&found).contains("OK"), "{}", text(&found));
    let mut client = authority.connect(&server, None);
    client.ask(b"GET k\r\n", b"$-1\r\n");
    // Noise in place of a record, in the middle of a connection.
    client.0.sock.write_all(b"\x17\x03\x03\x00\x05noise").unwrap();
    assert!(client.0.read(&mut [0; 1]).is_err());
    authority.connect(&server, None).ask(b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_are_served_where_it_is_required() {
    let (authority, stranger) = (Authority::new("required"), Authority::new("stranger"));
    let server = authority.serve(Some(ClientCertificates::Required));
    let (own, foreign) = (authority.sign("client"), stranger.sign("client"));
    authority.connect(&server, Some(&own)).ask(b"PING\r\n", b"+PONG\r\n");
    for shown in [None, Some(&foreign)] {
        let refused = authority.connect(&server, shown).try_ask(b"PING\r\n", 7);
        assert!(refused.is_err(), "{refused:?}");
    }
    let server = authority.serve(Some(ClientCertificates::Optional));
    for shown in [None, Some(&own)] {
        authority.connect(&server, shown).ask(b"PING\r\n", b"+PONG\r\n");
    }
    assert!(authority.connect(&server, Some(&foreign)).try_ask(b"PING\r\n", 7).is_err());
}

#[test]
fn a_file_at_fault_is_named() {
    let authority = Authority::new("files");
    authority.sign("server");
    authority.sign("other");
    let at = |name: &str| authority.dir.join(name);
    let good = authority.files(Some(ClientCertificates::Required));
    assert!(Tls::load(&good).unwrap().identifies_clients());
    std::fs::write(at("empty.pem"), "").unwrap();
    std::fs::write(at("noise.pem"), "-----BEGIN CERTIFICATE-----\nnoise").unwrap();
    let named = |files: TlsFiles, file: &Path| {
        let told = Tls::load(&files).unwrap_err().to_string();
        assert!(told.starts_with(&file.display().to_string()), "{told}");
    };
    for name in ["missing.pem", "empty.pem", "noise.pem"] {
        named(TlsFiles { certificate: at(name), ..good.clone() }, &at(name));
        named(TlsFiles { key: at(name), ..good.clone() }, &at(name));
        named(TlsFiles { authorities: Some(at(name)), ..good.clone() }, &at(name));
    }
    // The key of another certificate.
    named(TlsFiles { key: at("other.key"), ..good.clone() }, &at("other.key"));
    let alone = TlsFiles { authorities: None, ..good };
    assert!(matches!(Tls::load(&alone), Err(TlsError::NoAuthorities)));
}

//! Asks a port whether it speaks TLS, after a plain request to it came to nothing. The answer tells
//! the operator what is wrong with the address.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use ureq::http::Uri;

/// For the connection, and for the first bytes on it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the first byte of a record of TLS says: an alert, or a handshake (RFC 8446 §5.1).
const RECORDS: [u8; 2] = [21, 22];

/// Returns whether this address answers a greeting of TLS with TLS. Nothing secret is sent.
pub(super) fn speaks_tls(address: &str) -> bool {
    greeted(address).is_some_and(|[kind, major]| RECORDS.contains(&kind) && major == 3)
}

/// The first two bytes that come back.
fn greeted(address: &str) -> Option<[u8; 2]> {
    let uri: Uri = address.parse().ok()?;
    let host = uri.host()?.trim_matches(['[', ']']).to_owned();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(host.clone()).ok()?;
    let mut greeting = Vec::new();
    ClientConnection::new(Arc::new(config), name).ok()?.write_tls(&mut greeting).ok()?;
    let to = (host, uri.port_u16().unwrap_or(80)).to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(&greeting).ok()?;
    let mut first = [0; 2];
    stream.read_exact(&mut first).ok()?;
    Some(first)
}

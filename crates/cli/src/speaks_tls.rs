//! Asks a port if it speaks TLS, after a plain request to it failed. The answer tells the operator
//! what is wrong with the address.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use ureq::http::Uri;

/// The timeout of the connection, and of the first bytes on it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The first byte of a TLS record: an alert or a handshake (RFC 8446 §5.1).
const RECORDS: [u8; 2] = [21, 22];

/// Returns true if the address answers a TLS greeting with TLS. Nothing secret is sent.
pub(super) fn speaks_tls(address: &str) -> bool {
    greeted(address).is_some_and(|[kind, major]| RECORDS.contains(&kind) && major == 3)
}

/// Sends a TLS greeting, and returns the first two bytes of the answer.
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

//! A certificate authority, and the certificates that it issues under any name.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

use crate::keys::{pem, sha256};

/// A certificate authority, with all its files in one folder.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
    /// The authority's own certificate.
    pub certificate: PathBuf,
}

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority whose files go to `directory`.
    pub fn new(directory: &Path) -> Self {
        fs::create_dir_all(directory).unwrap();
        let mut parameters = parameters("authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(parameters, key).unwrap();
        let certificate = directory.join("ca.crt");
        fs::write(&certificate, pem("CERTIFICATE", issuer.der())).unwrap();
        Self { issuer, directory: directory.into(), certificate }
    }

    /// Issues a certificate with this name, for a server on loopback or for a client.
    pub fn issue(&self, name: &str) -> Identity {
        let mut parameters = parameters(name);
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let issued = parameters.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str| self.directory.join(format!("{name}.{kind}"));
        let identity = Identity { certificate: file("crt"), key: file("key") };
        fs::write(&identity.certificate, pem("CERTIFICATE", issued.der())).unwrap();
        fs::write(&identity.key, pem("PRIVATE KEY", &key.serialize_der())).unwrap();
        identity
    }
}

/// The SHA-256 of the certificate in a file, in base64url, as a token names it (RFC 8705 §3.1).
pub fn certificate_digest(certificate: &Path) -> String {
    let pem = fs::read_to_string(certificate).unwrap();
    let lines: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    sha256(STANDARD.decode(lines).unwrap())
}

fn parameters(name: &str) -> CertificateParams {
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut parameters = CertificateParams::new(names).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

//! `keygen`: makes a key for `signing_keys`, and the public key set that verifies its signatures.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use clap::{Args, ValueEnum};
use impersonation_core::jose::{Algorithm, PublishedKey, private_from_pem};
use p384::pkcs8::{EncodePrivateKey, LineEnding};
use rand_core::{OsRng, RngCore as _};
use rsa::RsaPrivateKey;
use rsa::traits::PrivateKeyParts as _;
use serde_json::{Value, json};

use super::{Failure, Verdict};

/// Makes a new signing key: the private JWK and the public JWK set, each on one line.
///
/// Without files the key goes to standard output, and the public set to standard error. So this
/// command sets an environment variable:
///
///     IMPERSONATION_SIGNING_KEY=$(impersonation-filter keygen --alg EdDSA --public-out jwks.json)
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// The algorithm that the key signs with.
    #[arg(long, value_enum, ignore_case = true)]
    alg: Alg,
    /// The key's id. The default is its thumbprint (RFC 7638).
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    kid: Option<String>,
    /// The length of an RSA key in bits.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u16).range(2048..=4096))]
    bits: u16,
    /// A new file for the private JWK, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A new file for the public JWK set.
    #[arg(long, value_name = "FILE")]
    public_out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Alg {
    #[value(name = "EdDSA")]
    EdDsa,
    #[value(name = "Ed25519")]
    Ed25519,
    #[value(name = "ES256")]
    Es256,
    #[value(name = "ES384")]
    Es384,
    #[value(name = "RS256")]
    Rs256,
    #[value(name = "PS256")]
    Ps256,
}

impl Alg {
    const fn name(self) -> &'static str {
        match self {
            Self::EdDsa => Algorithm::EdDsa,
            Self::Ed25519 => Algorithm::Ed25519,
            Self::Es256 => Algorithm::Es256,
            Self::Es384 => Algorithm::Es384,
            Self::Rs256 => Algorithm::Rs256,
            Self::Ps256 => Algorithm::Ps256,
        }
        .name()
    }
}

/// The private and the public document of one key.
struct Generated {
    private_jwk: String,
    public_jwks: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    // Create the files first: making an RSA key is slow, and a private key without its public key
    // is useless.
    let private_file = arguments.out.as_deref().map(|path| create(path, 0o600)).transpose()?;
    let public_file =
        arguments.public_out.as_deref().map(|path| create(path, 0o644)).transpose()?;
    let generated = generate(arguments.alg, arguments.kid.as_deref(), arguments.bits)?;
    match private_file {
        Some(file) => write(file, &generated.private_jwk)?,
        None => unless_unread(write(io::stdout().lock(), &generated.private_jwk))?,
    }
    match public_file {
        Some(file) => write(file, &generated.public_jwks)?,
        None => unless_unread(write(io::stderr().lock(), &generated.public_jwks))?,
    }
    Ok(Verdict::Fine)
}

/// Creates a file, and never overwrites one: it may hold the key in use.
fn create(path: &Path, mode: u32) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options.open(path).map_err(|error| Failure::new(path.display(), error))
}

fn write(mut to: impl io::Write, line: &str) -> io::Result<()> {
    writeln!(to, "{line}")
}

/// A reader that has closed the pipe, such as `head`, has seen enough.
fn unless_unread(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn generate(alg: Alg, kid: Option<&str>, bits: u16) -> Result<Generated, Failure> {
    let mut jwk = private_jwk(alg, bits)?;
    // Parse the key with the code that reads the configuration, so that the filter accepts it.
    let (published, signing) =
        PublishedKey::from_jwk(&jwk, kid, Some(alg.name())).map_err(impossible)?;
    if signing.is_none() {
        return Err(impossible("it cannot sign"));
    }
    let members = [("kid", &*published.kid), ("alg", alg.name()), ("use", "sig")];
    add(&mut jwk, members.map(|(name, value)| (name, value.to_owned())));
    let public_jwks = json!({ "keys": [published] });
    Ok(Generated { private_jwk: jwk.to_string(), public_jwks: public_jwks.to_string() })
}

fn private_jwk(alg: Alg, bits: u16) -> Result<Value, Failure> {
    match alg {
        Alg::EdDsa | Alg::Ed25519 => {
            let mut seed = [0; ed25519_dalek::SECRET_KEY_LENGTH];
            OsRng.try_fill_bytes(&mut seed).map_err(impossible)?;
            let key = ed25519_dalek::SigningKey::from_bytes(&seed);
            jwk(&key)
        }
        Alg::Es256 => jwk(&p256::ecdsa::SigningKey::random(&mut OsRng)),
        Alg::Es384 => jwk(&p384::ecdsa::SigningKey::random(&mut OsRng)),
        Alg::Rs256 | Alg::Ps256 => {
            let mut key = RsaPrivateKey::new(&mut OsRng, usize::from(bits)).map_err(impossible)?;
            key.precompute().map_err(impossible)?;
            let mut jwk = jwk(&key)?;
            // If a JWK has `p` and `q`, it must have the other three too (RFC 7518 §6.3.2).
            let coefficient = key.crt_coefficient();
            for (name, part) in [("dp", key.dp()), ("dq", key.dq()), ("qi", coefficient.as_ref())] {
                let part = part.ok_or_else(|| impossible("its parts are incomplete"))?;
                add(&mut jwk, [(name, BASE64_URL_SAFE_NO_PAD.encode(part.to_bytes_be()))]);
            }
            Ok(jwk)
        }
    }
}

/// Converts a key to a JWK with the code that reads the configuration.
fn jwk(key: &impl EncodePrivateKey) -> Result<Value, Failure> {
    let pem = key.to_pkcs8_pem(LineEnding::LF).map_err(impossible)?;
    private_from_pem(&pem).map_err(impossible)
}

fn add<const N: usize>(jwk: &mut Value, members: [(&str, String); N]) {
    if let Value::Object(jwk) = jwk {
        jwk.extend(members.map(|(name, value)| (name.to_owned(), value.into())));
    }
}

fn impossible(error: impl std::fmt::Display) -> Failure {
    Failure::new("the key could not be made", error)
}

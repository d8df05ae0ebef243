//! A plugin for tests that shows signatures to the filter's verifiers. A request's body is a list
//! of [`Case`]s, and the answer a list of [`Verdict`]s. The filter itself cannot be used for this,
//! because it only verifies signatures of messages that are a JWT.
//!
//! The plugin's configuration is a private JWK, with which the host's cryptography is tested as in
//! the filter.
#![cfg(target_arch = "wasm32")]

use std::cell::Cell;
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use impersonation_core::jose::{Algorithm, NativeCrypto, PublishedKey, TestedCrypto, VerifyingKey};
use impersonation_envoy::{ForeignFunctions, host};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};
use serde::{Deserialize, Serialize};

/// A signature to verify.
#[derive(Deserialize)]
struct Case {
    /// The public key.
    jwk: serde_json::Value,
    alg: String,
    /// The message, in base64url.
    message: String,
    /// The signature, in base64url.
    signature: String,
}

/// The verdicts about a signature.
#[derive(Serialize)]
struct Verdict {
    /// True if the crates in the module accept the signature.
    sandbox: bool,
    /// True if the verifier accepts the signature that asks the host first.
    host: bool,
    /// True if the host was asked, and gave a verdict.
    asked: bool,
}

struct Root {
    crypto: Option<Rc<Tested>>,
}

struct Tested {
    crypto: TestedCrypto,
    asked: Rc<Cell<bool>>,
}

/// Envoy's functions. It records whether they gave a verdict.
struct Watched(Rc<Cell<bool>>);

struct Http(Option<Rc<Tested>>);

impl NativeCrypto for Watched {
    fn sign(&self, hash: &'static str, private_key: &[u8], message: &[u8]) -> Option<Vec<u8>> {
        ForeignFunctions.sign(hash, private_key, message)
    }

    fn verify(
        &self,
        hash: &'static str,
        public_key: &[u8],
        signature: &[u8],
        message: &[u8],
    ) -> Option<bool> {
        let verdict = ForeignFunctions.verify(hash, public_key, signature, message);
        self.0.set(verdict.is_some());
        verdict
    }
}

impl Tested {
    fn new(jwk: &[u8]) -> Option<Self> {
        let jwk = serde_json::from_slice(jwk).ok()?;
        let (_, key) = PublishedKey::from_jwk(&jwk, None, None).ok()?;
        let asked = Rc::<Cell<bool>>::default();
        let crypto = TestedCrypto::new(Box::new(Watched(Rc::clone(&asked))), &key?);
        Some(Self { crypto, asked })
    }

    fn verdict(&self, case: &Case) -> Option<Verdict> {
        let key = VerifyingKey::from_jwk(&case.jwk).ok()?;
        let algorithm = Algorithm::from_name(&case.alg)?;
        let [message, signature] =
            [&case.message, &case.signature].map(|part| BASE64_URL_SAFE_NO_PAD.decode(part));
        let (message, signature) = (message.ok()?, signature.ok()?);
        let sandbox = key.verify(None, algorithm, &message, &signature);
        self.asked.set(false);
        let host = key.verify(Some(&self.crypto), algorithm, &message, &signature);
        Some(Verdict { sandbox, host, asked: self.asked.get() })
    }

    fn answer(&self, body: &[u8]) -> Option<Vec<u8>> {
        let cases: Vec<Case> = serde_json::from_slice(body).ok()?;
        let verdicts: Option<Vec<_>> = cases.iter().map(|case| self.verdict(case)).collect();
        serde_json::to_vec(&verdicts?).ok()
    }
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, plugin_configuration_size: usize) -> bool {
        self.crypto =
            Tested::new(&host::plugin_configuration(plugin_configuration_size)).map(Rc::new);
        self.crypto.is_some()
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Http(self.crypto.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Context for Http {}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _num_headers: usize, end_of_stream: bool) -> Action {
        if end_of_stream { Action::Continue } else { Action::Pause }
    }

    fn on_http_request_body(&mut self, body_size: usize, end_of_stream: bool) -> Action {
        if end_of_stream {
            let body = host::request_body(body_size);
            let answer = self.0.as_ref().and_then(|crypto| crypto.answer(&body));
            let (status, body) = answer.map_or((400, Vec::new()), |answer| (200, answer));
            host::respond(status, &[("content-type", b"application/json")], &body, "verdicts");
        }
        Action::Pause
    }
}

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Root { crypto: None }));
}}

//! The setting that the tests of all profiles share: one sender, and the issuers of actors.

use std::rc::Rc;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::*;
use crate::config::{EventSender, Jwks};
use crate::fakes::FakeHost;
use crate::host::Host;
use crate::jose::KeySet;
use crate::statement::Names;
use crate::step::{Context, Step, Task};
use testkit::keys::Key;

pub(super) const SENDER: &str = "https://auth.example.com";
pub(super) const AUDIENCE: &str = "https://gateway.example.com/events";
/// An issuer of actor tokens whose names have the prefix `p:`.
pub(super) const PARTNER: &str = "https://partner.example.com";
pub(super) const NOW: u64 = 1_790_000_000;

/// One sender with its key.
pub(super) struct Setting {
    pub(super) key: Key,
    senders: Rc<Senders>,
    host: Rc<FakeHost>,
}

impl Setting {
    pub(super) fn new() -> Self {
        Self::with_prefix("")
    }

    /// The sender's own names have this prefix.
    pub(super) fn with_prefix(prefix: &str) -> Self {
        let key = Key::generate(Algorithm::EdDSA, "k");
        let set = KeySet::parse(json!({"keys": [key.public_jwk()]}).to_string().as_bytes());
        let sender = EventSender {
            issuer: SENDER.to_owned(),
            name_prefix: Some(prefix.to_owned()),
            audiences: vec!["other".to_owned(), AUDIENCE.to_owned()],
            authorization_digests: None,
            keys: Jwks::Local(Rc::new(set.unwrap())),
        };
        let issuers = [(SENDER, ""), (PARTNER, "p:")];
        let issuers = issuers.map(|(issuer, prefix)| (issuer.to_owned(), prefix.to_owned()));
        let names = Rc::new(Names::new(issuers.into(), Vec::new()));
        let host = FakeHost::default();
        host.now.set(UnixTime::from_millis(NOW * 1000));
        Self { key, senders: Rc::new(Senders::new(vec![sender], names, None)), host: Rc::new(host) }
    }

    /// Signs a statement with a header of this `typ`.
    pub(super) fn sign(&self, r#type: Option<&str>, claims: &Value) -> String {
        self.sign_with(&self.key, r#type, claims)
    }

    pub(super) fn sign_with(&self, key: &Key, r#type: Option<&str>, claims: &Value) -> String {
        let mut header = json!({"alg": key.alg, "kid": key.kid});
        if let Some(name) = r#type {
            header["typ"] = json!(name);
        }
        key.sign_with(&header, claims)
    }

    /// Verifies a statement as a request does that brings it.
    pub(super) fn verify<F>(&self, verify: F) -> Result<ReceivedEvent, EventError>
    where
        F: AsyncFnOnce(&Senders, &Context) -> Result<ReceivedEvent, EventError> + 'static,
    {
        let senders = Rc::clone(&self.senders);
        let host = Rc::clone(&self.host) as Rc<dyn Host>;
        let step =
            Task::start(host, None, |context| async move { verify(&senders, &context).await });
        let Step::Done(verdict) = step else { panic!("it calls") };
        verdict
    }

    pub(super) fn logout_token(&self, token: &str) -> Result<ReceivedEvent, EventError> {
        let token = token.to_owned();
        self.verify(async move |senders, context| senders.logout_token(context, &token).await)
    }

    pub(super) fn security_event(&self, token: &str) -> Result<ReceivedEvent, EventError> {
        let token = token.to_owned();
        self.verify(async move |senders, context| {
            senders.security_event(context, &token, None).await
        })
    }
}

pub(super) fn with(mut claims: Value, name: &str, value: impl Into<Value>) -> Value {
    claims[name] = value.into();
    claims
}

pub(super) fn without(mut claims: Value, name: &str) -> Value {
    claims.as_object_mut().unwrap().remove(name).unwrap();
    claims
}

pub(super) fn actor(name: &str) -> Revocation {
    Revocation { actor_id: Some(name.to_owned()), ..Revocation::default() }
}

pub(super) fn user(name: &str) -> Revocation {
    Revocation { user_id: Some(name.to_owned()), ..Revocation::default() }
}

pub(super) fn session(name: &str) -> Revocation {
    Revocation { session: Some(name.to_owned()), ..Revocation::default() }
}

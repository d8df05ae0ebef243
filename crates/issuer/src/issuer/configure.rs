//! Building a service from its configuration.
//!
//! Some problems show only while the service is built, such as a script that does not compile. They
//! are reported like all other problems: together, and each with its path.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use serde_json::Value;

use super::documents::Documents;
use super::endings::Endings;
use super::events::Inbox;
use super::issued_token::OwnTokens;
use super::oversight::Oversight;
use super::page::{BuiltPage, ConsolePage, banner_of};
use super::service::{CustomClaims, Service};
use crate::bearer::{self, Verifier};
use crate::claims::{Authorizer, Script};
use crate::client::{Assertions, Clients};
use crate::config::{
    self, Config, ConfigEnvironment, ConfigError, NonceRule, Problem, Profile, decode,
};
use crate::dpop::{self, AllKeys, Nonces, Proofs, RequestOrigin};
use crate::host::UnixTime;
use crate::jose::{Algorithm, KeySet, NativeCrypto, PublishedKey, SigningKey, TestedCrypto};
use crate::notifications::Notifier;
use crate::state::mint_rate::MintCounter;
use crate::state::storage::{self, Stores};

/// A function that looks up an environment variable.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Reads a configuration that was decoded already, and compiles its scripts.
pub fn check(value: &Value, environment: Environment<'_>) -> Result<Config, ConfigError> {
    Config::from_value(value, &Trial::new(environment))
}

impl Service {
    /// Reads a configuration as it arrives in the plugin, and builds the service. `native` is the
    /// host's cryptography, which is used only as far as it passes a self-test. `page` is the page
    /// of live impersonations, if the module has it.
    pub fn configure(
        bytes: &[u8],
        environment: Environment<'_>,
        now: UnixTime,
        native: Option<Box<dyn NativeCrypto>>,
        page: Option<BuiltPage>,
    ) -> Result<Self, ConfigError> {
        let value = decode(bytes)?;
        let trial = Trial::new(environment);
        let config = Config::from_value(&value, &trial)?;
        Self::build(config, trial, now, native, page)
    }

    /// Builds the service. `trial` has the scripts of the configuration, if they were compiled
    /// already.
    fn build(
        mut config: Config,
        trial: Trial<'_>,
        now: UnixTime,
        native: Option<Box<dyn NativeCrypto>>,
        page: Option<BuiltPage>,
    ) -> Result<Self, ConfigError> {
        let banner = banner_of(&config, page)?;
        let page = ConsolePage::of(&config, page)?;
        let signing_key = signing_key(&config.signing_key)?;
        let custom_claims = match &config.custom_claims {
            Some(written) => {
                let script = trial.script.take().map_or_else(|| compile(written), Ok);
                let problem = |expected| Problem { path: "custom_claims.script".into(), expected };
                Some(CustomClaims { script: script.map_err(problem)?, on_error: written.on_error })
            }
            None => None,
        };
        let authorizer = match &config.authorize_subject_token {
            Some(written) => {
                let compiled = trial.authorizer.take();
                let compiled = compiled.map_or_else(|| compile_authorizer(written), Ok);
                let path = "authorize_subject_token.script".to_owned();
                Some(compiled.map_err(|expected| Problem { path, expected })?)
            }
            None => None,
        };
        let crypto = native.map(|native| Rc::new(TestedCrypto::new(native, &signing_key)));
        let own_keys = Rc::new(KeySet::of(&config.published_keys));
        let approvers = config.approvals.as_ref().map(|approvals| &approvals.authentication);
        let names = Rc::new(bearer::names(
            [
                &config.subject_tokens.authentication,
                &config.actor_tokens.verification,
                &config.impersonations.authentication,
            ]
            .into_iter()
            .chain(approvers),
        ));
        let verifier =
            |ways| Verifier::new(ways, Rc::clone(&names), Rc::clone(&own_keys), crypto.clone());
        let own_tokens =
            OwnTokens::new(config.issuer.clone(), Rc::clone(&own_keys), crypto.clone());
        // These settings are moved, because they hold secrets that nothing else needs.
        let callers = verifier(mem::take(&mut config.subject_tokens.authentication));
        let actors = &config.actor_tokens.verification.jwt;
        let of_actors =
            Rc::new(names.only(|issuer| actors.iter().any(|entry| entry.issuer == issuer)));
        let tenant = config.tenant();
        let oldest = config.actor_tokens.max_lifetime;
        let inbox = |senders, kind| {
            Inbox::new(senders, Rc::clone(&of_actors), crypto.clone(), &tenant, kind, oldest)
        };
        let logouts = inbox(mem::take(&mut config.impersonations.back_channel_logout), "logout");
        let security_events =
            inbox(mem::take(&mut config.impersonations.security_events), "security_event");
        let actors = verifier(mem::take(&mut config.actor_tokens.verification));
        let operators = verifier(mem::take(&mut config.impersonations.authentication));
        let people =
            config.approvals.as_mut().map(|approvals| mem::take(&mut approvals.authentication));
        let people = verifier(people.unwrap_or_default());
        let record_keys = mem::take(&mut config.record_keys);
        let Stores { tokens, revocations, list } = storage::open(&config, record_keys);
        let on_replay = config.subject_tokens.on_replay;
        let proofs = proofs(&mut config, crypto.as_ref()).map(Rc::new);
        let clients = clients(&config, crypto.as_ref());
        let notifier = Rc::new(Notifier::new(&config.hooks));
        let endings = Endings::new(Rc::clone(&notifier), config.issuer.clone());
        let oversight = Oversight::new(revocations, list, on_replay, endings);
        let mints = config.subject_tokens.rules.max_mints_per_caller;
        let mints = mints.map(|rate| MintCounter::new(&config.tenant(), rate));
        let documents = Documents::new(&config, proofs.as_deref());
        Ok(Self {
            config,
            store: tokens,
            oversight,
            mints,
            documents,
            page,
            banner,
            signing_key,
            crypto,
            own_tokens,
            clients,
            proofs,
            callers,
            people,
            operators,
            notifier,
            actors,
            logouts,
            security_events,
            custom_claims,
            authorizer,
            configured_at: now,
        })
    }
}

/// Reads a configuration from which a service will be built, and keeps the compiled scripts.
struct Trial<'e> {
    environment: Environment<'e>,
    /// The compiled scripts, so that none is compiled twice.
    script: RefCell<Option<Script>>,
    authorizer: RefCell<Option<Authorizer>>,
}

impl<'e> Trial<'e> {
    fn new(environment: Environment<'e>) -> Self {
        Self { environment, script: RefCell::default(), authorizer: RefCell::default() }
    }
}

impl ConfigEnvironment for Trial<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name)
    }

    fn try_script(&self, custom_claims: &config::CustomClaimsSettings) -> Result<(), String> {
        self.script.replace(Some(compile(custom_claims)?));
        Ok(())
    }

    fn try_authorizer(&self, written: &config::AuthorizeSubjectToken) -> Result<(), String> {
        self.authorizer.replace(Some(compile_authorizer(written)?));
        Ok(())
    }
}

fn compile(custom_claims: &config::CustomClaimsSettings) -> Result<Script, String> {
    let config::CustomClaimsSettings { script, environment_variables, limits, .. } = custom_claims;
    Script::compile(script, limits, environment_variables.expose())
        .map_err(|error| error.to_string())
}

fn compile_authorizer(written: &config::AuthorizeSubjectToken) -> Result<Authorizer, String> {
    let config::AuthorizeSubjectToken { script, environment_variables, limits } = written;
    Authorizer::compile(script, limits, environment_variables.expose())
        .map_err(|error| error.to_string())
}

/// Checks the proofs of the service; `None` if it reads none.
fn proofs(config: &mut Config, crypto: Option<&Rc<TestedCrypto>>) -> Option<Proofs> {
    /// Without ES384, which FAPI 2.0 does not allow.
    const OF_FAPI: &[Algorithm] =
        &[Algorithm::Es256, Algorithm::EdDsa, Algorithm::Ed25519, Algorithm::Ps256];
    let keys = mem::take(&mut config.nonce_keys);
    let needs_nonce = matches!(config.dpop.as_ref()?.nonce, Some(NonceRule::Required));
    let nonces = needs_nonce.then_some(Nonces::Of(keys));
    let algorithms = match config.profile {
        Some(Profile::Fapi2) => OF_FAPI,
        None => dpop::ALGORITHMS,
    };
    let tenant = config.tenant();
    let origin = RequestOrigin::of(&config.issuer)?;
    let keys = AllKeys::new(algorithms, crypto.cloned());
    Some(Proofs::new(origin, keys, nonces, (&tenant, "dpop")))
}

fn clients(config: &Config, crypto: Option<&Rc<TestedCrypto>>) -> Clients {
    Clients::new(config.clients.values(), |clients| {
        let (issuer, tenant) = (config.issuer.clone(), config.tenant());
        Assertions::new(clients, issuer, config.profile, &tenant, crypto.cloned())
    })
}

fn signing_key(key: &config::SigningJwk) -> Result<SigningKey, Problem> {
    let (kid, alg) = (Some(&*key.kid), Some(key.algorithm.name()));
    let problem = |expected: String| Problem { path: "signing_keys[0]".to_owned(), expected };
    let (_, private) = PublishedKey::from_jwk(key.jwk.expose(), kid, alg)
        .map_err(|error| problem(format!("expected {error}")))?;
    private.ok_or_else(|| problem("expected a private key: the first key signs".to_owned()))
}

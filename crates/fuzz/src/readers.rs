//! Readers that need no request.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use impersonation_core::config::decode;
use impersonation_core::fakes::{FakeHost, START};
use impersonation_core::guard::Guard;
use impersonation_core::jose::{
    AccessTokenType, Algorithm, KeySet, PublishedKey, UntrustedJwt, VerifyingKey, private_from_pem,
};
use impersonation_core::oauth::TOKEN_EXCHANGE;
use impersonation_core::oauth::form::{Form, Looks, looks_like_exchange};
use impersonation_issuer::claims::{Input, Limits, Script};
use impersonation_issuer::issuer;
use serde_json::{Value, json};

use crate::check;

/// A form. The filter reads it as another library does, or refuses it; and the quick look at its
/// bytes agrees with the parsed form.
pub(crate) fn form(data: &[u8]) {
    let looks = looks_like_exchange(data, "sub_");
    let Ok(form) = Form::parse(data) else { return };
    for (name, value) in form_urlencoded::parse(data) {
        let read = form.get(&name);
        // The first of several audiences is kept: one is enough to refuse.
        assert!(read == Some(&*value) || (name == "audience" && read.is_some()), "{name:?}");
    }
    let ours = |token: &str| token.is_empty() || token.starts_with("sub_");
    let expected = match (form.get("grant_type"), form.get("subject_token")) {
        (Some(TOKEN_EXCHANGE), token) if token.is_none_or(ours) => Looks::LikeOurExchange,
        (Some(TOKEN_EXCHANGE), _) => Looks::LikeForeignExchange,
        _ => Looks::LikeAnotherGrant,
    };
    assert_eq!(looks, expected);
}

/// A key set, or a token. A key that is accepted is good for its own algorithms, and verifies none
/// of these signatures.
pub(crate) fn jwks(data: &[u8]) {
    if let Some(token) = str::from_utf8(data).ok().and_then(UntrustedJwt::parse) {
        let _ = (token.algorithm(), token.key_id(), token.has_signature());
    }
    let Some(set) = KeySet::parse(data) else { return };
    for name in ["EdDSA", "Ed25519", "ES256", "ES384", "RS256", "RS384", "RS512", "PS256"] {
        let algorithm = Algorithm::from_name(name).unwrap();
        for key in set.candidates(algorithm, None) {
            assert!(key.accepts(algorithm));
            for len in [64, 96, 256] {
                assert!(!key.verify(None, algorithm, b"message", &vec![1; len]), "{name}");
            }
        }
    }
}

/// A private key as an operator writes it, as a JWK or in PEM. Its public part verifies what it
/// signs.
pub(crate) fn signing_key(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let jwk = private_from_pem(text).ok().or_else(|| serde_json::from_str(text).ok());
    let Some(jwk) = jwk else { return };
    let Ok((published, signing)) = PublishedKey::from_jwk(&jwk, None, None) else { return };
    let public = serde_json::to_value(&published).unwrap();
    for private in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
        assert_eq!(public.get(private), None);
    }
    let Some(signing) = signing else { return };
    let token =
        signing.sign_jwt(&FakeHost::default(), None, AccessTokenType::AtJwt, b"{}").unwrap();
    let (input, signature) = token.rsplit_once('.').unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    let key = VerifyingKey::from_jwk(&public).unwrap();
    assert!(key.verify(None, signing.algorithm(), input.as_bytes(), &signature));
}

/// The configuration of either plugin, as JSON or as a `Struct`, without its scripts: one could run
/// for seconds.
pub(crate) fn configuration(data: &[u8]) {
    let _ = Guard::configure(data, START, &|_| None, || None);
    let Ok(mut value) = decode(data) else { return };
    // The value survives a round trip through JSON.
    let again = decode(value.to_string().as_bytes());
    assert!(!value.is_object() || again.is_ok_and(|again| again == value));
    if let Some(members) = value.as_object_mut() {
        members.remove("custom_claims");
        members.remove("authorize_subject_token");
    }
    let _ = issuer::check(&value, &|name| (name == "SECRET").then(|| "secret".to_owned()));
}

/// A file for the companion to check.
pub(crate) fn yaml(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data) {
        check::read(text);
    }
}

thread_local! {
    static SCRIPT: OnceCell<Script> = const { OnceCell::new() };
}

const SOURCE: &str =
    "const getCustomJwtClaims = async ({ token, context }) => context.grant.subjectTokenContext;";

/// A context, through the engine and back: an operator's function makes claims of it. The claims
/// equal the context, or there are none.
pub(crate) fn claims(data: &[u8]) {
    let Ok(Value::Object(context)) = serde_json::from_slice(data) else { return };
    let context = Value::Object(context);
    let result = SCRIPT.with(|script| {
        let limits = Limits {
            timeout: Duration::from_secs(10),
            memory_bytes: 8 * 1024 * 1024,
            output_bytes: 64 * 1024,
        };
        let script =
            script.get_or_init(|| Script::compile(SOURCE, &limits, &BTreeMap::new()).unwrap());
        let text = context.to_string();
        let input = Input { token: "{}", grant_type: TOKEN_EXCHANGE, subject_token_context: &text };
        script.run(&input, &mut |_| {})
    });
    if let Ok(claims) = result {
        assert!(
            !["iss", "sub", "aud", "exp", "act", "__proto__"]
                .iter()
                .any(|name| claims.contains_key(*name))
        );
        assert_eq!(as_javascript(Value::Object(claims)), as_javascript(context));
    }
}

/// The value with JavaScript's numbers, and with sorted members, whose order JavaScript changes.
fn as_javascript(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(number) if number.is_finite() => json!(number + 0.0),
            _ => Value::Null,
        },
        Value::Array(items) => items.into_iter().map(as_javascript).collect(),
        Value::Object(members) => {
            let members: BTreeMap<_, _> =
                members.into_iter().map(|(name, value)| (name, as_javascript(value))).collect();
            members.into_iter().collect()
        }
        other => other,
    }
}

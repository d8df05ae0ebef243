//! No token, secret or key is ever written down, whether a request is granted, refused or
//! malformed: not in the audit log, the operator's log, an error's description, or shared data.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use impersonation_core::oauth::form::Form;
use impersonation_core::step::{HttpCall, Reply, Response};
use impersonation_issuer::issuer::{Body, Head};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::setting::{
    CLIENT_SECRET, ExchangeForm, INTROSPECTION_SECRET, MintForm, SIGNING_KEY, actor_token,
    backend_token, configured, mint_form,
};
use crate::driver::{Answer, Gateway};

/// So many consecutive characters of a secret count as a leak.
const LEAK: usize = 16;

/// The secrets, and the places that were searched for them.
pub(super) struct Watch {
    secrets: Vec<String>,
    seen: Vec<String>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let credentials = |pair: String| BASE64_STANDARD.encode(pair);
        let mut secrets = SIGNING_KEY.secrets();
        secrets.extend([
            CLIENT_SECRET.to_owned(),
            INTROSPECTION_SECRET.to_owned(),
            credentials(format!("portal:{CLIENT_SECRET}")),
            credentials(format!("filter:{INTROSPECTION_SECRET}")),
        ]);
        Self { secrets, seen: Vec::new() }
    }

    fn keep_secret(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
    }

    pub(super) fn look_at(&mut self, answer: &Answer) {
        self.seen.push(answer.event.to_string());
        self.seen.push(answer.explanation.clone());
        self.seen.extend(answer.alarm.iter().map(Value::to_string));
        self.seen.extend(answer.headers.iter().map(|(_, value)| value.clone()));
        match answer.status {
            200 => self.keep_secret(answer.text("access_token")),
            201 => self.keep_secret(answer.text("subjectToken")),
            _ => self.seen.push(answer.body.to_string()),
        }
    }

    pub(super) fn look_into(&mut self, gateway: &Gateway) {
        self.seen.extend(gateway.world.warnings.borrow().iter().cloned());
        self.seen.extend(gateway.world.debugged.borrow().iter().cloned());
        for (key, value) in gateway.world.stored() {
            self.seen.extend([key, String::from_utf8_lossy(&value).into_owned()]);
        }
    }

    pub(super) fn leak(&self) -> Option<String> {
        let pieces = self.secrets.iter().flat_map(|secret| {
            secret.as_bytes().windows(LEAK).map(|piece| String::from_utf8_lossy(piece).into_owned())
        });
        let pieces: Vec<_> = pieces.collect();
        let leaking = |seen: &&String| pieces.iter().any(|piece| seen.contains(piece.as_str()));
        self.seen.iter().find(leaking).cloned()
    }
}

fn gateway() -> Gateway {
    Gateway::new(&configured(
        "/actor_tokens/introspection",
        json!({
            "http_uri": {"uri": "https://auth.example.com/introspection", "cluster": "gateway"},
            "client_id": "filter",
            "client_secret": {"inline_string": INTROSPECTION_SECRET},
        }),
    ))
}

#[test]
fn nothing_secret_is_written_down() {
    let gateway = gateway();
    let mut watch = Watch::new();
    let opaque = "0p4que-actor-token-of-agent-8";
    for secret in [opaque, &backend_token(), &actor_token()] {
        watch.keep_secret(secret);
    }
    let spoilt_bearer = format!("{}x", backend_token());
    for mint in [mint_form(), mint_form().bearer(&spoilt_bearer), mint_form().bearer(opaque)] {
        watch.look_at(&gateway.send(&mint.request()));
    }
    let subject_token = watch.secrets.iter().find(|secret| secret.starts_with("sub_")).unwrap();
    let good = ExchangeForm::new(subject_token).portal();
    for reply in [
        Reply::Http { status: 500, json: true, body: opaque.into() },
        Reply::Http { status: 200, json: false, body: opaque.into() },
        Reply::Http { status: 200, json: true, body: opaque.into() },
        Reply::Http { status: 200, json: true, body: br#"{"active": false}"#.to_vec() },
    ] {
        gateway.upstream(move |_| reply.clone());
        watch.look_at(&gateway.exchange(&good.clone().actor(opaque)));
    }
    let forms = [
        good.clone().basic("portal", &format!("{CLIENT_SECRET}!")),
        good.clone().set("client_secret", CLIENT_SECRET),
        good.clone().set("scope", good.subject_token()),
        good.clone().set("resource", good.subject_token()),
        good.clone().set("audience", good.subject_token()),
        good.clone().set("client_id", good.subject_token()),
        good.clone().set("requested_token_type", good.subject_token()),
        good.clone().set("subject_token_type", good.subject_token()),
        good.clone().set("subject_token", &actor_token()),
        good.clone().add("subject_token", good.subject_token()),
        good.clone().actor(&format!("{}x", actor_token())),
        good.clone().actor(good.subject_token()),
        good.clone().actor(&actor_token()),
        good.clone(),
    ];
    for form in forms {
        // The upstream says no about an actor. If it was not asked, the next question gets this
        // answer.
        gateway.upstream(|_| Reply::Http {
            status: 200,
            json: true,
            body: br#"{"active": false}"#.to_vec(),
        });
        watch.look_at(&gateway.exchange(&form));
    }
    watch.look_into(&gateway);
    assert!(watch.seen.iter().any(|seen| seen.contains("subject_token.replayed")));
    assert_eq!(watch.leak(), None);
}

/// In a malformed form, a value can stand in the place of a name.
#[test]
fn a_secret_in_the_place_of_a_name_is_not_written_down() {
    let gateway = Gateway::usual();
    let subject_token = gateway.mint();
    let mut watch = Watch::new();
    watch.keep_secret(&subject_token);
    let form = ExchangeForm::new(&subject_token).add(&subject_token, "").add(&subject_token, "");
    let answer = gateway.exchange(&form);
    assert_eq!(answer.reason(), "parameter_repeated");
    watch.look_at(&answer);
    watch.look_into(&gateway);
    assert_eq!(watch.leak(), None);
}

/// The `Debug` output of every type may end up in a log.
#[test]
fn nothing_prints_its_secrets() {
    let secret = "sub_0123456789abcdef0123456789abcdef";
    let mut head = Head::default();
    head.authorization = Some(secret.into());
    let call = HttpCall {
        cluster: "gateway".into(),
        method: "POST",
        scheme: "https".into(),
        authority: "auth.example.com".into(),
        path: "/oidc/me".into(),
        headers: vec![("authorization", secret.to_owned())],
        body: secret.into(),
        timeout: Duration::ZERO,
    };
    let response =
        Response { status: 200, headers: vec![("x", secret.to_owned())], body: secret.into() };
    let (form, repeated) = (format!("{secret}={secret}"), format!("{secret}&{secret}"));
    let printed = [
        format!("{head:?}"),
        format!("{:?}", [Body::Whole(secret.into()), Body::TooLong(secret.into())]),
        format!("{:?}", Form::parse(form.as_bytes())),
        format!("{:?}", Form::parse(repeated.as_bytes())),
        format!("{call:?}"),
        format!("{:?}", Reply::Http { status: 200, json: true, body: secret.into() }),
        format!("{response:?}"),
    ];
    let bytes = format!("{:?}", secret.as_bytes());
    for text in printed {
        let leaks = text.contains(secret) || text.contains(bytes.trim_matches(['[', ']']));
        assert!(!leaks, "{text}");
    }
}

const NAMES: [&str; 12] = [
    "grant_type",
    "client_id",
    "client_secret",
    "scope",
    "subject_token",
    "subject_token_type",
    "resource",
    "audience",
    "actor_token",
    "actor_token_type",
    "requested_token_type",
    "x",
];

/// Every form gets one of the known answers and one line in the log without a secret. The token is
/// unspent afterwards, unless it was exchanged.
#[test]
fn no_form_gets_more_than_an_answer() {
    let gateway = Gateway::usual();
    let change = (proptest::sample::select(&NAMES[..]), 0_u8..3, "\\PC{0,12}");
    let authorization = proptest::option::of("(Basic |Bearer |)\\PC{0,20}");
    proptest!(|(changes in vec(change, 0..4), authorization in authorization)| {
        let subject_token = gateway.mint();
        let good = ExchangeForm { authorization, ..ExchangeForm::new(&subject_token) };
        let form = changes.iter().fold(good, |form, (name, change, value)| match change {
            0 => form.without(name),
            1 => form.set(name, value),
            _ => form.add(name, value),
        });
        let mut watch = Watch::new();
        watch.keep_secret(&subject_token);
        if let Some(answer) = gateway.try_send(&form.request()) {
            prop_assert!([200, 400, 401].contains(&answer.status), "{:?}", answer);
            prop_assert!(answer.event["event"].is_string());
            watch.look_at(&answer);
            prop_assert_eq!(watch.leak(), None);
            if answer.status == 200 {
                return Ok(());
            }
        }
        gateway.assert_spendable(&subject_token, "after a form");
    });
}

#[test]
fn no_body_gets_more_than_an_answer() {
    let gateway = Gateway::new(&configured("/store/shared_data/capacity", json!(100_000)));
    let json = "[{}\\[\\]:,\"0-9a-z\\\\ ]{0,60}";
    let content_type = proptest::sample::select(vec!["application/json", "text/plain", ""]);
    proptest!(|(bytes in vec(any::<u8>(), 0..200), json in json, content_type in content_type)| {
        for body in [bytes, json.into_bytes()] {
            let form = MintForm { content_type, ..mint_form().body(body) };
            let answer = gateway.send(&form.request());
            prop_assert!([201, 400, 415].contains(&answer.status), "{:?}", answer);
        }
    });
}

#[test]
fn no_made_up_bearer_mints() {
    let gateway = Gateway::usual();
    let authorization = "(Bearer |bearer |)[!-~]{0,40}(\\.[!-~]{0,40}){0,3}";
    proptest!(|(authorization in authorization)| {
        let form = MintForm { authorization: Some(authorization), ..mint_form() };
        prop_assert_eq!(gateway.send(&form.request()).status, 401);
    });
}

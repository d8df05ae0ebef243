//! An API behind Envoy's `jwt_authn` and the guard, beside the filter that issues tokens for it.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::artifacts::GUARD;
use crate::bootstrap::{Bootstrap, Cluster, Filter, Listener, Plugin, VERSION_PATH};
use crate::configuration::{
    Configuration, ISSUER, MANAGEMENT, ORDERS, PROVIDER_KEY, SIGNING_KEY, jwks,
};
use crate::envoy::{Envoy, Exit};
use crate::gateway::{exchange_request, now, raw_part};
use crate::http::{Answer, Connection, Request};
pub use crate::impersonations::{Parties, operator, operator_with};
use crate::impersonations::{backend, revocation};
use crate::lent::{Idle, Lent};
use crate::server::{Server, as_asked};
use crate::streaming;

/// The name of the API's cluster.
pub const API: &str = "api";

/// The cluster of a lent Envoy whose answers do not end: see [`streaming`].
pub const STREAMS: &str = "streams";

/// Headers by which the API learns of an impersonation.
pub const ID_HEADER: &str = "x-impersonation-id";
pub const ACTOR_HEADER: &str = "x-impersonator";

/// Names of headers that have other characters than letters, digits and hyphens. The names of
/// HTTP/2's own fields begin with a colon.
const ODD_NAMES: &str = ".*[^a-z0-9:-].*";

/// The issuer of tokens that are not the filter's, but that the API trusts too.
pub const OTHER_ISSUER: &str = "https://other.example.com";

/// The configuration of a guard with these members besides the required ones.
pub fn guard_configuration(members: &Value) -> Value {
    let mut configuration = json!({
        "issuer": ISSUER,
        "payload_in_metadata": "access_token",
        "headers": {"id": ID_HEADER, "actor": ACTOR_HEADER},
    });
    configuration.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    configuration
}

/// The filter's configuration: operators may list and end impersonations.
pub fn filter_configuration() -> Configuration {
    let operators = json!({
        "issuer": ISSUER, "audiences": [MANAGEMENT], "local_jwks": jwks(&[&PROVIDER_KEY]),
    });
    Configuration::default().with("/impersonations/authentication/jwt", json!([operators]))
}

/// A listener with the filter, and nothing behind it.
pub fn gateway_listener(filter: Filter) -> Listener {
    Listener::new("gateway").filter(filter).answer("/", "the gateway")
}

/// The guard as a filter of its own, before every request.
pub fn guard(configuration: &Value) -> Filter {
    Filter {
        name: "guard".into(),
        module: Some(GUARD.clone()),
        ..Plugin::Struct(configuration.clone()).into()
    }
}

/// A filter that only requests enter with a verified token that has `txn` or `cnf`.
pub fn for_impersonations(filter: Filter) -> Value {
    let has = |claim: &str| {
        json!({"single_predicate": {
            "input": {
                "name": claim,
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput",
                    "filter": "envoy.filters.http.jwt_authn",
                    "path": [{"key": "access_token"}, {"key": claim}],
                },
            },
            "custom_match": {
                "name": "present",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.matching.input_matchers.metadata.v3.Metadata",
                    "value": {"present_match": true},
                },
            },
        }})
    };
    entered_where(&json!({"or_matcher": {"predicate": [has("txn"), has("cnf")]}}), filter.into())
}

/// A filter that only requests enter for which the predicate holds.
pub fn entered_where(predicate: &Value, filter: Value) -> Value {
    json!({
        "name": "impersonation-guard",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher",
            "extension_config": {
                "name": "composite",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.composite.v3.Composite"},
            },
            "xds_matcher": {"matcher_list": {"matchers": [{
                "predicate": predicate,
                "on_match": {"action": {
                    "name": "guard",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.composite.v3.ExecuteFilterAction",
                        "typed_config": filter,
                    },
                }},
            }]}},
        },
    })
}

/// Envoy's `jwt_authn`, for tokens of the filter, of the identity provider for ordinary users, and
/// of another issuer. It remembers what it has verified.
pub fn jwt_authn() -> Value {
    let provider = |issuer: &str, keys: Value| {
        json!({
            "issuer": issuer,
            "audiences": [ORDERS],
            "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
            "local_jwks": keys,
            "forward_payload_header": "x-jwt-payload",
            "payload_in_metadata": "access_token",
            "jwt_cache_config": {"jwt_cache_size": 1000},
        })
    };
    json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {
                "ours": provider(ISSUER, jwks(&[&SIGNING_KEY, &PROVIDER_KEY])),
                "other": provider(OTHER_ISSUER, jwks(&[&PROVIDER_KEY])),
            },
            "requirement_map": {"any": {"requires_any": {"requirements": [
                {"provider_name": "ours"},
                {"provider_name": "other"},
            ]}}},
            "rules": [
                {"match": {"path": VERSION_PATH}},
                {"match": {"prefix": "/"}, "requirement_name": "any"},
            ],
        },
    })
}

/// Removes these headers from every request, and all headers that a server may take for others.
pub fn without_headers(names: &[&str]) -> Value {
    let odd = json!({"remove_on_match": {"key_matcher": {"safe_regex": {"regex": ODD_NAMES}}}});
    let exactly = names.iter().map(|name| json!({"remove": name}));
    let removed: Vec<_> = exactly.chain([odd]).collect();
    json!({
        "name": "envoy.filters.http.header_mutation",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
            "mutations": {"request_mutations": removed},
        },
    })
}

/// A listener with `jwt_authn` and the filters that follow it, and no routes.
pub fn verifying_listener(name: &str, filters: impl IntoIterator<Item = Value>) -> Listener {
    let listener =
        Listener::new(name).filter(without_headers(&[ID_HEADER, ACTOR_HEADER])).filter(jwt_authn());
    filters.into_iter().fold(listener, Listener::filter)
}

/// A verifying listener before the API, with an access log. Below `/unverified` it verifies no
/// token.
pub fn api_listener(name: &str, filters: impl IntoIterator<Item = Value>) -> Listener {
    let log = json!({
        "path": "%REQ(:PATH)%",
        "status": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "txn": "%DYNAMIC_METADATA(envoy.filters.http.jwt_authn:access_token:txn)%",
        "sub": "%DYNAMIC_METADATA(envoy.filters.http.jwt_authn:access_token:sub)%",
        "act": "%DYNAMIC_METADATA(envoy.filters.http.jwt_authn:access_token:act:sub)%",
        "guard": "%FILTER_STATE(wasm.impersonation.guard:PLAIN)%",
        "event": "%FILTER_STATE(wasm.impersonation.event:PLAIN)%",
        "reason": "%FILTER_STATE(wasm.impersonation.reason:PLAIN)%",
        "subject_token_id": "%FILTER_STATE(wasm.impersonation.subject_token_id:PLAIN)%",
        "user_id": "%FILTER_STATE(wasm.impersonation.user_id:PLAIN)%",
        "actor_id": "%FILTER_STATE(wasm.impersonation.actor_id:PLAIN)%",
    });
    let unverified = json!({
        "match": {"prefix": "/unverified"},
        "route": {"cluster": API, "timeout": "0s"},
        "typed_per_filter_config": {"envoy.filters.http.jwt_authn": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig",
            "disabled": true,
        }},
    });
    let listener = verifying_listener(name, filters).access_log(log);
    listener.route(unverified).route_to(API, "0s")
}

/// The chain of the shipped `envoy.yaml`: only impersonations enter the guard.
pub fn guarded_listener(configuration: &Value) -> Listener {
    api_listener("guarded", [for_impersonations(guard(configuration))])
}

/// An Envoy with the filter on one listener, the API behind the guard on another, and the API
/// without the guard on a third, as the standard of an unchanged request.
pub struct Guarded {
    pub envoy: Envoy,
    pub api: Server,
}

impl Guarded {
    /// Starts an API behind a guard with these members besides the required ones.
    pub fn start(members: &Value) -> Self {
        Self::start_with_workers(members, 1)
    }

    /// Lends an API behind a guard with these members. See [`Guarded::lent_with`].
    pub fn lent(members: &Value) -> Lent<Self> {
        let listener = guarded_listener(&guard_configuration(members));
        Self::lent_with(listener, &filter_configuration())
    }

    /// Lends an API behind this listener, beside this filter. Guard and filter have shared data of
    /// their own, but the Envoy may have served other tests before. The test sees only its own part
    /// of log and counters. The Envoy has a clock.
    pub fn lent_with(guarded: Listener, filter: &Configuration) -> Lent<Self> {
        static IDLE: Idle<Guarded> = Idle::new(Vec::new());
        let filter = gateway_listener(Filter::from(filter)).watched();
        let start = || {
            let api = Server::start(API);
            api.answer(as_asked);
            let bootstrap = Bootstrap::default()
                .listener(guarded.clone().watched())
                .listener(filter.clone())
                .listener(api_listener("bare", []))
                .cluster(Cluster::new(API, api.address).as_downstream())
                .cluster(Cluster::new(STREAMS, streaming::start()))
                .drain_seconds(0)
                .with_clock();
            let mut envoy = bootstrap.start();
            envoy.lend();
            Self { envoy, api }
        };
        let renew = |lent: &mut Self| {
            lent.api.heal();
            lent.api.answer(as_asked);
            lent.envoy.clock().set(0);
            lent.envoy.lend_with([guarded.clone(), filter.clone()]);
        };
        Lent::new(&IDLE, start, renew)
    }

    pub fn start_with_workers(members: &Value, workers: u32) -> Self {
        let api = Server::start(API);
        api.answer(as_asked);
        let envoy = Self::bootstrap(guarded_listener(&guard_configuration(members)), api.address);
        Self { envoy: envoy.workers(workers).start(), api }
    }

    /// Starts an API behind this listener, which can be changed later.
    pub fn try_start_with(guarded: Listener) -> Result<Self, Exit> {
        let api = Server::start(API);
        api.answer(as_asked);
        Ok(Self { envoy: Self::bootstrap(guarded, api.address).try_start()?, api })
    }

    /// The bootstrap of an API behind this listener, beside the usual filter.
    pub fn bootstrap(guarded: Listener, api: SocketAddr) -> Bootstrap {
        Self::bootstrap_with(guarded, Filter::from(&filter_configuration()), api)
    }

    /// The bootstrap of an API behind this listener, beside this filter.
    pub fn bootstrap_with(guarded: Listener, filter: Filter, api: SocketAddr) -> Bootstrap {
        Bootstrap::default()
            .listener(guarded.watched())
            .listener(gateway_listener(filter))
            .listener(api_listener("bare", []))
            .cluster(Cluster::new(API, api).as_downstream())
    }

    /// Sends a request to the API past the guard.
    pub fn send(&self, request: &Request) -> Answer {
        self.envoy.send(request)
    }

    /// Sends a request with this access token.
    pub fn send_as(&self, token: &str, request: Request) -> Answer {
        self.send(&request.bearer(token))
    }

    /// Sends a request to the filter.
    pub fn send_to_filter(&self, request: &Request) -> Answer {
        connect(&self.envoy, "gateway").send(request)
    }

    /// Begins an impersonation through the filter.
    pub fn begin(&self, parties: &Parties) -> Begun {
        self.try_begin(parties).expect("the store is there")
    }

    /// Begins an impersonation. Returns `None` if the store is out of reach.
    pub fn try_begin(&self, parties: &Parties) -> Option<Begun> {
        try_begin(parties, |request| self.send_to_filter(request))
    }

    /// Ends the impersonations that `body` names, as an operator.
    pub fn revoke(&self, body: &Value) {
        let answer = self.send_to_filter(&revocation(body));
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// Returns true if the API answered.
    pub fn reached(&self, answer: &Answer) -> bool {
        self.api.received_for(answer).is_some()
    }
}

/// An impersonation that is under way.
#[derive(Clone, Debug)]
pub struct Begun {
    pub id: String,
    pub access_token: String,
    /// The access token of the backend that minted.
    pub backend: String,
}

/// Begins an impersonation through the filter to which `send` leads. Returns `None` if the store is
/// out of reach.
pub fn try_begin(parties: &Parties, send: impl Fn(&Request) -> Answer) -> Option<Begun> {
    let minted = send(&parties.mint_request(&json!({})));
    if minted.status == 503 {
        return None;
    }
    assert_eq!(minted.status, 201, "{minted:?}");
    let form = parties.exchange_form(&minted.member("subjectToken"));
    let exchanged = send(&exchange_request(&form));
    if exchanged.status == 503 {
        return None;
    }
    assert_eq!(exchanged.status, 200, "{exchanged:?}");
    let access_token = exchanged.member("access_token");
    let id = raw_part(&access_token, 1)["txn"].as_str().unwrap().to_owned();
    Some(Begun { id, access_token, backend: backend(&parties.caller) })
}

/// The claims of an access token that the filter issues. The token is issued in the future, so that
/// no past revocation ends it.
pub fn claims() -> Value {
    json!({
        "iss": ISSUER,
        "sub": "u-1",
        "aud": ORDERS,
        "client_id": "support-portal",
        "iat": now() + 30,
        "exp": now() + 3600,
        "jti": "a-jti",
        "scope": "orders:read orders:write",
        "txn": "a-txn",
        "act": {"sub": "agent-7"},
    })
}

/// The claims of [`claims`] with a change: a member that the change sets to null is removed.
pub fn claims_with(changes: &Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        let members = claims.as_object_mut().unwrap();
        match value {
            Value::Null => drop(members.remove(name)),
            value => drop(members.insert(name.clone(), value.clone())),
        }
    }
    claims
}

/// An access token with these claims, signed as the filter does.
pub fn token(claims: &Value) -> String {
    SIGNING_KEY.sign(claims)
}

/// An access token of the identity provider, for an ordinary user with a name of its own.
pub fn ordinary_token() -> String {
    PROVIDER_KEY.sign(&claims_with(&json!({"txn": null, "act": null})))
}

/// A connection to a listener.
pub fn connect(envoy: &Envoy, listener: &str) -> Connection {
    Connection::open(envoy.address(listener))
}

/// The origin of the API as its clients see it.
pub const PUBLIC_ORIGIN: &str = "https://api.example.com";

/// Keeps the `Authorization` header for the guard, before `jwt_authn` takes it.
pub fn keep_authorization() -> Value {
    json!({
        "name": "envoy.filters.http.header_to_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{
                "header": "authorization",
                "on_header_present": {
                    "metadata_namespace": "impersonation", "key": "authorization", "type": "STRING",
                },
            }],
        },
    })
}

/// Envoy's `jwt_authn` for tokens of the filter, by both schemes.
pub fn jwt_authn_for_bound_tokens() -> Value {
    let by = |scheme: &str| json!({"name": "Authorization", "value_prefix": format!("{scheme} ")});
    json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {"ours": {
                "issuer": ISSUER,
                "audiences": [ORDERS],
                "from_headers": [by("DPoP"), by("Bearer")],
                "local_jwks": jwks(&[&SIGNING_KEY, &PROVIDER_KEY]),
                "forward": false,
                "payload_in_metadata": "access_token",
                "jwt_cache_config": {"jwt_cache_size": 1000},
            }},
            "rules": [
                {"match": {"path": VERSION_PATH}},
                {"match": {"prefix": "/"}, "requires": {"provider_name": "ours"}},
            ],
        },
    })
}

/// A listener whose guard reads what bound tokens need. `keeps` says if Envoy keeps the
/// `Authorization` header for it.
pub fn bound_listener(configuration: &Value, keeps: bool) -> Listener {
    bound_guard(guard(configuration), keeps).route_to(API, "0s")
}

/// Such a listener with this guard, which keeps what bound tokens need.
pub fn bound_listener_by(guard: Filter) -> Listener {
    bound_guard(guard, true).route_to(API, "0s")
}

/// Such a listener, in which Envoy itself answers in the place of the API.
pub fn bound_listener_answering(configuration: &Value, body: &str) -> Listener {
    bound_guard(guard(configuration), true).answer("/", body)
}

fn bound_guard(guard: Filter, keeps: bool) -> Listener {
    let kept = keeps.then(keep_authorization);
    let filters = [
        jwt_authn_for_bound_tokens(),
        for_impersonations(guard),
        without_headers(&["authorization", "dpop"]),
    ];
    kept.into_iter().chain(filters).fold(Listener::new("guarded"), Listener::filter)
}

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::*;
use crate::config::{ClientAuthentication, ClientType, SignInRules};

const CLIENTS: [&str; 3] = ["portal", "console", "desk"];
const RESOURCES: [&str; 3] = ["urn:orders", "urn:payments", "urn:plain"];
const SCOPES: [&str; 3] = ["orders:read", "orders:write", "payments:read"];

fn client(client_id: &str, resources: Option<&[&str]>) -> (String, Rc<Client>) {
    let client = Client {
        client_id: client_id.to_owned(),
        r#type: ClientType::SinglePage,
        authentication: vec![ClientAuthentication::None],
        secret_digests: Vec::new(),
        keys: None,
        certificate_name: None,
        token_binding: None,
        resources: resources.map(|list| list.iter().map(|item| (*item).to_owned()).collect()),
        actor_token_required: false,
    };
    (client_id.to_owned(), Rc::new(client))
}

fn resource(indicator: &str, scopes: &[&str], seconds: Option<u64>) -> (String, Resource) {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    let access_token_lifetime = seconds.map(Duration::from_secs);
    let resource = Resource {
        scopes,
        access_token_lifetime,
        access_token_type: None,
        actor_sign_in: SignInRules::default(),
        token_binding: None,
    };
    (indicator.to_owned(), resource)
}

/// `console` may ask for orders only. Access tokens live for an hour, those for payments for a
/// quarter of an hour.
fn with_offer<T>(look: impl FnOnce(Offer<'_>) -> T) -> T {
    let clients =
        [client("portal", None), client("console", Some(&["urn:orders"])), client("desk", None)];
    let resources = [
        resource("urn:orders", &["orders:read", "orders:write"], None),
        resource("urn:payments", &["payments:read"], Some(900)),
        resource("urn:plain", &[], None),
    ];
    look(Offer {
        lifetime: Duration::from_secs(600),
        access_token_lifetime: Duration::from_secs(3600),
        clients: &clients.into_iter().collect(),
        resources: &resources.into_iter().collect(),
        accepts_actors: true,
        accepts_approvals: true,
    })
}

fn read(value: &Value) -> Result<Bounds, BoundsError> {
    Bounds::read(value.as_object().unwrap())
}

/// Returns the result of a mint for `user-42` with these bounds.
fn checked(value: &Value) -> Result<Bounds, String> {
    let bounds = read(value).map_err(|error| error.to_string())?;
    with_offer(|offer| bounds.check(&offer, "user-42")).map_err(|error| error.to_string())?;
    Ok(bounds)
}

#[test]
fn a_bound_that_can_never_be_met_is_refused_and_named() {
    #[rustfmt::skip]
    let cases = [
        (json!({"expiresIn": 0}),                      "expiresIn must be a number of whole seconds"),
        (json!({"expiresIn": -1}),                     "expiresIn must be a number of whole seconds"),
        (json!({"expiresIn": 1.5}),                    "expiresIn must be a number of whole seconds"),
        (json!({"expiresIn": "60"}),                   "expiresIn must be a number of whole seconds"),
        (json!({"expiresIn": null}),                   "expiresIn must be a number of whole seconds"),
        (json!({"expiresIn": 601}),                    "expiresIn must be at most 600 seconds"),
        (json!({"clientId": "nobody"}),                "clientId must name only configured clients"),
        (json!({"clientId": ["portal", "nobody"]}),    "clientId must name only configured clients"),
        (json!({"clientId": []}),                      "clientId must not be an empty list"),
        (json!({"clientId": ""}),                      "clientId must name only configured clients"),
        (json!({"clientId": 7}),                       "clientId must be a string or a list of strings"),
        (json!({"clientId": [["portal"]]}),            "clientId must be a string or a list of strings"),
        (json!({"clientId": null}),                    "clientId must be a string or a list of strings"),
        (json!({"resource": "urn:nothing"}),           "resource must name only configured resources"),
        (json!({"resource": []}),                      "resource must not be an empty list"),
        (json!({"resource": "urn:plain", "clientId": "console"}), "resource must leave a client and a resource"),
        (json!({"scope": ""}),                         "scope must be scopes with one space between them"),
        (json!({"scope": "a  b"}),                     "scope must be scopes with one space between them"),
        (json!({"scope": ["orders:read"]}),            "scope must be scopes with one space between them"),
        (json!({"scope": "orders:read admin"}),        "scope must have only scopes of the resources"),
        (json!({"scope": "payments:read", "resource": "urn:orders"}), "scope must have only scopes of the resources"),
        (json!({"scope": "payments:read", "clientId": "console"}),    "scope must have only scopes of the resources"),
        (json!({"actorId": ""}),                       "actorId must be a string of 1 to 255 characters"),
        (json!({"actorId": "a\nb"}),                   "actorId must be a string of 1 to 255 characters"),
        (json!({"actorId": 7}),                        "actorId must be a string of 1 to 255 characters"),
        (json!({"actorId": "user-42"}),                "actorId must not be the user who is impersonated"),
        (json!({"accessTokenExpiresIn": 0}),           "accessTokenExpiresIn must be a number of whole seconds"),
        (json!({"accessTokenExpiresIn": 3601}),        "accessTokenExpiresIn must be at most 3600 seconds"),
        (json!({"accessTokenExpiresIn": 901, "resource": "urn:payments"}), "accessTokenExpiresIn must be at most 900 seconds"),
        (json!({"client_id": "portal"}),               "the object may have only expiresIn, clientId,"),
    ];
    for (bounds, expected) in cases {
        let error = checked(&bounds).unwrap_err();
        assert!(error.starts_with(expected), "{bounds}: {error}");
        assert!(error.is_ascii() && !error.contains(['"', '\\']), "{error}");
    }
    let bounds = read(&json!({"actorId": "agent-7"})).unwrap();
    let error = with_offer(|offer| {
        bounds.check(&Offer { accepts_actors: false, ..offer }, "user-42").unwrap_err()
    });
    assert_eq!(error.to_string(), "actorId needs a way to verify actor tokens");
}

#[test]
fn a_bound_that_can_be_met_is_kept_as_it_was_given() {
    #[rustfmt::skip]
    let cases = [
        (json!({}),                                         json!({})),
        (json!({"expiresIn": 600}),                         json!({"expiresIn": 600})),
        (json!({"clientId": "portal"}),                     json!({"clientId": ["portal"]})),
        (json!({"clientId": ["desk", "portal", "desk"]}),   json!({"clientId": ["desk", "portal"]})),
        (json!({"resource": ["urn:plain", "urn:orders"]}),  json!({"resource": ["urn:plain", "urn:orders"]})),
        (json!({"scope": "payments:read orders:read payments:read"}), json!({"scope": "payments:read orders:read"})),
        (json!({"actorId": "agent-7"}),                     json!({"actorId": "agent-7"})),
        (json!({"accessTokenExpiresIn": 3600}),             json!({"accessTokenExpiresIn": 3600})),
    ];
    for (given, kept) in cases {
        let bounds = checked(&given).unwrap();
        assert_eq!(serde_json::to_value(&bounds).unwrap(), kept);
        assert_eq!(bounds.is_empty(), given == json!({}));
    }
}

fn some_of(names: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<String>>> {
    option::of(vec(select(names).prop_map(str::to_owned), 1..3).prop_map(|names| {
        let names: BTreeSet<_> = names.into_iter().collect();
        names.into_iter().collect()
    }))
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let times = || option::of(1_u64..5000);
    let actor = option::of(select(&["agent-7", "agent-8"][..]).prop_map(str::to_owned));
    (times(), some_of(&CLIENTS), some_of(&RESOURCES), some_of(&SCOPES), actor, times()).prop_map(
        |(expires_in, client_ids, resources, scopes, actor_id, access_token_expires_in)| Bounds {
            expires_in,
            client_ids,
            resources,
            scopes,
            actor_id,
            access_token_expires_in,
            ..Bounds::default()
        },
    )
}

proptest! {
    #[test]
    fn shown_bounds_are_read_back_unchanged(bounds in bounds()) {
        prop_assert_eq!(read(&serde_json::to_value(&bounds).unwrap()).unwrap(), bounds);
    }

    #[test]
    fn stored_bounds_are_read_back_unchanged(bounds in bounds()) {
        let bytes = postcard::to_allocvec(&bounds).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Bounds>(&bytes).unwrap(), bounds);
    }

    /// The combination of two bounds allows only what both allow.
    #[test]
    fn narrowing_never_widens(one in bounds(), other in bounds()) {
        let widest = Duration::from_secs(3600);
        if let Ok(both) = one.clone().narrowed_by(other.clone()) {
            for part in [&one, &other] {
                prop_assert!(both.lifetime(widest) <= part.lifetime(widest));
                prop_assert!(both.access_token_lifetime(widest) <= part.access_token_lifetime(widest));
                for client in CLIENTS {
                    prop_assert!(!both.allows_client(client) || part.allows_client(client));
                }
                for resource in RESOURCES {
                    prop_assert!(!both.allows_resource(resource) || part.allows_resource(resource));
                }
                for scope in SCOPES {
                    prop_assert!(!both.allows_scope(scope) || part.allows_scope(scope));
                }
                for actor in [None, Some("agent-7"), Some("agent-8"), Some("agent-9")] {
                    prop_assert!(!both.allows_actor(actor) || part.allows_actor(actor));
                }
            }
        }
    }

    /// If bounds pass the check, at least one exchange can meet them.
    #[test]
    fn accepted_bounds_can_be_met(bounds in bounds()) {
        with_offer(|offer| {
            if bounds.check(&offer, "user-42").is_err() {
                return Ok(());
            }
            let met = CLIENTS.iter().filter(|id| bounds.allows_client(id)).any(|id| {
                let client = &offer.clients[*id];
                RESOURCES.iter().filter(|indicator| bounds.allows_resource(indicator)).any(|indicator| {
                    let asks = client.resources.as_ref().is_none_or(|list| list.iter().any(|item| item == indicator));
                    let scopes = &offer.resources[*indicator].scopes;
                    asks && (bounds.scopes.is_none() || scopes.iter().any(|scope| bounds.allows_scope(scope)))
                })
            });
            prop_assert!(met, "{bounds:?}");
            Ok(())
        })?;
    }

    #[test]
    fn no_members_make_the_parser_panic(members in vec(("[a-zA-Z]{0,22}", ".{0,20}"), 0..4)) {
        let members = members.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        let _ = Bounds::read(&members);
    }
}

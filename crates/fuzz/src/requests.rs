//! Readers that a request reaches. Each request is played from end to end.

use std::cell::RefCell;
use std::rc::Rc;

use impersonation_core::fakes::{Etcd, FakeHost, FakeStream, START, jwt_metadata};
use impersonation_core::guard::Guard;
use impersonation_core::step::{Call, CallFailure, GrpcStatus, Reply};
use impersonation_issuer::issuer::Service;
use impersonation_issuer::stream::Flow;
use serde_json::{Value, json};

use crate::corpus;
use crate::etcd::{answer_oddly, seals_as_the_filter_does};
use crate::setting::{
    API, Begun, FORM, ISSUER, JSON, OPAQUE, exchange, exchange_form, good_jwt, mint, minted,
    says_yes, service, service_minting, signed,
};
use crate::world::{Request, play, tick};

const MINT: &[u8] = br#"{"userId":"user-42"}"#;

/// A service that keeps no state of its own, and the host that every input begins with.
struct Begin {
    service: Rc<Service>,
    begun: Begun,
}

impl Begin {
    fn new(service: Rc<Service>) -> Self {
        let begun = Begun::new(&service);
        Self { service, begun }
    }

    fn world(&self) -> Rc<FakeHost> {
        Rc::new(self.begun.world.copy())
    }
}

thread_local! {
    static PLAIN: Begin = Begin::new(service(&json!({})));
    static LOOKING_UP: Rc<Service> = service_minting(&json!({"user_lookup": {
        "http_uri": {"uri": "https://auth.example.com/users/{userId}", "cluster": "gateway", "timeout": "3s"},
        "user_id_member": "id",
    }}));
    static IN_ETCD: (String, Etcd) = in_etcd();
    static GUARD: Guard = a_guard();
}

/// The first N - 1 lines, and the rest.
fn lines<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut parts = data.splitn(N, |byte| *byte == b'\n');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// `Authorization`, the content type and the form of a token request, with names in the place of
/// tokens. A request that is granted has spent its token: it is not granted again.
pub(crate) fn token_request(data: &[u8]) {
    PLAIN.with(|Begin { service, begun }| {
        let [authorization, content_type, body] = lines(data);
        let body = begun.name(body);
        let world = Rc::new(begun.world.copy());
        let mut request = exchange(&body);
        request.headers = vec![FORM];
        if !content_type.is_empty() {
            request.headers = vec![("content-type", content_type)];
        }
        if !authorization.is_empty() {
            request.headers.push(("authorization", authorization));
        }
        let answer = play(service, &world, &request, says_yes);
        if answer.is_some_and(|answer| answer.status == 200) {
            assert!(play(service, &world, &request, says_yes).unwrap().status >= 400);
            let form = exchange_form(&begun.outstanding);
            let again = play(service, &world, &exchange(form.as_bytes()), says_yes).unwrap();
            assert_eq!(again.status, 400);
        }
    });
}

/// The body of a mint. Another reader finds the same user in it, and the token can be exchanged.
pub(crate) fn mint_body(data: &[u8]) {
    PLAIN.with(|begin| {
        let world = begin.world();
        let answer = play(&begin.service, &world, &mint(OPAQUE, data), says_yes).unwrap();
        if answer.status != 201 {
            assert!((400..500).contains(&answer.status), "{answer:?}");
            return;
        }
        let body: Value = serde_json::from_slice(data).unwrap();
        let user_id = body["userId"].as_str().unwrap();
        assert!(!user_id.is_empty() && user_id != "root" && !user_id.starts_with("admin-"));
        let known = [
            "userId",
            "context",
            "expiresIn",
            "clientId",
            "resource",
            "scope",
            "actorId",
            "accessTokenExpiresIn",
        ];
        assert!(body.as_object().unwrap().keys().all(|name| known.contains(&&**name)));
        let form = exchange_form(&minted(&answer));
        let answer = play(&begin.service, &world, &exchange(form.as_bytes()), says_yes).unwrap();
        let bound =
            body.as_object().unwrap().keys().any(|name| !matches!(&**name, "userId" | "context"));
        assert!(answer.status == 200 || bound, "{answer:?}");
    });
}

/// `Authorization` of a mint. `$JWT` stands for the only good token that the issuer signed.
pub(crate) fn bearer(data: &[u8]) {
    thread_local! { static GOOD: String = good_jwt(); }
    if data.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return; // No header field can contain this.
    }
    GOOD.with(|good| {
        let text = data.utf8_chunks().flat_map(|chunk| [chunk.valid().as_bytes(), chunk.invalid()]);
        let text = text.collect::<Vec<_>>().concat();
        let authorization = replace(&text, b"$JWT", good.as_bytes());
        PLAIN.with(|begin| {
            let request = mint(&authorization, MINT);
            let answer = play(&begin.service, &begin.world(), &request, says_yes).unwrap();
            if answer.status != 201 {
                assert!(matches!(answer.status, 400 | 401 | 403), "{answer:?}");
                return;
            }
            let token = str::from_utf8(&authorization).unwrap().split_once(' ').unwrap().1.trim();
            if token != good && token.split('.').count() == 3 {
                assert!(!names_the_provider(token), "{token}");
            }
        });
    });
}

/// Reads the issuer as leniently as any reader would.
fn names_the_provider(token: &str) -> bool {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    let claims = token.split('.').nth(1).unwrap_or_default();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap_or_default();
    let claims: Value = serde_json::from_slice(&claims).unwrap_or_default();
    claims["iss"] == ISSUER
}

fn replace(data: &[u8], name: &[u8], value: &[u8]) -> Vec<u8> {
    let place = data.windows(name.len()).position(|window| window == name);
    place.map_or_else(
        || data.to_vec(),
        |place| [&data[..place], value, &data[place + name.len()..]].concat(),
    )
}

/// Header and claims of a JWT that the issuer signed. An accepted one has the required claims.
pub(crate) fn jwt(data: &[u8]) {
    let [header, claims] = lines(data);
    let token = signed(header, claims);
    PLAIN.with(|begin| {
        let authorization = format!("Bearer {token}");
        let request = mint(authorization.as_bytes(), MINT);
        // No other issuer is trusted.
        let nobody = |_: &Call| Reply::Failed(CallFailure::NotSent);
        let answer = play(&begin.service, &begin.world(), &request, nobody).unwrap();
        if answer.status != 201 {
            return;
        }
        let [header, claims]: [Value; 2] =
            [header, claims].map(|part| serde_json::from_slice(part).unwrap());
        assert!(header["alg"] == "EdDSA" || header["alg"] == "Ed25519");
        assert!(header.get("crit").is_none() && header.get("b64").is_none());
        let audiences = claims["aud"].as_array().cloned().unwrap_or(vec![claims["aud"].clone()]);
        assert!(claims["iss"] == ISSUER && audiences.contains(&API.into()));
        assert!(claims["exp"].as_f64().unwrap() > START.secs() as f64 - 61.0);
        assert!(claims["nbf"].as_f64().unwrap_or(0.0) <= START.secs() as f64 + 60.0);
        assert!(claims.get("act").is_none() && claims.get("cnf").is_none());
    });
}

/// The endpoints of oversight: the first byte selects one, the rest is the path or the body. A
/// revocation ends what it names, and nothing else.
pub(crate) fn oversight(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    PLAIN.with(|begin| {
        let rest = begin.begun.name(rest);
        let [basic, form] = lines(&rest);
        let bearer = vec![JSON, ("authorization", OPAQUE)];
        let basic = vec![FORM, ("authorization", basic)];
        let below = |path: &[u8]| [path, &rest].concat();
        let is_path = !rest.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
        let path;
        let request = match kind % 6 {
            0 => Request {
                method: "POST",
                path: b"/api/impersonations/revocations",
                headers: bearer,
                body: &rest,
                answer: None,
            },
            kind @ 1..=3 if is_path => {
                let (method, folder) = match kind {
                    1 => ("GET", &b"/api/impersonations"[..]),
                    2 => ("DELETE", &b"/api/impersonations/"[..]),
                    _ => ("DELETE", &b"/api/subject-tokens/"[..]),
                };
                path = below(folder);
                Request { method, path: &path, headers: bearer, body: b"", answer: None }
            }
            1..=3 => return,
            kind => {
                let endpoint = if kind == 4 { "revocation" } else { "introspection" };
                path = format!("/oidc/token/{endpoint}").into_bytes();
                Request { method: "POST", path: &path, headers: basic, body: form, answer: None }
            }
        };
        let world = begin.world();
        let answer = play(&begin.service, &world, &request, says_yes);
        let Some(answer) = answer else { return };
        if kind % 6 == 0 && answer.status == 201 {
            let members: Value = serde_json::from_slice(&rest).unwrap();
            let mut members = members.as_object().unwrap().clone();
            members.retain(|_, value| !value.is_null());
            assert!(!members.is_empty());
            let is = |name: &str, of_the_token: &str| {
                members.get(name).is_none_or(|named| named == of_the_token)
            };
            // The mint left the client, the resource and the actor open.
            let left_open = ["actorId", "clientId", "resource"];
            if !left_open.iter().any(|name| members.contains_key(*name)) {
                let ended = is("userId", "user-42") && is("caller", "backend");
                let form = exchange_form(&begin.begun.outstanding);
                // A new service: this one may remember the table of another host under the same
                // version.
                let other = service(&json!({}));
                let answer = play(&other, &world, &exchange(form.as_bytes()), says_yes).unwrap();
                assert_eq!(answer.status, if ended { 400 } else { 200 });
            }
        }
    });
}

/// The answer of an upstream: the first byte selects the upstream, the second its status.
pub(crate) fn upstreams(data: &[u8]) {
    let [kind, status, body @ ..] = data else { return };
    let status = [200, 204, 400, 401, 403, 404, 429, 500][usize::from(status % 8)];
    let theirs = |_: &Call| Reply::Http { status, json: true, body: body.to_vec() };
    let answered = |path: &str| {
        let path = path.to_owned();
        move |call: &Call| match call {
            Call::Http(http) if http.path.starts_with(&path) => theirs(call),
            _ => says_yes(call),
        }
    };
    let said = || -> Value { serde_json::from_slice(body).unwrap() };
    match kind % 4 {
        0 => PLAIN.with(|begin| {
            let request = mint(OPAQUE, MINT);
            let answer = play(&begin.service, &begin.world(), &request, answered("/introspection"));
            if answer.unwrap().status == 201 {
                let said = said();
                assert!(status == 200 && said["active"] == true);
                assert!(said["scope"].as_str().unwrap().split(' ').any(|one| one == "impersonate"));
                assert!(said["exp"].as_f64().is_none_or(|exp| exp > START.secs() as f64));
                assert!(said["act"].is_null() && said["cnf"].is_null());
            }
        }),
        1 => PLAIN.with(|begin| {
            let form = exchange_form(&begin.begun.outstanding);
            let form = format!("{form}&actor_token=opaque&actor_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token");
            let answer = play(&begin.service, &begin.world(), &exchange(form.as_bytes()), answered("/me"));
            if answer.unwrap().status == 200 {
                let said = said();
                assert!(status == 200 && said["act"].is_null());
                assert!(!said["sub"].as_str().unwrap().is_empty());
            }
        }),
        2 => LOOKING_UP.with(|service| {
            let request = mint(OPAQUE, MINT);
            let answer = play(service, &Rc::default(), &request, answered("/users/"));
            if answer.unwrap().status == 201 {
                let said = said();
                let id = said["id"].as_str().unwrap();
                assert!(!id.is_empty() && id != "root" && !id.starts_with("admin-"));
            }
        }),
        _ => {
            let service = remote();
            let world = Rc::default();
            tick(&service, &world, theirs);
            let authorization = format!("Bearer {}", good_jwt());
            let _ = play(&service, &world, &mint(authorization.as_bytes(), MINT), theirs);
        }
    }
}

/// A service that fetches the provider's keys, and has not yet.
fn remote() -> Rc<Service> {
    service_minting(&json!({"authentication": {"jwt": [{
        "issuer": ISSUER, "audiences": [API], "required_scopes": ["impersonate"],
        "remote_jwks": {"http_uri": {
            "uri": "https://auth.example.com/jwks", "cluster": "gateway", "timeout": "3s",
        }},
    }]}}))
}

/// The gateway's documents. A merged document has all members of the gateway's, and the filter's.
/// The first byte selects the document.
pub(crate) fn documents(data: &[u8]) {
    let Some((kind, document)) = data.split_first() else { return };
    let (path, member) = match kind % 2 {
        0 => (&b"/oidc/jwks"[..], "keys"),
        _ => (&b"/oidc/.well-known/openid-configuration"[..], "grant_types_supported"),
    };
    PLAIN.with(|begin| {
        let world = begin.world();
        let ask = |answer| {
            let request =
                Request { method: "GET", path, answer: Some(answer), ..Request::default() };
            play(&begin.service, &world, &request, says_yes)
        };
        let theirs: Option<Value> = serde_json::from_slice(document).ok();
        let merged = ask((200, document)).filter(|merged| merged.status == 200);
        if let Some(merged) = &merged {
            let (merged, theirs) = (merged.json(), theirs.as_ref().unwrap());
            for (name, value) in theirs.as_object().unwrap() {
                assert!(name == member || merged[name] == *value, "{name}");
            }
            let ours = |one: &Value| {
                one["kid"] == "filter-1" || one == impersonation_core::oauth::TOKEN_EXCHANGE
            };
            let merged = merged[member].as_array().unwrap();
            assert_eq!(
                merged.iter().filter(|one| one["kid"] == "filter-1").count(),
                usize::from(member == "keys")
            );
            assert!(merged.iter().any(ours));
            let theirs = theirs[member].as_array().into_iter().flatten();
            assert!(theirs.filter(|one| !ours(one)).all(|one| merged.contains(one)));
        }
        // The stand-in is the gateway's last document; without one the failure goes on.
        let stand_in = ask((503, b"")).filter(|answer| answer.status == 200);
        if let Some(stand_in) = stand_in {
            // A document that has the filter's members already goes on as it is.
            let merged = merged.map_or_else(|| theirs.unwrap(), |merged| merged.json());
            assert_eq!(stand_in.json(), merged);
        }
    });
}

/// A value of shared data, as another version of the filter may have written it. The first byte
/// selects the key. A token is still exchanged at most once.
pub(crate) fn shared_data(data: &[u8]) {
    let Some((which, value)) = data.split_first() else { return };
    PLAIN.with(|begin| {
        let world = begin.world();
        let stored = world.stored();
        world.overwrite(&stored[usize::from(*which) % stored.len()].0, value);
        let form = exchange_form(&begin.begun.outstanding);
        let exchanged =
            || play(&begin.service, &world, &exchange(form.as_bytes()), says_yes).unwrap();
        let statuses = [exchanged().status, exchanged().status];
        assert!(statuses.iter().filter(|status| **status == 200).count() <= 1, "{statuses:?}");
        let _ = play(&begin.service, &world, &mint(OPAQUE, MINT), says_yes);
        let (path, headers) = (&b"/api/impersonations"[..], vec![("authorization", OPAQUE)]);
        let request = Request { method: "GET", path, headers, ..Request::default() };
        let _ = play(&begin.service, &world, &request, says_yes);
        for path in [&b"/oidc/jwks"[..], b"/oidc/.well-known/openid-configuration"] {
            let answer = Some((503, &b""[..]));
            let request = Request { method: "GET", path, answer, ..Request::default() };
            let _ = play(&begin.service, &world, &request, says_yes);
        }
        tick(&begin.service, &world, says_yes);
        GUARD.with(|guard| {
            let metadata = jwt_metadata(&json!({"payload": good_claims()}));
            let request = passing(b"/orders", b"GET", metadata);
            let _ = guard.on_request_headers(&*world, &request, 1);
            guard.on_end(1);
        });
    });
}

/// A service whose tokens are in etcd, and which has no lease there yet.
fn service_in_etcd() -> Rc<Service> {
    service(&json!({"store": {"etcd": {"cluster": "etcd"}}, "impersonations": null}))
}

/// A subject token, and the etcd that holds it.
fn in_etcd() -> (String, Etcd) {
    let etcd = RefCell::new(Etcd::default());
    let well = |call: &Call| match call {
        Call::Http(_) => says_yes(call),
        Call::Grpc(call) => Reply::Grpc(etcd.borrow_mut().answer(call).map_err(GrpcStatus)),
    };
    let (service, world) = (service_in_etcd(), Rc::default());
    let token = minted(&play(&service, &world, &mint(OPAQUE, MINT), well).unwrap());
    let minted = etcd.borrow().clone();
    // If this failed, no input would reach anything further.
    let form = exchange_form(&token);
    let answer = play(&service, &world, &exchange(form.as_bytes()), well).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body.escape_ascii());
    assert!(seals_as_the_filter_does(minted.clone()));
    // The corpus has records of this token. Behind another digest, nothing of a record is read.
    let digest = &minted.folder("tokens")[0].1[9..41];
    let mut inputs = corpus::read("etcd").into_iter();
    assert!(inputs.any(|input| input.windows(digest.len()).any(|part| part == digest)));
    (token, minted)
}

/// The answers of etcd. The first byte selects the request. For each call follow a byte that
/// selects the kind of answer (this message, a good answer, a forged record or field, or a status),
/// two bytes of length, and the bytes to use. The third bit of the kind adds a revocation beside a
/// forged record.
pub(crate) fn etcd(data: &[u8]) {
    let Some((kind, mut rest)) = data.split_first() else { return };
    IN_ETCD.with(|(token, etcd)| {
        let mut etcd = etcd.clone();
        let mut calls = 0;
        let mut reply = |call: &Call| {
            let Call::Grpc(call) = call else { return says_yes(call) };
            calls += 1;
            assert!(calls < 1000, "it asks for ever");
            let [how, high, low, others @ ..] = rest else {
                return Reply::Failed(CallFailure::CutOff);
            };
            let len = usize::from(u16::from_be_bytes([*high, *low])).min(others.len());
            let (message, others) = others.split_at(len);
            rest = others;
            match how % 4 {
                0 => Reply::Grpc(Ok(message.to_vec())),
                1 => Reply::Grpc(etcd.answer(call).map_err(GrpcStatus)),
                2 => {
                    let answer = answer_oddly(&mut etcd, call, message, how & 4 != 0);
                    Reply::Grpc(answer.map_err(GrpcStatus))
                }
                _ => Reply::Grpc(Err(GrpcStatus(
                    message.first().map_or(14, |status| u32::from(*status % 20)),
                ))),
            }
        };
        // A new service: one that has a lease would not ask for another.
        let (service, world) = (service_in_etcd(), Rc::default());
        match kind % 3 {
            0 => {
                let form = exchange_form(token);
                let _ = play(&service, &world, &exchange(form.as_bytes()), reply);
            }
            1 => {
                let _ = play(&service, &world, &mint(OPAQUE, MINT), reply);
            }
            _ => tick(&service, &world, &mut reply),
        }
    });
}

/// A request as it passes the guard.
fn passing(path: &[u8], method: &[u8], metadata: Vec<u8>) -> FakeStream {
    let headers = [(":path".to_owned(), path.to_vec()), (":method".to_owned(), method.to_vec())];
    let shown = FakeStream::default().with_metadata(metadata);
    shown.request_headers.replace(headers.into());
    shown
}

fn a_guard() -> Guard {
    let configuration = json!({
        "issuer": ISSUER, "payload_in_metadata": "payload",
        "headers": {"id": "x-impersonation-id", "actor": "x-impersonator"},
        "default": "read_only",
        "rules": [
            {"path_prefix": "/secret", "action": "deny"},
            {"path": "/orders/7", "methods": ["POST"], "scopes": ["orders:write"], "action": "allow"},
            {"path_prefix": "/agents", "actors": ["agent-*"], "action": "allow"},
        ],
    });
    let guard = Guard::configure(configuration.to_string().as_bytes(), START, &|_| None, || None);
    guard.unwrap_or_else(|error| panic!("{error}"))
}

/// The claims of an access token that the filter issued.
fn good_claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "user-42", "aud": "https://api.example.com/orders", "client_id": "portal",
        "iat": START.secs() - 1, "exp": START.secs() + 60, "jti": "j-1", "scope": "orders:read",
        "txn": "3J0q", "act": {"sub": "agent-7"},
    })
}

/// Path, method, and the claims of the verified token: as JSON, or as the message that an earlier
/// filter left. Only a request that the rules allow goes on.
pub(crate) fn guard(data: &[u8]) {
    let [path, method, claims] = lines(data);
    if [path, method].iter().any(|line| line.iter().any(|byte| *byte < b' ' || *byte == 0x7f)) {
        return; // No header field can contain this.
    }
    let metadata = match serde_json::from_slice::<Value>(claims) {
        Ok(claims) if claims.is_object() => jwt_metadata(&json!({"payload": claims})),
        _ if claims == b"$GOOD" => jwt_metadata(&json!({"payload": good_claims()})),
        _ => claims.to_vec(),
    };
    PLAIN.with(|begin| {
        GUARD.with(|guard| {
            let request = passing(path, method, metadata);
            let flow = guard.on_request_headers(&*begin.world(), &request, 1);
            guard.on_end(1);
            assert_eq!(flow == Flow::Pause, request.status().is_some());
            if flow == Flow::Continue {
                let reads = matches!(method, b"GET" | b"HEAD" | b"OPTIONS");
                assert!(reads || path.starts_with(b"/agents") || method == b"POST", "{method:?}");
                assert!(!path.starts_with(b"/secret"));
            }
        });
    });
}

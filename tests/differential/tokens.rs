//! Access tokens: a JWT that a library verifies is verified here with the same claims, or refused.
//! The filter never takes it for an opaque token and sends it to a service that might check it with
//! less care.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use fastrand::Rng;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};
use testkit::configuration::{Configuration, ISSUER, MANAGEMENT, PROVIDER_KEY, SUPPORT, jwks};
use testkit::envoy::Envoy;
use testkit::gateway::{
    IDENTITY_GATEWAY, actor_claims, exchange_form, exchange_request, http_uri, in_front_of,
    mint_request, minted, now, raw_part, with_actor,
};
use testkit::http::Request;
use testkit::keys::Key;
use testkit::server::{Reply, Server};
use testkit::{Findings, repository};

use crate::{Client, Plan, in_parallel, node};

/// The issuer's keys, one for each kind of signature, each with its signer.
static KEYS: LazyLock<Vec<(Key, EncodingKey)>> = LazyLock::new(|| {
    let rsa = |kid: &str, alg| PROVIDER_KEY.under(alg, kid);
    let keys = [
        Key::generate(Algorithm::EdDSA, "ed"),
        Key::generate(Algorithm::ES256, "ec"),
        Key::generate(Algorithm::ES384, "ec-384"),
        rsa("rs", Algorithm::RS256),
        rsa("ps", Algorithm::PS256),
    ];
    let with_signer = |key: Key| {
        let pem = key.pem().as_bytes();
        let signer = match key.alg {
            Algorithm::EdDSA => EncodingKey::from_ed_pem(pem),
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_pem(pem),
            _ => EncodingKey::from_rsa_pem(pem),
        };
        (key, signer.unwrap())
    };
    keys.map(with_signer).into()
});

/// Starts a service that accepts every token and records the tokens it was asked about.
fn accepting_service(
    name: &str,
    yes: Value,
    token_of: impl Fn(&testkit::server::Received) -> String + Send + Sync + 'static,
) -> (Server, Arc<Mutex<HashSet<String>>>) {
    let service = Server::start(name);
    let shown = Arc::new(Mutex::new(HashSet::new()));
    let noted = Arc::clone(&shown);
    let reply = Reply::json(&yes);
    service.answer(move |asked| {
        noted.lock().unwrap().insert(token_of(asked));
        reply.clone()
    });
    (service, shown)
}

#[test]
fn a_token_that_a_library_verifies_is_read_alike_here_or_refused() {
    let plan = Plan::new();
    let tokens = plan.inputs(generate);
    let expected = json!({
        "keys": KEYS.iter().map(|(key, _)| key.public_jwk()).collect::<Vec<_>>(),
        "issuer": ISSUER,
        "audiences": [MANAGEMENT, SUPPORT],
        "algorithms": KEYS.iter().map(|(key, _)| key.alg).collect::<Vec<_>>(),
    })
    .to_string();
    let mut jose = node("verifies-jwts.js");
    jose.arg(&expected);
    let mut pyjwt = Command::new(repository().join("scripts/pyjwt"));
    pyjwt.arg(repository().join("tests/differential/verifies_jwts.py")).arg(&expected);
    let libraries = [("jose", read_all(jose, &tokens)), ("PyJWT", read_all(pyjwt, &tokens))];

    let gateway = Server::start(IDENTITY_GATEWAY);
    let (userinfo, shown_to_userinfo) =
        accepting_service("userinfo", json!({"sub": "whoever"}), |asked| {
            asked.header("authorization").unwrap().trim_start_matches("Bearer ").to_owned()
        });
    let anybody = json!({"active": true, "sub": "whoever", "client_id": "whoever", "scope": "impersonate openid",
               "aud": [MANAGEMENT], "exp": now() + 3600});
    let (introspection, shown_to_introspection) =
        accepting_service("introspection", anybody, |asked| asked.parameter("token").unwrap());
    let keys: Vec<_> = KEYS.iter().map(|(key, _)| key).chain([&*PROVIDER_KEY]).collect();
    let configuration = Configuration::default()
        .with("/subject_tokens/authentication/jwt/0/local_jwks", jwks(&keys))
        .with("/actor_tokens/jwt/0/local_jwks", jwks(&keys))
        .with("/actor_tokens/userinfo", json!({"http_uri": http_uri(&userinfo, "/me", "10s")}))
        .with(
            "/subject_tokens/authentication/introspection",
            json!({
                "http_uri": http_uri(&introspection, "/introspection", "10s"),
                "client_id": "filter",
                "client_secret": {"inline_string": "introspection-secret"},
                "required_scopes": ["impersonate"],
            }),
        );
    let services = [&gateway, &userinfo, &introspection];
    let envoy = in_front_of(&services, &configuration).start();

    let actors = act(&envoy, &tokens);
    let callers = mint(&envoy, &tokens);
    let shown = [&shown_to_userinfo, &shown_to_introspection].map(|shown| shown.lock().unwrap());

    let mut findings = Findings::default();
    let mut accepted = 0;
    for (number, token) in tokens.iter().enumerate() {
        for (library, claims) in &libraries {
            let Some(claims) = &claims[number] else { continue };
            accepted += 1;
            let mut disagree = |what: String| {
                findings.add(format!(
                    "token {number}: {library} verifies a token that is {what}: {token:?}"
                ));
            };
            if shown.iter().any(|shown| shown.contains(token)) {
                disagree("opaque here".into());
                continue;
            }
            for (here, claim) in [(&actors[number], "sub"), (&callers[number], "client_id")] {
                if let Some(here) = here
                    && *here != claims[claim]
                {
                    disagree(format!("of {claim} {here} here and {} there", claims[claim]));
                }
            }
        }
    }
    let acted = actors.iter().flatten().count();
    let called = callers.iter().flatten().count();
    let opaque = shown.iter().map(|shown| shown.len()).sum::<usize>();
    println!(
        "of {} tokens the libraries verify {accepted} times, {acted} act and {called} mint, {opaque} are opaque",
        plan.count
    );
    // The libraries accept and refuse enough tokens for a comparison.
    assert!(accepted > plan.count / 4, "only {accepted} are verified by a library");
    assert!(acted.min(called) > plan.count / 20, "only {acted} act and {called} mint");
    assert!(opaque > plan.count / 100, "only {opaque} are opaque");
}

/// Gives each token to a program that reads one token a line. Returns the claims of each token that
/// verifies.
fn read_all(mut program: Command, tokens: &[String]) -> Vec<Option<Value>> {
    let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    let lines: Vec<_> = tokens.iter().map(|token| BASE64_STANDARD.encode(token) + "\n").collect();
    let writer = thread::spawn(move || input.write_all(lines.concat().as_bytes()));
    let output = BufReader::new(process.stdout.take().unwrap());
    let read = output.lines().map(|line| {
        let line = line.unwrap();
        // A string with half a surrogate pair is valid to the program, and not in Rust.
        match serde_json::from_str(&line).unwrap_or_else(|_| json!("not Unicode")) {
            Value::Null => None,
            claims => Some(claims),
        }
    });
    let read: Vec<_> = read.collect();
    writer.join().unwrap().unwrap();
    assert!(process.wait().unwrap().success());
    assert_eq!(read.len(), tokens.len(), "an answer to each token");
    read
}

/// Presents each token as an actor token. Returns the actor of each accepted token.
fn act(envoy: &Envoy, tokens: &[String]) -> Vec<Option<Value>> {
    in_parallel(
        tokens,
        || (Client::of(envoy.address("gateway")), None),
        |(client, subject_token), _, token| {
            // A refused exchange leaves the subject token unspent, so it is used again.
            let outstanding = subject_token
                .take()
                .unwrap_or_else(|| minted(&client.send(&mint_request("somebody")).unwrap()));
            let form = with_actor(exchange_form(&outstanding), token);
            let answer = client.send(&exchange_request(&form)).unwrap();
            if answer.status == 200 {
                return Some(raw_part(&answer.member("access_token"), 1)["act"]["sub"].clone());
            }
            assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{token:?}: {answer:?}");
            *subject_token = Some(outstanding);
            None
        },
    )
}

/// Presents each token as a backend's. Returns the caller of each accepted token, from the audit
/// log.
fn mint(envoy: &Envoy, tokens: &[String]) -> Vec<Option<Value>> {
    let statuses = in_parallel(
        tokens,
        || Client::of(envoy.address("gateway")),
        |client, number, token| {
            // Other tokens cannot be sent in a header.
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) || token.is_empty() {
                return None;
            }
            let request: Request = Request::post("/api/subject-tokens").bearer(token);
            let answer =
                client.send(&request.json(&json!({"userId": format!("by-{number}")}))).unwrap();
            assert!(matches!(answer.status, 201 | 401 | 403), "{token:?}: {answer:?}");
            (answer.status == 201).then_some(())
        },
    );
    let name = |number: usize| format!("by-{number}");
    testkit::wait_for("the lines of the audit log", || {
        let log = envoy.log();
        let created = log.lines().filter_map(|line| {
            let event: Value = serde_json::from_str(line.get(line.find('{')?..)?).ok()?;
            let created = event["event"] == "subject_token.created";
            created
                .then(|| Some((event["user_id"].as_str()?.to_owned(), event["caller"].clone())))?
        });
        let callers: HashMap<String, Value> = created.collect();
        let caller = |(number, status): (usize, &Option<()>)| match status {
            Some(()) => callers.get(&name(number)).cloned().map(Some),
            None => Some(None),
        };
        statuses.iter().enumerate().map(caller).collect()
    })
}

/// Makes a correct token with up to three mistakes.
fn generate(random: &mut Rng) -> String {
    let (key, signer) = &KEYS[random.usize(..KEYS.len())];
    let alg = serde_json::to_value(key.alg).unwrap();
    let alg = alg.as_str().unwrap();
    let mut header = vec![
        format!(r#""alg":"{alg}""#),
        r#""typ":"at+jwt""#.to_owned(),
        format!(r#""kid":"{}""#, key.kid),
    ];
    let mut claims: Vec<String> = {
        let mut claims = actor_claims(&format!("agent-{}", random.u16(..)));
        claims["aud"] = json!([MANAGEMENT, SUPPORT]);
        claims["scope"] = json!("openid impersonate");
        claims["jti"] = json!(random.u64(..).to_string());
        let members = claims.as_object().unwrap().iter();
        members.map(|(name, value)| format!("{}:{value}", json!(name))).collect()
    };
    // Some tokens are opaque, and some of these contain dots.
    if random.u8(..20) == 0 {
        let part = |random: &mut Rng| {
            (0..random.usize(..24)).map(|_| random.alphanumeric()).collect::<String>()
        };
        let parts: Vec<_> = (0..random.usize(1..6)).map(|_| part(random)).collect();
        return parts.join(".");
    }
    let mut before_signing: [Change; 2] = [Change::None, Change::None];
    let mut of_signature = Change::None;
    let mut text: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
    let mut affixes: Vec<(usize, bool, &[u8])> = Vec::new();
    let mut after = After::Nothing;
    for _ in 0..random.u8(..4) {
        match random.u8(..16) {
            0..3 => change_header(random, &mut header, alg),
            3..7 => change_claims(random, &mut claims),
            7 => before_signing[random.usize(..2)] = Change::any(random),
            8 | 9 => of_signature = Change::any(random),
            // Text around the JSON.
            10 => affixes.push((
                random.usize(..2),
                random.bool(),
                random
                    .choice([
                        &b"\xef\xbb\xbf"[..],
                        b" ",
                        b"\n",
                        b"\0",
                        b"{}",
                        b"//",
                        b"\x0c",
                        b"\xc2\xa0",
                    ])
                    .unwrap(),
            )),
            11 | 12 => after = After::any(random),
            _ => {}
        }
    }
    for (part, members) in [&header, &claims].into_iter().enumerate() {
        text[part] = format!("{{{}}}", members.join(",")).into_bytes();
    }
    // A list of values, which some readers take for the members in their order.
    if random.u8(..60) == 0 {
        text[random.usize(..2)] = format!(r#"["{alg}","{ISSUER}","other",1]"#).into_bytes();
    }
    for (part, front, affix) in affixes {
        let at = if front { 0 } else { text[part].len() };
        text[part].splice(at..at, affix.iter().copied());
    }
    // Bytes that are not UTF-8, in a string or around one.
    if random.u8(..40) == 0 {
        let part = &mut text[random.usize(..2)];
        let at = random.usize(1..part.len());
        part.insert(at, 0xff);
    }
    let segment =
        |part: usize| before_signing[part].apply(&BASE64_URL_SAFE_NO_PAD.encode(&text[part]));
    let (first, second) = (segment(0), segment(1));
    let input = format!("{first}.{second}");
    let signature = jsonwebtoken::crypto::sign(input.as_bytes(), signer, key.alg).unwrap();
    let signature = of_signature.apply(&signature);
    match after {
        After::Nothing => format!("{input}.{signature}"),
        After::Behind(what) => format!("{input}.{signature}{what}"),
        After::Before(what) => format!("{what}{input}.{signature}"),
        After::Around(separator) => format!("{first}{separator}{second}{separator}{signature}"),
        After::Flattened => {
            json!({"protected": first, "payload": second, "signature": signature}).to_string()
        }
        After::General => {
            let signatures = json!([{"protected": first, "signature": signature}]);
            json!({"payload": second, "signatures": signatures}).to_string()
        }
    }
}

/// A change of base64url that decodes to the same bytes, or nearly the same.
#[derive(Clone, Copy, Debug)]
enum Change {
    None,
    Padding,
    OnePadding,
    SpareBits,
    StandardAlphabet,
    Insert(usize, &'static str),
    LastGone,
}

impl Change {
    fn any(random: &mut Rng) -> Self {
        const INSERTS: [&str; 12] =
            [" ", "\n", "\r\n", "\t", ".", "..", "=", "*", "\0", "%", "\u{e9}", "~"];
        match random.u8(..9) {
            0 | 1 => Self::Padding,
            2 => Self::OnePadding,
            3 | 4 => Self::SpareBits,
            5 => Self::StandardAlphabet,
            6 => Self::LastGone,
            _ => Self::Insert(random.usize(..400), random.choice(INSERTS).unwrap()),
        }
    }

    fn apply(self, segment: &str) -> String {
        let mut text = segment.to_owned();
        match self {
            Self::None => {}
            Self::Padding => text.push_str(&"=".repeat((4 - text.len() % 4) % 4)),
            Self::OnePadding => text.push('='),
            Self::LastGone => drop(text.pop()),
            Self::StandardAlphabet => text = text.replace('-', "+").replace('_', "/"),
            Self::Insert(at, what) => text.insert_str(at % (text.len() + 1), what),
            Self::SpareBits => {
                const ALPHABET: &[u8] =
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
                let last = text.pop().unwrap_or('A');
                let value =
                    ALPHABET.iter().position(|&letter| char::from(letter) == last).unwrap_or(0);
                // No bits are spare if the length is a multiple of four.
                let spare = usize::from(!(text.len() + 1).is_multiple_of(4));
                text.push(ALPHABET[value | spare].into());
            }
        }
        text
    }
}

/// A change to the token after it was signed.
enum After {
    Nothing,
    Behind(&'static str),
    Before(&'static str),
    Around(&'static str),
    Flattened,
    General,
}

impl After {
    fn any(random: &mut Rng) -> Self {
        match random.u8(..10) {
            0..4 => Self::Behind(
                random
                    .choice([".", "\n", " ", "=", "==", ".x", "\0", ",", "%3D", "\r\n", "."])
                    .unwrap(),
            ),
            4 | 5 => {
                Self::Before(random.choice([".", " ", "Bearer ", "\n", "\u{feff}", "="]).unwrap())
            }
            6 => Self::Around(random.choice(["..", "%2E", ". ", " .", "\u{ff0e}", ","]).unwrap()),
            7 => Self::Flattened,
            _ => Self::General,
        }
    }
}

fn change_header(random: &mut Rng, header: &mut Vec<String>, alg: &str) {
    let lower = format!(r#""alg":"{}""#, alg.to_lowercase());
    let same = format!(r#""alg":"{alg}""#);
    let escaped = format!(r#""\u0061lg":"{alg}""#);
    let listed = format!(r#""alg":["{alg}"]"#);
    match random.u8(..4) {
        // Replaces `alg`.
        0 => {
            header[0] = random
                .choice([
                    lower.as_str(),
                    &escaped,
                    &listed,
                    r#""alg":"none""#,
                    r#""alg":"HS256""#,
                    r#""alg":"Ed25519""#,
                    r#""alg":null"#,
                    r#""ALG":"ES256""#,
                ])
                .unwrap()
                .to_owned();
        }
        // Adds a member anywhere.
        1 | 2 => {
            let at = random.usize(..=header.len());
            let further = random
                .choice([
                    same.as_str(),
                    &escaped,
                    r#""alg":"none""#,
                    r#""kid":"nobody""#,
                    r#""\u006bid":"ed""#,
                    r#""crit":[]"#,
                    r#""crit":["b64"]"#,
                    r#""crit":["b64"],"b64":true"#,
                    r#""crit":["b64"],"b64":false"#,
                    r#""b64":false"#,
                    r#""b64":true"#,
                    r#""\u0063rit":["x"],"x":1"#,
                    r#""crit":null"#,
                    r#""crit":["exp"],"exp":1"#,
                    r#""typ":"JWT""#,
                    r#""x":NaN"#,
                    r#""x":1e999"#,
                    r#""x":"\ud800""#,
                    r#""cty":"JWT""#,
                    r#""zip":"DEF""#,
                    r#""jwk":{"kty":"oct","k":"AA"}"#,
                    r#""__proto__":{"alg":"none"}"#,
                    r#""enc":"A128GCM""#,
                    r#""x":1,"x":2"#,
                    "",
                ])
                .unwrap();
            header.insert(at, further.to_owned());
        }
        _ => {
            let index = random.usize(1..header.len());
            let instead = [
                r#""typ":"at+JWT""#,
                r#""typ":"application/at+jwt""#,
                r#""typ":"logout+jwt""#,
                r#""typ":1"#,
                r#""kid":""#,
                r#""kid":1"#,
                r#""kid":null"#,
                r#""kid":"ED""#,
                r#""x":1"#,
            ];
            header[index] = random.choice(instead).unwrap().to_owned();
        }
    }
}

fn change_claims(random: &mut Rng, claims: &mut Vec<String>) {
    let exp = now() + 3600;
    let further = [
        r#""sub":"other""#.to_owned(),
        r#""\u0073ub":"other""#.into(),
        r#""iss":"https://other.example.com""#.into(),
        r#""\u0069ss":"https://other.example.com""#.into(),
        format!(r#""iss":"{ISSUER}""#),
        r#""client_id":"other""#.into(),
        format!(r#""exp":{exp}.5"#),
        format!(r#""exp":"{exp}""#),
        format!(r#""exp":{exp}e0"#),
        r#""exp":1e400"#.into(),
        r#""exp":99999999999999999999"#.into(),
        r#""exp":1"#.into(),
        r#""exp":NaN"#.into(),
        r#""nbf":1"#.into(),
        r#""nbf":1.5"#.into(),
        r#""nbf":99999999999"#.into(),
        r#""iat":1.5"#.into(),
        r#""iat":"1""#.into(),
        r#""act":{"sub":"other"}"#.into(),
        r#""act":null"#.into(),
        r#""\u0061ct":{"sub":"other"}"#.into(),
        r#""aud":"https://other.example.com""#.into(),
        format!(r#""aud":["{SUPPORT}",1]"#),
        r#""sub":null"#.into(),
        r#""sub":1"#.into(),
        r#""sub":"a\u0000b""#.into(),
        r#""sub":"\ud800""#.into(),
        r#""x":NaN"#.into(),
        r#""x":[[[[[[[[]]]]]]]]"#.into(),
        format!(r#""x":{}{}"#, "[".repeat(200), "]".repeat(200)),
        r#""x":1e999"#.into(),
        r#""scope":["openid"]"#.into(),
        r#""scp":["openid"]"#.into(),
        r#""cnf":{"jkt":"x"}"#.into(),
        r#""x":"\ud800""#.into(),
        r#""__proto__":{"sub":"other"}"#.into(),
        String::new(),
    ];
    let further = random.choice(further).unwrap();
    match random.u8(..3) {
        // Replaces the member of that name, so that it occurs once.
        0 => {
            let name = further.split(':').next().unwrap_or_default();
            match claims.iter().position(|claim| claim.split(':').next() == Some(name)) {
                Some(index) => claims[index] = further,
                None => claims.push(further),
            }
        }
        1 => claims.insert(0, further),
        _ => claims.push(further),
    }
}

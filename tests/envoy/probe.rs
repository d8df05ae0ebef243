//! `impersonation-filter probe` against a real filter and a real guard: it passes where they hold,
//! and fails where one is missing.

mod sessions;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use testkit::artifacts::COMPANION;
use testkit::bootstrap::{Cluster, Filter, Listener};
use testkit::configuration::{CLIENT_SECRET, ORDERS, PAYMENTS, PROVIDER_KEY, SIGNING_KEY};
use testkit::gateway::{actor_claims, backend_claims};
use testkit::guarded::{
    API, Guarded, OTHER_ISSUER, PUBLIC_ORIGIN, api_listener, bound_listener, claims_with,
    filter_configuration, for_impersonations, guard, guard_configuration,
    jwt_authn_for_bound_tokens, operator, operator_with, ordinary_token, verifying_listener,
};
use testkit::http::Request;
use testkit::keys::has_jwt;
use testkit::process::{Ending, Process};
use testkit::server::{Fault, Received, Reply, Server, as_asked};
use testkit::streaming::{self, SILENT};
use testkit::{Findings, scratch, tls, wait_for};

use crate::guard::bypass::{
    HEADER_SPELLINGS, OF_A_DENIED_PATH, OF_AN_ALLOWED_PATH, OVERRIDES, PATH_HEADERS,
};
use crate::guard::proof::{self, LOCKED, Shown, VARIANTS};

const USER: &str = "probe-user";
const ECHO: &str = "/orders/echo";

/// The files and the settings of one probe.
struct Probe {
    folder: PathBuf,
    settings: Value,
}

/// The end of a probe.
struct Probed {
    status: Option<i32>,
    report: Value,
    /// Everything that the companion printed.
    printed: String,
}

impl Probe {
    fn new(name: &str, filter: &str, apis: &[String]) -> Self {
        let folder = scratch().join("probe").join(name);
        fs::create_dir_all(&folder).unwrap();
        let of_another = |claims: &Value| SIGNING_KEY.sign(&claims_with(claims));
        let file = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::write(&file, text).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let settings = json!({
            "filter": filter,
            "api": apis,
            "read": "/orders/7",
            "write": LOCKED,
            "echo": ECHO,
            "resource": ORDERS,
            "scope": "orders:read",
            "user": USER,
            "context": {"reason": "a probe"},
            "client_id": "support-portal",
            "client_secret_file": file("secret", &CLIENT_SECRET),
            "caller_token_file": file("caller", &PROVIDER_KEY.sign(&backend_claims())),
            "actor_token_file": file("actor", &PROVIDER_KEY.sign(&actor_claims("probe-agent"))),
            "operator_token_file": file("operator", &operator()),
            "ordinary_token_file": file("ordinary", &ordinary_token()),
            "refused_token_file": [
                file("audience", &of_another(&json!({"aud": PAYMENTS, "txn": null, "act": null}))),
                file("issuer", &of_another(&json!({"iss": OTHER_ISSUER, "txn": null, "act": null}))),
            ],
        });
        Self { folder, settings }
    }

    fn with(mut self, members: &Value) -> Self {
        for (name, value) in members.as_object().unwrap() {
            let all = self.settings.as_object_mut().unwrap();
            match value {
                Value::Null => drop(all.remove(name)),
                value => drop(all.insert(name.clone(), value.clone())),
            }
        }
        self
    }

    fn file(&self, name: &str, text: &str) -> String {
        let file = self.folder.join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn command(&self, flags: &[&str]) -> Command {
        let described = self.file("probe.json", &self.settings.to_string());
        let mut command = Command::new(&*COMPANION);
        command.current_dir(&self.folder).args(["probe", "--settings", &described]).args(flags);
        command.env_clear();
        command
    }

    fn run(&self) -> Probed {
        self.run_with(&["--json"])
    }

    fn run_with(&self, flags: &[&str]) -> Probed {
        let output = self.command(flags).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let report = serde_json::from_str(&out).unwrap_or_default();
        Probed { status: output.status.code(), report, printed: out + &err }
    }
}

impl Probed {
    fn checks(&self) -> &Vec<Value> {
        self.report["checks"].as_array().unwrap_or_else(|| panic!("{}", self.printed))
    }

    /// The rows that do not hold, of one address or of all.
    fn failed(&self, at: Option<&str>) -> Vec<&Value> {
        let of_address = |row: &&Value| at.is_none_or(|at| row["at"] == at);
        self.checks().iter().filter(of_address).filter(|row| row["holds"] == false).collect()
    }

    fn has_failed(&self, at: &str, rule: &str) -> bool {
        self.failed(Some(at)).iter().any(|row| row["rule"] == rule)
    }

    fn expect_no_secret(&self) {
        assert!(!has_jwt(&self.printed), "a JWT was printed: {}", self.printed);
        for secret in ["sub_", &**CLIENT_SECRET] {
            assert!(!self.printed.contains(secret), "a secret was printed: {}", self.printed);
        }
    }
}

fn address(guarded: &Guarded, listener: &str) -> String {
    format!("http://{}", guarded.envoy.address(listener))
}

/// The number of live impersonations of the probe's user.
fn live(guarded: &Guarded) -> usize {
    let list = Request::get("/api/impersonations?userId=probe-user");
    let answer = guarded.send_to_filter(&list.bearer(&operator_with("impersonations:read")));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["impersonations"].as_array().unwrap().len()
}

/// An API that repeats headers at one path.
fn echoing(received: &Received) -> Reply {
    let headers = received.headers.iter();
    let lines =
        headers.map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value)));
    match &*received.target {
        ECHO => Reply { body: lines.collect::<String>().into_bytes(), ..Reply::status(200) },
        "/missing" => Reply::status(404),
        "/broken" => Reply::status(500),
        _ => as_asked(received),
    }
}

/// A listener before the API, and before a server of streams.
fn listener(name: &str, members: &Value) -> Listener {
    let guard = for_impersonations(guard(&guard_configuration(members)));
    let streams = |path: &str| json!({"match": {"path": path}, "route": {"cluster": "streams", "timeout": "0s"}});
    verifying_listener(name, [guard])
        .route(streams("/events"))
        .route(streams(SILENT))
        .route_to(API, "0s")
}

/// An Envoy with guarded listeners, one by TLS, and listeners with a gap in their guard.
fn start() -> (Guarded, tls::Authority) {
    let api = Server::start(API);
    api.answer(echoing);
    let authority = tls::Authority::new(&scratch().join("probe").join("tls"));
    let held = json!({});
    let slash = json!({"rules": [{"path": "/orders/locked/", "action": "allow"}]});
    let bootstrap = Guarded::bootstrap_with(
        listener("guarded", &held),
        Filter::from(&filter_configuration()),
        api.address,
    )
    .listener(listener("second", &held))
    .listener(listener("by-tls", &held).tls(authority.issue("localhost")))
    .listener(listener("slash", &slash))
    .listener(listener("reports", &json!({"mode": "report"})))
    .listener(api_listener(
        "every-method",
        [for_impersonations(guard(&guard_configuration(
            &json!({"rules": [{"path": "/orders/locked", "methods": ["PUT"], "action": "allow"}]}),
        )))],
    ))
    .cluster(Cluster::new("streams", streaming::start()))
    .workers(2);
    (Guarded { envoy: bootstrap.start(), api }, authority)
}

#[test]
fn a_probe_passes_where_all_holds_and_fails_where_something_does_not() {
    let (guarded, authority) = start();
    let by_tls = format!("https://localhost:{}", guarded.envoy.address("by-tls").port());
    let apis = [address(&guarded, "guarded"), address(&guarded, "second"), by_tls];
    passes_and_leaves_nothing(&guarded, &authority, &apis);
    fails_where_there_is_a_gap(&guarded, &apis[0]);
    proves_nothing_without_an_answer(&guarded, &apis[0]);
    ends_what_it_began_when_it_is_interrupted(&guarded, &apis[0]);
}

fn passes_and_leaves_nothing(guarded: &Guarded, authority: &tls::Authority, apis: &[String]) {
    let cacert = authority.certificate.to_str().unwrap();
    // Streams end within a second: the bound is wide, for a busy machine.
    let members = json!({"stream": "/events", "cacert": cacert, "ends_within": "60s"});
    let probe = Probe::new("holds", &address(guarded, "gateway"), apis).with(&members);
    drop(probe.command(&[]));
    let files = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<BTreeSet<_>>()
    };
    let before = files(&probe.folder);
    let probed = probe.run_with(&["--json", "--strict"]);
    assert_eq!(probed.failed(None), Vec::<&Value>::new(), "{}", probed.printed);
    assert_eq!((probed.status, &probed.report["holds"]), (Some(0), &json!(true)));
    assert!(probed.checks().iter().all(|row| row["holds"] == true), "{}", probed.printed);
    for api in apis {
        for rule in [
            "an expired token is refused",
            "an ended impersonation is refused",
            "an open stream ends with its impersonation",
        ] {
            let measured =
                probed.checks().iter().find(|row| row["at"] == **api && row["rule"] == rule);
            let measured = measured.unwrap_or_else(|| panic!("{rule}: {}", probed.printed));
            assert!(measured["milliseconds"].is_u64(), "{measured}");
        }
    }
    probed.expect_no_secret();
    assert_eq!(files(&probe.folder), before);
    assert_eq!(live(guarded), 0);

    // The table says the same in a line for each rule and address. From cron no alarm is caused.
    let replayed = || guarded.envoy.metric("impersonation_subject_tokens_replayed_total");
    let before = replayed();
    let table = probe.with(&json!({"stream": null})).run_with(&["--no-replays"]);
    assert_eq!(replayed(), before);
    assert_eq!(table.status, Some(0), "{}", table.printed);
    assert!(table.printed.contains("warning: a stream of what"), "{}", table.printed);
    assert!(
        table.printed.contains(" checks hold, 0 fail, 4 were not tried\n"),
        "{}",
        table.printed
    );
    table.expect_no_secret();
}

fn fails_where_there_is_a_gap(guarded: &Guarded, held: &str) {
    let filter = address(guarded, "gateway");
    #[rustfmt::skip]
    let gaps = [
        ("bare",         "an impersonation does not write"),
        ("bare",         "an expired token is refused"),
        ("bare",         "an ended impersonation is refused"),
        ("reports",      "an impersonation does not write"),
        ("reports",      "an ended impersonation is refused"),
        ("slash",        "no spelling of a path passes"),
        ("every-method", "no other method and no upgrade passes"),
    ];
    let listeners: BTreeSet<_> = gaps.iter().map(|(listener, _)| *listener).collect();
    let mut apis: Vec<_> = listeners.iter().map(|listener| address(guarded, listener)).collect();
    apis.push(held.to_owned());
    let probed = Probe::new("gaps", &filter, &apis).run();
    assert_eq!(probed.status, Some(1), "{}", probed.printed);
    assert_eq!(probed.failed(Some(held)), Vec::<&Value>::new());
    for (gap, rule) in gaps {
        assert!(
            probed.has_failed(&address(guarded, gap), rule),
            "{gap}, {rule}: {}",
            probed.printed
        );
    }
    // After a plain write that passes, no other write is sent.
    let bare = address(guarded, "bare");
    let untried = probed.checks().iter().filter(|row| row["at"] == *bare && row["holds"].is_null());
    assert!(untried.count() > 50, "{}", probed.printed);
    probed.expect_no_secret();
    assert_eq!(live(guarded), 0);
}

fn proves_nothing_without_an_answer(guarded: &Guarded, api: &str) {
    let filter = address(guarded, "gateway");
    let nowhere = "http://127.0.0.1:1";
    let probe = Probe::new("nothing", &filter, &[api.to_owned()]);
    let another = |name: &str, text: &str| probe.file(name, text);
    let ordinary = ordinary_token();
    #[rustfmt::skip]
    let cases = [
        ("no filter there",          2, json!({"filter": nowhere})),
        ("no API there",             2, json!({"api": nowhere})),
        ("an unknown resource",      2, json!({"resource": "https://nobody.example.com"})),
        ("an unknown client",        2, json!({"client_id": "nobody"})),
        ("a wrong secret",           2, json!({"client_secret_file": another("wrong", "wrong")})),
        ("a wrong caller",           2, json!({"caller_token_file": another("ordinary-user", &ordinary)})),
        ("a wrong actor",            2, json!({"actor_token_file": another("no-token", "x.y.z")})),
        ("a wrong operator",         1, json!({"operator_token_file": another("ordinary-user", &ordinary)})),
        ("an unknown member",        2, json!({"colour": "blue"})),
        ("a missing member",         2, json!({"user": null})),
        ("a missing file",           2, json!({"caller_token_file": "/nowhere"})),
        ("a path of another filter", 2, json!({"subject_tokens_path": "/api/tokens"})),
        ("nothing to read",          2, json!({"read": "/missing"})),
        ("a read that fails",        2, json!({"read": "/broken"})),
        ("no answer to some writes", 1, json!({"api": [api, nowhere]})),
        ("a short stream",           1, json!({"stream": "/orders/7"})),
        ("no echo",                  1, json!({"echo": "/orders/7"})),
        ("too little for --strict",  1, json!({"strict": true})),
    ];
    for (case, status, members) in cases {
        let probe = Probe::new("nothing", &filter, &[api.to_owned()]).with(&members);
        let probed = probe.run();
        assert_eq!(probed.status, Some(status), "{case}: {}", probed.printed);
        assert_ne!(probed.report["holds"], true, "{case}");
        probed.expect_no_secret();
        assert_eq!(live(guarded), 0, "{case}");
    }
    // A backend that is down is no pass, and no finding about the guard.
    guarded.api.fail(Fault::Refused);
    let probed = probe.run();
    guarded.api.heal();
    assert_eq!(probed.status, Some(2), "{}", probed.printed);
    assert_eq!(live(guarded), 0);
}

fn ends_what_it_began_when_it_is_interrupted(guarded: &Guarded, api: &str) {
    for signal in ["INT", "TERM"] {
        // The API never answers, so the probe is under way.
        let probe = Probe::new("interrupted", &address(guarded, "gateway"), &[api.to_owned()])
            .with(&json!({"read": SILENT}));
        let mut command = probe.command(&[]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::spawn(&mut command, Ending::Killed);
        wait_for("the probe's impersonations", || (live(guarded) > 0).then_some(()));
        process.signal(signal);
        let status = wait_for("the end of the probe", || process.ended());
        assert_eq!(status.code(), Some(2), "{signal}");
        assert_eq!(live(guarded), 0, "{signal}");
    }
}

#[test]
fn a_probe_of_bound_tokens_tries_what_a_thief_can_do() {
    let api = Server::start(API);
    api.answer(as_asked);
    let client = json!({"client_id": "bound", "type": "native", "token_binding": "dpop"});
    let filter = filter_configuration().with("/clients/-", client).with("/dpop/nonce", "required");
    let members = json!({"public_origin": PUBLIC_ORIGIN, "dpop": {"nonce": "required"}});
    let listener = bound_listener(&guard_configuration(&members), true);
    // It accepts both schemes, and looks at no key.
    let unchecked = Listener::new("unchecked").filter(jwt_authn_for_bound_tokens());
    let bootstrap = Guarded::bootstrap_with(listener, Filter::from(&filter), api.address)
        .listener(unchecked.route_to(API, "0s"));
    let guarded = Guarded { envoy: bootstrap.start(), api };
    let [held, unchecked] = ["guarded", "unchecked"].map(|name| address(&guarded, name));
    let settings = json!({
        "echo": null, "ordinary_token_file": null, "public_origin": PUBLIC_ORIGIN,
        "client_id": "bound", "client_secret_file": null,
    });
    let gateway = address(&guarded, "gateway");
    let probe = |apis: &[String], more: &Value| {
        let probe = Probe::new("bound", &gateway, apis);
        let secret = probe.settings["client_secret_file"].clone();
        let mut probe = probe.with(&settings).with(more);
        if more["client_id"].is_string() {
            probe.settings["client_secret_file"] = secret;
        }
        probe.run()
    };
    let rule = "a bound token is worth nothing without its key";
    let tried = |probed: &Probed, at: &str| {
        probed.checks().iter().filter(|row| row["at"] == at && row["rule"] == rule).count()
    };

    let probed = probe(&[held.clone(), unchecked.clone()], &json!({}));
    assert_eq!(probed.status, Some(1), "{}", probed.printed);
    for at in [&held, &gateway] {
        assert_eq!(probed.failed(Some(at)), Vec::<&Value>::new());
        assert!(tried(&probed, at) > 2, "{at}: {}", probed.printed);
    }
    assert!(probed.has_failed(&unchecked, rule), "{}", probed.printed);
    probed.expect_no_secret();

    // A client that need not bind its tokens may.
    for is_bound in [false, true] {
        let members = json!({"client_id": "support-portal", "dpop": is_bound});
        let probed = probe(std::slice::from_ref(&held), &members);
        assert_eq!(probed.status, Some(0), "{}", probed.printed);
        assert_eq!(tried(&probed, &held) > 0, is_bound, "{}", probed.printed);
        probed.expect_no_secret();
    }
    assert_eq!(live(&guarded), 0);

    // A wrong origin is no finding about the guard: nothing is read.
    let probed = probe(&[held], &json!({"public_origin": null}));
    assert_eq!(probed.status, Some(2), "{}", probed.printed);
}

#[test]
fn a_probe_finds_each_variant_that_check_cannot_prove() {
    let api = Server::start(API);
    api.answer(echoing);
    let guarded = proof::start(api);
    let names = VARIANTS.iter().map(|variant| variant.name).chain(["shipped"]);
    let apis: Vec<_> = names.map(|name| address(&guarded, name)).collect();
    let probed = Probe::new("variants", &address(&guarded, "gateway"), &apis).run();
    assert_eq!(probed.status, Some(1), "{}", probed.printed);
    let mut findings = Findings::default();
    for variant in VARIANTS {
        let failed = probed.failed(Some(&address(&guarded, variant.name)));
        // A setting that does no harm alone shows from outside only if it changes an answer. The
        // probe has no ordinary user's token that is bound to a key.
        let is_found = match variant.shown_by {
            Shown::Not(_) => variant.name == "told-nothing",
            _ => variant.name != "bound-tokens-pass",
        };
        findings.expect(format!("{}: {failed:#?}", variant.name), &!failed.is_empty(), &is_found);
    }
    let failed = probed.failed(Some(&address(&guarded, "shipped")));
    findings.expect("shipped", &failed, &Vec::new());
    findings.expect("live impersonations", &live(&guarded), &0);
    probed.expect_no_secret();
}

/// The API here is a server that refuses like the guard, so that all attempts arrive as they were
/// sent.
#[test]
fn a_probe_tries_each_way_around_the_guard_that_the_tests_know() {
    const READ: &str = "/orders";
    const WRITE: &str = "/account/password";
    let guarded = Guarded::start(&json!({}));
    let recorder = Server::start("recorder");
    recorder.answer(|received| match (&*received.method, &*received.target) {
        ("GET", READ) => Reply::status(200),
        // A forged header does not arrive, so the probe tries the next spelling.
        ("GET", ECHO) => {
            let told = received.header("x-probe").unwrap_or_default();
            Reply { body: told.into(), ..Reply::status(200) }
        }
        _ => {
            let challenge = "Bearer error=\"insufficient_scope\"";
            Reply::status(403).header("www-authenticate", challenge)
        }
    });
    let apis = [format!("http://{}", recorder.address)];
    let probe = Probe::new("all", &address(&guarded, "gateway"), &apis);
    let probe = probe.with(&json!({"read": READ, "write": WRITE, "ends_within": "1ms"}));
    // Nothing ends at the recorder.
    assert_eq!(probe.run().status, Some(1));
    let received = recorder.received();
    let targets: BTreeSet<_> = received.iter().map(|it| it.target.to_lowercase()).collect();
    let headers: BTreeSet<_> = received
        .iter()
        .flat_map(|it| it.headers.iter().map(|(name, _)| name.to_lowercase()))
        .collect();
    let methods: BTreeSet<_> = received.iter().map(|it| &*it.method).collect();

    let mut findings = Findings::default();
    let mut expect = |case: &str, all: &BTreeSet<String>, one: String| {
        findings.expect(format!("{case}: {one}"), &all.contains(&one), &true);
    };
    // These are other paths, not other spellings of one.
    let others = ["below", "beside", "below the exact one"];
    for (case, target, status) in OF_A_DENIED_PATH {
        if status == 403 && !others.contains(&case) {
            let target = target.to_lowercase();
            let query = target.replace("?a=/orders", &format!("?a={READ}"));
            expect(case, &targets, query.replace("/payments", WRITE));
        }
    }
    // The probe encodes another letter, and reads nothing that may not be read.
    let others =
        ["another method", "another word", "an encoded letter", "and a path that is not normal"];
    for (case, _, target, status) in OF_AN_ALLOWED_PATH {
        if status == 403 && !others.contains(&case) {
            let spelt =
                target.to_lowercase().replace("orders", "account").replace("search", "password");
            let spelt = spelt.replace("/public", READ);
            let is_whole = spelt.contains("password");
            expect(case, &targets, if is_whole { spelt } else { format!("{spelt}/password") });
        }
    }
    for (case, _, target, header, status) in OVERRIDES {
        if status != 403 {
            continue;
        }
        // Headers with odd names may be removed, and what is left is no attempt.
        if let Some((name, _)) = header.filter(|(name, _)| !name.contains(['_', '.'])) {
            expect(case, &headers, name.to_lowercase());
        }
        if let Some((_, query)) = target.split_once('?') {
            let (name, _) = query.rsplit_once('=').unwrap();
            let begin = format!("{WRITE}?{name}=").to_lowercase();
            let sent = targets.iter().any(|target| target.starts_with(&begin));
            expect(
                case,
                &BTreeSet::from([begin.clone()]),
                if sent { begin } else { "not sent".into() },
            );
        }
    }
    let of_paths = PATH_HEADERS.iter().filter(|name| !name.contains('_'));
    for name in of_paths.chain(&HEADER_SPELLINGS).chain(&["upgrade", "cookie"]) {
        expect("a header", &headers, name.to_lowercase());
    }
    for method in ["PUT", "PATCH", "DELETE", "POST", "OPTIONS", "post"] {
        findings.expect(method, &methods.contains(method), &true);
    }
    let tokens = |received: &Received| {
        received
            .headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            .count()
    };
    findings.expect("two tokens", &received.iter().any(|it| tokens(it) == 2), &true);
    let in_query = |it: &Received| it.target.contains("access_token=eyJ");
    findings.expect(
        "in the query",
        &received.iter().any(|it| in_query(it) && tokens(it) == 0),
        &true,
    );
    findings.expect("in both", &received.iter().any(|it| in_query(it) && tokens(it) == 1), &true);
}

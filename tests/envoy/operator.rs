//! The companion's `list` and `revoke`, with a real filter and a real guard.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::{Value, json};

use testkit::artifacts::COMPANION;
use testkit::bootstrap::{Filter, Listener};
use testkit::configuration::ORDERS;
use testkit::gateway::Gateway;
use testkit::guarded::{
    API, Begun, Guarded, Parties, filter_configuration, guard_configuration, guarded_listener,
    operator_with,
};
use testkit::http::Request;
use testkit::server::Server;
use testkit::tls::Authority;
use testkit::{paths, scratch};

/// One Envoy with two workers, for every test that ends only its own impersonations.
fn guarded() -> &'static Guarded {
    static SHARED: LazyLock<Guarded> = LazyLock::new(|| Guarded::start_with_workers(&json!({}), 2));
    &SHARED
}

/// The companion for this address, with an access token of this scope.
fn companion(url: &str, scope: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(&*COMPANION);
    command
        .args(arguments)
        .env_clear()
        .env("IMPERSONATION_URL", url)
        .env("IMPERSONATION_TOKEN", operator_with(scope));
    command
}

fn run(guarded: &Guarded, scope: &str, arguments: &[&str]) -> (i32, String, String) {
    let url = format!("http://{}", guarded.envoy.address("gateway"));
    outcome(&companion(&url, scope, arguments).output().unwrap())
}

fn outcome(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn list(guarded: &Guarded, filter: &[&str]) -> Vec<Value> {
    let arguments = [&["list", "--json"], filter].concat();
    let (status, printed, errors) = run(guarded, "impersonations:read", &arguments);
    assert_eq!((status, &*errors), (0, ""), "{filter:?}");
    let list: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(list["complete"], true);
    list["impersonations"].as_array().unwrap().clone()
}

fn revoke(guarded: &Guarded, named: &[&str]) -> (i32, String, String) {
    run(guarded, "impersonations:revoke", &[&["revoke"], named].concat())
}

/// Returns the status of a read at the API.
fn read(guarded: &Guarded, begun: &Begun) -> u16 {
    guarded.send_as(&begun.access_token, Request::get("/orders/1")).status
}

#[test]
fn a_listed_impersonation_is_live_until_it_is_revoked_and_then_the_api_refuses_it() {
    let (guarded, parties, others) = (guarded(), Parties::new(), Parties::new());
    let (ended, goes_on) = (guarded.begin(&parties), guarded.begin(&others));
    let (status, table, errors) =
        run(guarded, "impersonations:read", &["list", "--actor", &parties.actor]);
    assert_eq!((status, &*errors), (0, ""));
    let lines: Vec<_> = table.lines().collect();
    let [_, row, "1 impersonation is live."] = lines[..] else { panic!("{table}") };
    for cell in [&parties.actor, &parties.user, &parties.caller, ORDERS, " left  ", &ended.id] {
        assert!(row.contains(cell), "no {cell} in {row}");
    }
    assert_eq!(read(guarded, &ended), 200);

    let (status, told, errors) = revoke(guarded, &["--actor", &parties.actor]);
    assert_eq!((status, &*errors), (0, ""));
    let expected = format!("1 live impersonation of actor {} has ended. ", parties.actor);
    assert!(told.starts_with(&expected), "{told}");
    assert_eq!(read(guarded, &ended), 401);
    assert_eq!(read(guarded, &goes_on), 200);
    let (status, table, _) =
        run(guarded, "impersonations:read", &["list", "--user", &parties.user]);
    assert_eq!((status, &*table), (0, "No impersonation is live.\n"));
    assert_eq!(list(guarded, &["--actor", &others.actor])[0]["id"], goes_on.id);
}

#[test]
fn revoke_understands_each_way_to_select_impersonations() {
    let guarded = Guarded::lent(&json!({}));
    #[rustfmt::skip]
    let ways: [fn(&Begun, &Parties) -> Vec<String>; 7] = [
        |begun, _| vec!["--id".into(), begun.id.clone()],
        |_, parties| vec!["--user".into(), parties.user.clone()],
        |_, parties| vec!["--actor".into(), parties.actor.clone()],
        |_, parties| vec!["--caller".into(), parties.caller.clone()],
        |_, parties| vec!["--user".into(), parties.user.clone(), "--client".into(), "support-console".into()],
        |_, parties| vec!["--user".into(), parties.user.clone(), "--resource".into(), ORDERS.into()],
        |_, _| vec!["--all".into(), "--yes".into()],
    ];
    for (way, seconds) in ways.into_iter().zip(1..) {
        let parties = Parties::new();
        let begun = guarded.begin(&parties);
        assert_eq!(read(&guarded, &begun), 200);
        let named = way(&begun, &parties);
        let named: Vec<_> = named.iter().map(String::as_str).collect();
        assert_eq!(revoke(&guarded, &named).0, 0, "{named:?}");
        assert_eq!(read(&guarded, &begun), 401, "{named:?}");
        // A token of the same millisecond has ended, too.
        guarded.envoy.clock().set(seconds);
    }
    assert_eq!(list(&guarded, &[]), [] as [Value; 0]);
}

#[test]
fn revoke_fails_for_an_unknown_or_ended_id() {
    let guarded = guarded();
    let begun = guarded.begin(&Parties::new());
    assert_eq!(revoke(guarded, &["--id", &begun.id]).0, 0);
    for id in [&*begun.id, &"0".repeat(24), "..", "x/y"] {
        let (status, told, errors) = revoke(guarded, &["--id", id]);
        assert_eq!((status, &*told), (1, ""), "{id}");
        assert!(errors.contains("nothing has ended"), "{id}: {errors}");
    }
}

#[test]
fn revoke_says_that_a_misspelt_name_ended_nothing() {
    let (guarded, parties) = (guarded(), Parties::new());
    let begun = guarded.begin(&parties);
    let (status, told, errors) = revoke(guarded, &["--user", &format!("{}-typo", parties.user)]);
    assert_eq!(status, 0, "{errors}");
    assert!(told.starts_with("No live impersonation of user "), "{told}");
    assert!(errors.contains("`impersonation-filter list` shows how names are spelt"), "{errors}");
    assert_eq!(read(guarded, &begun), 200);
}

#[test]
fn list_by_resource_shows_no_other_resource() {
    let (guarded, parties) = (guarded(), Parties::new());
    let begun = guarded.begin(&parties);
    let listed = |resource: &str| list(guarded, &["--user", &parties.user, "--resource", resource]);
    assert_eq!(listed(ORDERS)[0]["id"], begun.id);
    assert_eq!(listed("https://api.example.com/payments"), [] as [Value; 0]);
}

#[test]
fn the_read_scope_cannot_revoke() {
    let (guarded, parties) = (guarded(), Parties::new());
    let begun = guarded.begin(&parties);
    let (status, told, errors) =
        run(guarded, "impersonations:read", &["revoke", "--user", &parties.user]);
    assert_eq!((status, &*told), (1, ""));
    assert!(
        errors.contains("403: the access token lacks the scope impersonations:revoke"),
        "{errors}"
    );
    assert_eq!(read(guarded, &begun), 200);
    let (status, told, errors) = run(guarded, "impersonations:revoke", &["list"]);
    assert_eq!((status, &*told), (1, ""));
    assert!(
        errors.contains("403: the access token lacks the scope impersonations:read"),
        "{errors}"
    );
}

#[test]
fn list_and_revoke_find_the_service_at_a_configured_path() {
    let filter = filter_configuration().with("/paths", paths::keycloaks());
    let gateway = Gateway::lent(&filter);
    let url = format!("http://{}", gateway.address());
    let path = paths::moved("/api/impersonations");
    let run = |scope: &str, arguments: &[&str]| {
        let arguments = [arguments, &["--impersonations-path", &path]].concat();
        outcome(&companion(&url, scope, &arguments).output().unwrap())
    };
    let (status, told, errors) = run("impersonations:read", &["list"]);
    assert_eq!((status, &*told, &*errors), (0, "No impersonation is live.\n", ""));
    let (status, told, errors) = run("impersonations:revoke", &["revoke", "--user", "u-1"]);
    assert!(told.starts_with("No live impersonation of user u-1"), "{told}, {errors}");
    assert_eq!(status, 0);
}

#[test]
fn over_tls_the_companion_sends_its_token_only_to_a_trusted_server() {
    let directory = scratch().join("tls/operator");
    let (authority, another) =
        (Authority::new(&directory), Authority::new(&directory.join("another")));
    let guarded = guarded_listener(&guard_configuration(&json!({})));
    let api = Server::start(API);
    let secure = Listener::new("secure")
        .filter(Filter::from(&filter_configuration()))
        .answer("/", "the gateway")
        .tls(authority.issue("gateway"));
    let envoy = Guarded::bootstrap(guarded, api.address).listener(secure).start();
    let guarded = Guarded { envoy, api };
    guarded.begin(&Parties::new());

    let url = format!("https://{}", guarded.envoy.address("secure"));
    let by = |cacert: Option<&Path>, own: &Path| {
        let mut arguments = vec!["list"];
        arguments.extend(cacert.iter().flat_map(|file| ["--cacert", file.to_str().unwrap()]));
        let mut companion = companion(&url, "impersonations:read", &arguments);
        outcome(&companion.env("SSL_CERT_FILE", own).output().unwrap())
    };
    let requests = || guarded.envoy.stat("http.secure.downstream_rq_total");
    for (case, outcome) in [
        ("another", by(Some(&another.certificate), &another.certificate)),
        (
            "another, although the machine trusts it",
            by(Some(&another.certificate), &authority.certificate),
        ),
        ("no authority", by(None, &another.certificate)),
    ] {
        let (status, told, errors) = outcome;
        assert_eq!((status, &*told), (1, ""), "{case}: {errors}");
        assert!(
            errors.contains(&format!("{url}/api/impersonations: its certificate is not trusted")),
            "{case}: {errors}"
        );
    }
    assert_eq!(requests(), 0);

    for (case, outcome) in [
        ("by the file", by(Some(&authority.certificate), &another.certificate)),
        ("by the machine", by(None, &authority.certificate)),
    ] {
        let (status, table, errors) = outcome;
        assert_eq!((status, &*errors), (0, ""), "{case}");
        assert!(table.contains("1 impersonation is live."), "{case}: {table}");
    }
    assert_eq!(requests(), 2);

    // The error says that the scheme of the address is wrong.
    let mistaken = |scheme: &str, listener: &str| {
        let url = format!("{scheme}://{}", guarded.envoy.address(listener));
        let arguments = ["list", "--cacert", authority.certificate.to_str().unwrap()];
        let companion = companion(&url, "impersonations:read", &arguments).output().unwrap();
        let (status, told, errors) = outcome(&companion);
        assert_eq!((status, &*told), (1, ""), "{url}: {errors}");
        errors
    };
    let errors = mistaken("https", "gateway");
    assert!(errors.contains("this port does not speak TLS"), "{errors}");
    let errors = mistaken("http", "secure");
    assert!(errors.contains("this port speaks TLS: the address begins with https://"), "{errors}");
}

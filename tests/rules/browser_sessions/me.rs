//! `GET /.impersonation/me`.

use serde_json::json;

use super::*;
use crate::rules::flow::describes;
use testkit::Findings;
use testkit::configuration::PROVIDER_KEY;
use testkit::guarded::claims_with;
use testkit::impersonations::end_by_id;

#[test]
fn a_session_shows_who_acts_as_whom_and_until_when() {
    let world = start();
    let parties =
        Parties { user: format!("</script>\"&'\u{7530}{}", Parties::new().user), ..Parties::new() };
    let session = begun(&world, mint_for(&world, parties));
    let answer = world.send(&session.me());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body = answer.json();
    let time = |claim: &str| {
        let seconds = body[claim].as_str().unwrap();
        assert!(seconds.ends_with(".000Z"), "{body}");
        impersonation_core::host::UnixTime::from_rfc3339(seconds).unwrap().secs()
    };
    assert_eq!(json!(time("issuedAt")), session.claims["iat"]);
    assert_eq!(json!(time("expiresAt")), session.claims["exp"]);
    let Minted { id, parties, .. } = &session.minted;
    let expected = json!({
        "id": id, "userId": parties.user, "actorId": parties.actor, "clientId": "support-console",
        "scope": "shop", "resource": SHOP, "readOnly": true, "context": {"ticketId": "T-1"},
        "issuedAt": body["issuedAt"], "expiresAt": body["expiresAt"], "ended": ENDED,
    });
    assert_eq!(body, expected);
}

#[test]
fn a_session_without_an_actor_shows_none_and_one_that_may_write_says_so() {
    let world = World::start(&configuration().with("/browser_sessions/read_only", false));
    let minted = mint(&world);
    let form = minted.form().without("actor_token").without("actor_token_type");
    let access_token = token_in(&world.send(&begin_request(&minted.host, &form)));
    let session = Session { minted, access_token, claims: json!({}) };
    let body = world.send(&session.me()).json();
    assert_eq!((body.get("actorId"), &body["readOnly"]), (None, &json!(false)), "{body}");
}

/// The banner asks every few seconds.
#[test]
fn the_audit_log_does_not_have_what_tabs_ask() {
    let world = start();
    let session = begin(&world);
    let lines = world.audit().len();
    assert_live(&world, &session);
    let refused = world.send(&session.request_without_cookie("GET", "/.impersonation/me"));
    assert_eq!(refused.status, 401, "{refused:?}");
    assert_eq!(world.audit().len(), lines);
    assert_eq!(world.counted("impersonation_browser_sessions_shown_total"), 1);
}

#[test]
fn only_the_sessions_own_page_with_its_own_cookie_sees_it() {
    let world = start();
    let (session, other) = (begin(&world), begin(&world));
    let path = "/.impersonation/me";
    let of = |cookies: &[&str]| {
        let bare = session.request_without_cookie("GET", path);
        cookies.iter().fold(bare, |request, cookie| request.header("cookie", cookie))
    };
    let holding = |token: &str| format!("{COOKIE}={token}");
    let own = holding(&session.access_token);
    let others = holding(&other.access_token);
    let at = |host: &str| {
        let request = Request::get(path).header("host", host).header("cookie", &own);
        request.header("sec-fetch-site", "same-origin")
    };
    let (body, _) = session.access_token.rsplit_once('.').unwrap();
    let forged = holding(&format!("{body}.{}", "A".repeat(86)));
    let of_provider = claims_with(&json!({"txn": session.minted.id, "aud": SHOP}));
    let of_provider = holding(&PROVIDER_KEY.sign(&of_provider));
    let by = |headers: &[(&str, &str)]| {
        let request =
            Request::get(path).header("host", &session.minted.host).header("cookie", &own);
        headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    };
    let own_origin = format!("http://{}", session.minted.host);
    let others_origin = format!("http://{}", other.minted.host);
    let host = &session.minted.host;
    #[rustfmt::skip]
    let cases = [
        ("no cookie",               of(&[]),                                       401, "invalid_token"),
        ("another cookie",          of(&["a=b"]),                                  401, "invalid_token"),
        ("two cookies",             of(&[&format!("{own}; {own}")]),               401, "invalid_token"),
        ("two fields",              of(&[&own, &others]),                          401, "invalid_token"),
        ("another session's",       of(&[&others]),                                401, "invalid_token"),
        ("on another's host",       at(&other.minted.host),                        401, "invalid_token"),
        ("one label more",          at(&format!("a.{host}")),                      401, "invalid_token"),
        ("no token",                of(&[&holding("")]),                           401, "invalid_token"),
        ("an odd token",            of(&[&holding("a.b.c")]),                      401, "invalid_token"),
        ("a forged signature",      of(&[&forged]),                                401, "invalid_token"),
        ("another issuer's",        of(&[&of_provider]),                           401, "invalid_token"),
        ("the bearer alone",        of(&[]).bearer(&session.access_token),         401, "invalid_token"),
        ("a sibling",               by(&[("sec-fetch-site", "same-site")]),        403, "access_denied"),
        ("a stranger",              by(&[("sec-fetch-site", "cross-site")]),       403, "access_denied"),
        ("an odd site",             by(&[("sec-fetch-site", "same-origin, none")]), 403, "access_denied"),
        ("two sites",               by(&[("sec-fetch-site", "none"), ("sec-fetch-site", "none")]), 403, "access_denied"),
        ("a stranger's origin",     by(&[("origin", "https://evil.example")]),     403, "access_denied"),
        ("a sibling's origin",      by(&[("origin", &others_origin)]),             403, "access_denied"),
        ("another port",            by(&[("origin", &own_origin.replace("8443", "8444"))]), 403, "access_denied"),
        ("another scheme",          by(&[("origin", &own_origin.replace("http", "https"))]), 403, "access_denied"),
        ("a sandboxed frame",       by(&[("origin", "null")]),                     403, "access_denied"),
        ("the support desk",        by(&[("origin", SUPPORT_DESK)]),               403, "access_denied"),
    ];
    let mut findings = Findings::default();
    for (case, request, status, error) in cases {
        let answer = world.send(&request);
        findings.expect(case, &answer.refusal(), &(status, error.into()));
        describes(&mut findings, case, &answer);
    }
    #[rustfmt::skip]
    let good: [(&str, &[(&str, &str)]); 4] = [
        ("a page of its own",   &[("sec-fetch-site", "same-origin")]),
        ("a typed address",     &[("sec-fetch-site", "none")]),
        ("its own origin",      &[("origin", &own_origin)]),
        ("an old browser",      &[]),
    ];
    for (case, headers) in good {
        findings.expect(case, &world.send(&by(headers)).status, &200);
    }
}

/// A token for another resource is no session, wherever its host may be.
#[test]
fn an_ordinary_impersonation_is_no_session() {
    let world = start();
    let minted = mint(&world);
    let answer = world.exchange(&minted.parties.exchange_form(&minted.subject_token));
    let access_token = answer.member("access_token");
    let session = Session { minted, access_token, claims: json!({}) };
    assert_over(&world, &session, "a token for orders");
}

#[test]
fn a_session_is_over_when_it_has_been_ended_or_has_expired() {
    let world = start();
    let (ended, expiring) = (begin(&world), begin(&world));
    assert_eq!(world.send(&end_by_id(&ended.minted.id)).status, 204);
    assert_over(&world, &ended, "ended");
    assert_live(&world, &expiring);
    world.advance(3600);
    assert_over(&world, &expiring, "expired");
}

//! Requests that are not for the filter, with the member `paths`. The rules of this member are in
//! `tests/rules/paths.rs`.

use crate::pass_through::{compare, requests_of_others};
use testkit::Findings;
use testkit::gateway::{Gateway, exchange_form, exchange_request, mint_request};
use testkit::guarded::filter_configuration;
use testkit::http::Request;
use testkit::paths::{defaults, keycloaks, moved};

#[test]
fn requests_of_others_are_unchanged_at_configured_paths_and_at_default_ones() {
    let gateway = Gateway::lent(&filter_configuration().with("/paths", keycloaks()));
    let mut findings = Findings::default();
    for (case, request) in requests_of_others() {
        compare(
            &mut findings,
            &gateway,
            case,
            &Request { target: moved(&request.target), ..request },
        );
    }
    for path in defaults() {
        for request in [
            Request::get(path),
            Request::new("DELETE", &format!("{path}/0")),
            exchange_request(&exchange_form("sub_AAAA")),
            mint_request("u-1"),
        ] {
            let method = request.method.clone();
            let target = if method == "POST" { path.to_owned() } else { request.target.clone() };
            compare(&mut findings, &gateway, path, &Request { target, ..request });
        }
    }
}

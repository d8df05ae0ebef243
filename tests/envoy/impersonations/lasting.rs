//! A revocation outlives changes of the configuration.

use serde_json::json;

use super::{Parties, configuration, is_active, revoke, start};

#[test]
fn a_revocation_outlives_every_change_of_the_configuration() {
    let gateway = start(&configuration());
    let parties = Parties::new();
    let live = parties.begin(&gateway);
    let (outstanding, _) = parties.mint(&gateway);
    revoke(&gateway, &json!({"userId": parties.user}));
    let goes_on = Parties::new().begin(&gateway);
    for (case, changed) in [
        ("shorter lifetimes", configuration().with("/access_tokens/lifetime", "60s")),
        ("another list", configuration().with("/impersonations/capacity", 1)),
        ("no operators", configuration().without("/impersonations")),
        ("no change", configuration()),
    ] {
        gateway.update(&changed).unwrap_or_else(|log| panic!("{case}: {log}"));
        assert!(!is_active(&gateway, &live.access_token), "{case}");
        assert!(is_active(&gateway, &goes_on.access_token), "{case}");
        assert_eq!(parties.exchange(&gateway, &outstanding).status, 400, "{case}");
    }
}

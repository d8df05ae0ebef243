//! A revocation outlives changes of the configuration.

use serde_json::json;

use super::{Parties, begin, configuration, exchange, is_active, mint, revoke, start};

#[test]
fn a_revocation_outlives_every_change_of_the_configuration() {
    let world = start();
    let parties = Parties::new();
    let live = begin(&world, &parties);
    let (outstanding, _) = mint(&world, &parties);
    revoke(&world, &json!({"userId": parties.user}));
    let goes_on = begin(&world, &Parties::new());
    for (case, changed) in [
        ("shorter lifetimes", configuration().with("/access_tokens/lifetime", "60s")),
        ("another list", configuration().with("/impersonations/capacity", 1)),
        ("no operators", configuration().without("/impersonations")),
        ("no change", configuration()),
    ] {
        world.update(&changed).unwrap();
        assert!(!is_active(&world, &live), "{case}");
        assert!(is_active(&world, &goes_on), "{case}");
        assert_eq!(exchange(&world, &parties, &outstanding).status, 400, "{case}");
    }
}

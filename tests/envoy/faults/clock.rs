//! The wall clock is set while Envoy runs: the age of an entry with a later time is unknown.

use jsonwebtoken::Algorithm;

use super::echoing_gateway;
use testkit::gateway::in_front_of;
use testkit::keys::Key;
use testkit::services::Issuer;
use testkit::wait_for;

const HOUR: i64 = 3600;

#[test]
fn key_sets_are_fetched_anew_when_the_clock_was_set_back() {
    let issuer = Issuer::start("keys");
    let services = [&echoing_gateway(), &issuer.service];
    let bootstrap = in_front_of(&services, &issuer.only_minters("300s")).workers(2);
    let envoy = bootstrap.with_clock().start();
    wait_for("the keys", || (envoy.send(&issuer.mint(&issuer.key)).status == 201).then_some(()));
    let rotated = Key::generate(Algorithm::EdDSA, "rotated");
    issuer.publish(&[&rotated]);
    envoy.clock().set(-HOUR);
    for connection in &mut envoy.connect_to_every_worker() {
        wait_for("the new key", || {
            (connection.send(&issuer.mint(&rotated)).status == 201).then_some(())
        });
    }
    wait_for("the age of the keys", || {
        envoy.metric("impersonation_key_set_age_seconds").filter(|age| *age < 60)
    });
}

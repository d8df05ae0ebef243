//! A running Envoy changes from shared data to etcd: outstanding tokens survive.

use std::sync::Barrier;
use std::thread;

use testkit::configuration::Configuration;
use testkit::etcd::Etcd;
use testkit::gateway::{Gateway, Options, exchange_form, exchange_request};
use testkit::wait_for;

use super::{assert_unavailable, cluster, configuration, events, gateway_at};

#[test]
fn tokens_of_shared_data_are_good_for_one_exchange_after_the_change_to_etcd() {
    const CONTENDERS: usize = 16;
    let etcd = Etcd::start();
    let clusters = vec![cluster(etcd.address)];
    let options = Options { concurrency: 2, clusters, ..Options::default() };
    let gateway = Gateway::try_start(&Configuration::default(), &options).unwrap();
    let other = gateway_at(etcd.address, &configuration());
    let [exchanged, spent_before, contended, kept] =
        ["u-1", "u-2", "u-3", "u-4"].map(|user| gateway.mint(user));
    gateway.assert_spendable(&spent_before, "before the change");

    gateway.update(&configuration()).unwrap();
    // Another Envoy does not know the token, and asking does not spend it.
    assert_eq!(
        other.exchange(&exchange_form(&exchanged)).refusal(),
        (400, "invalid_request".into())
    );
    assert_eq!(events(&other).pop().unwrap()["reason"], "subject_token_unknown");
    gateway.assert_spendable(&exchanged, "minted before the change");
    for token in [&exchanged, &spent_before] {
        gateway.assert_spent(token, "presented again after the change");
        assert_eq!(events(&gateway).pop().unwrap()["reason"], "subject_token_spent");
    }
    let start = Barrier::new(CONTENDERS);
    let request = exchange_request(&exchange_form(&contended));
    let contend = || {
        start.wait();
        gateway.connect().try_send(&request).map_or(0, |answer| answer.status)
    };
    let mut statuses: Vec<_> = thread::scope(|scope| {
        let contenders: Vec<_> = (0..CONTENDERS).map(|_| scope.spawn(contend)).collect();
        contenders.into_iter().map(|contender| contender.join().unwrap()).collect()
    });
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (200, &[400; CONTENDERS - 1][..]));
    assert_eq!(etcd.tokens().len(), 0, "tokens that were minted before are not in etcd");

    // Only shared data has the token, but only etcd has the later revocations.
    etcd.kill();
    assert_unavailable(&gateway.exchange(&exchange_form(&kept)), "without etcd");
    etcd.restart();
    wait_for("etcd to be in use again", || {
        (gateway.exchange(&exchange_form(&kept)).status == 200).then_some(())
    });

    let token = gateway.mint("u-5");
    assert_eq!(token.len(), "sub_".len() + 75, "new ones have no slot: {token}");
    assert_eq!(etcd.tokens().len(), 1);
    assert_eq!(other.exchange(&exchange_form(&token)).status, 200);
}

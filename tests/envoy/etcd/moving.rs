//! A running Envoy changes its store: what was issued before has ended.

use serde_json::{Value, json};

use testkit::bootstrap::{Bootstrap, Cluster, Filter, Listener};
use testkit::configuration::Configuration;
use testkit::etcd::Etcd;
use testkit::gateway::{exchange_form, exchange_request, mint_request, minted};
use testkit::guarded::{
    API, Begun, Guarded, Parties, filter_configuration, gateway_listener, guard_configuration,
    guarded_listener,
};
use testkit::http::Request;
use testkit::server::{Server, as_asked};
use testkit::wait_for;

use super::cluster;

/// The listeners of a filter and a guard with this store.
fn listeners(store: &Value) -> [Listener; 2] {
    let Configuration(mut filter) = filter_configuration();
    let mut guard = guard_configuration(&json!({}));
    for configuration in [&mut filter, &mut guard] {
        configuration["store"] = store.clone();
    }
    let filter = Filter::from(&Configuration(filter));
    [gateway_listener(filter).watched(), guarded_listener(&guard).watched()]
}

fn status(guarded: &Guarded, begun: &Begun) -> u16 {
    guarded.send_as(&begun.access_token, Request::get("/orders")).status
}

#[test]
fn a_change_of_store_ends_what_was_issued_before() {
    let etcd = Etcd::start();
    let stores = [json!({"shared_data": {}}), json!({"etcd": {"cluster": "etcd"}})];
    let api = Server::start(API);
    api.answer(as_asked);
    let [filter, guard] = listeners(&stores[0]);
    let bootstrap = Bootstrap::default().listener(guard).listener(filter).workers(2);
    let to_api = Cluster::new(API, api.address).as_downstream();
    let envoy = bootstrap.cluster(to_api).cluster(cluster(etcd.address)).start();
    let guarded = Guarded { envoy, api };
    for (changes, store) in [(1, &stores[1]), (2, &stores[0])] {
        let parties = Parties::new();
        let [live, ended] = [&Parties::new(), &parties].map(|parties| guarded.begin(parties));
        guarded.revoke(&json!({"userId": parties.user}));
        assert_eq!((status(&guarded, &live), status(&guarded, &ended)), (200, 401), "{store}");
        let outstanding = minted(&guarded.send_to_filter(&mint_request("u-1")));

        for listener in listeners(store) {
            guarded.envoy.update(listener).unwrap();
        }
        let refused = guarded.send_to_filter(&exchange_request(&exchange_form(&outstanding)));
        assert_eq!(refused.refusal(), (400, "invalid_request".into()), "{store}");
        let unknown = guarded.envoy.log().matches("\"reason\":\"subject_token_unknown\"").count();
        assert_eq!(unknown, changes, "{store}");
        let anew = wait_for("the new store", || guarded.try_begin(&Parties::new()));
        wait_for("the new store to be known", || (status(&guarded, &anew) == 200).then_some(()));
        assert_eq!((status(&guarded, &live), status(&guarded, &ended)), (401, 401), "{store}");
    }
}

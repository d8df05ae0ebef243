//! Wycheproof's signatures, verified by the filter's verifiers in the sandbox and by Envoy's own
//! cryptography. The native tests are in `crates/core/src/jose/tests.rs`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use testkit::artifacts::TEST_PLUGIN;
use testkit::bootstrap::{Bootstrap, Filter, Listener, Plugin};
use testkit::configuration::SIGNING_KEY;
use testkit::http::Request;
use testkit::vectors::Vector;
use testkit::{Findings, vectors};

#[test]
fn sandbox_and_host_judge_as_wycheproof_does() {
    let mut filter = Filter::from(Plugin::Text(SIGNING_KEY.private_jwk().to_string()));
    filter.module = Some(TEST_PLUGIN.clone());
    let listener = Listener::new("verifier").filter(filter).answer("/", "not reached");
    let envoy = Bootstrap::default().listener(listener).start();
    let mut connection = envoy.connect();

    let mut findings = Findings::default();
    for vectors in vectors::all().chunks(100) {
        let cases: Vec<_> = vectors.iter().map(case).collect();
        let body = Value::from(cases).to_string();
        let answer = connection.send(&Request::post("/").body(body));
        assert_eq!(answer.status, 200, "{}", envoy.log());
        let verdicts = answer.json();
        assert_eq!(verdicts.as_array().unwrap().len(), vectors.len());
        for (vector, verdict) in vectors.iter().zip(verdicts.as_array().unwrap()) {
            for by in ["sandbox", "host"] {
                findings.expect(
                    format!("{}: {by}", vector.name),
                    &verdict[by],
                    &json!(vector.good),
                );
            }
            let can = !matches!(vector.algorithm, "EdDSA" | "PS256");
            if vector.good || !can {
                findings.expect(format!("{}: asked", vector.name), &verdict["asked"], &json!(can));
            }
        }
    }
}

fn case(vector: &Vector) -> Value {
    json!({
        "jwk": vector.jwk,
        "alg": vector.algorithm,
        "message": URL_SAFE_NO_PAD.encode(&vector.message),
        "signature": URL_SAFE_NO_PAD.encode(&vector.signature),
    })
}

//! The steps that most rules begin with.

use serde_json::{Value, json};

use crate::world::World;
use testkit::gateway::{exchange_form, exchange_request, mint_request, minted};
use testkit::http::{Answer, Form};

/// An `http_uri` that reaches a server by its cluster.
pub(crate) fn http_uri_of(cluster: &str, path: &str) -> Value {
    let uri = format!("http://{}.example.com{path}", cluster.replace('_', "-"));
    json!({"uri": uri, "cluster": cluster, "timeout": "10s"})
}

impl World {
    /// Mints a subject token for `u-1`.
    pub(crate) fn mint(&self) -> String {
        minted(&self.send(&mint_request("u-1")))
    }

    pub(crate) fn exchange(&self, form: &Form) -> Answer {
        self.send(&exchange_request(form))
    }

    pub(crate) fn assert_spent(&self, subject_token: &str, case: &str) {
        let answer = self.exchange(&exchange_form(subject_token));
        assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{case}: {answer:?}");
    }

    /// Returns the last line of the audit log.
    pub(crate) fn last_event(&self) -> Value {
        self.audit().pop().expect("a line in the audit log")
    }
}

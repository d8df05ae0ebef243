//! Clients with a secret, and public clients. Clients with keys are tested in tests/envoy.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::*;
use crate::config::ClientType;
use crate::fakes::FakeHost;
use crate::secret::Digest;
use crate::step::{Step, Task};

fn client(client_id: &str, r#type: ClientType, secrets: &[&str]) -> Rc<Client> {
    Rc::new(Client {
        client_id: client_id.into(),
        r#type,
        authentication: match r#type.is_confidential() {
            true if client_id.ends_with("-both") => {
                vec![
                    ClientAuthentication::ClientSecretPost,
                    ClientAuthentication::ClientSecretBasic,
                ]
            }
            true if client_id.ends_with("-post") => vec![ClientAuthentication::ClientSecretPost],
            true => vec![ClientAuthentication::ClientSecretBasic],
            false => vec![ClientAuthentication::None],
        },
        secret_digests: secrets.iter().map(|secret| Digest::of(secret.as_bytes())).collect(),
        keys: None,
        certificate_name: None,
        token_binding: None,
        resources: None,
        actor_token_required: false,
    })
}

fn run(form: &str, authorization: Option<&str>) -> Result<String, ClientAuthError> {
    let clients = [
        client("portal", ClientType::TraditionalWeb, &["old", "n:e w%"]),
        client("console", ClientType::SinglePage, &[]),
        client("raw", ClientType::TraditionalWeb, &["a+b%20=:&é c", "100%sure"]),
        client("a+b", ClientType::TraditionalWeb, &["shared", "plus"]),
        client("a b", ClientType::TraditionalWeb, &["shared", "space", "in sp"]),
        client("c%2Bd", ClientType::TraditionalWeb, &["s"]),
        client("e+f", ClientType::SinglePage, &[]),
        client("desk-post", ClientType::TraditionalWeb, &["old", "n:e w%"]),
        client("desk-both", ClientType::TraditionalWeb, &["old"]),
    ];
    let find = move |id: &str| clients.iter().find(|client| client.client_id == id).cloned();
    let (form, authorization) = (form.to_owned(), authorization.map(str::to_owned));
    let step = Task::start(Rc::new(FakeHost::default()), None, |context| async move {
        let form = Form::parse(form.as_bytes()).unwrap().without_empty();
        let authorization = authorization.as_deref().map(str::as_bytes);
        let credentials = Credentials { form: &form, authorization, certificate: None };
        let clients = Clients::new([].into_iter(), |_| panic!("no client has keys"));
        clients.authenticate(&context, credentials, find).await
    });
    let Step::Done(verdict) = step else { panic!("it calls") };
    verdict.map(|client| client.client_id.clone())
}

fn basic(credentials: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(credentials))
}

/// Name and secret must be right in one reading. Mixing the readings is refused.
#[test]
fn basic_is_read_as_it_is_and_form_decoded() {
    use ClientAuthError::*;
    #[rustfmt::skip]
    let cases = [
        ("as it is",                         "",                "raw:a+b%20=:&é c",                   Ok("raw")),
        ("encoded",                          "",                "raw:a%2Bb%2520%3D%3A%26%C3%A9+c",    Ok("raw")),
        ("encoded in part",                  "",                "raw:a%2Bb%2520=:&é c",               Ok("raw")),
        ("decoded once too often",           "",                "raw:a b =:&é c",                     Err(Failed)),
        ("encoded twice",                    "",                "raw:a%252Bb%252520=:&é c",           Err(Failed)),
        ("no valid encoding",                "",                "raw:100%sure",                       Ok("raw")),
        ("no valid encoding, and encoded",   "",                "raw:100%25sure",                     Ok("raw")),
        ("nothing but what is decodable",    "",                "raw:100%",                           Err(Failed)),
        ("the name as it is",                "",                "a+b:plus",                           Ok("a+b")),
        ("the name encoded",                 "",                "a%2Bb:plus",                         Ok("a+b")),
        ("the other name, encoded",          "",                "a+b:space",                          Ok("a b")),
        ("the other name as it is",          "",                "a b:space",                          Ok("a b")),
        ("both readings are right",          "",                "a+b:shared",                         Ok("a+b")),
        ("both, the form says which",        "client_id=a+b",   "a+b:shared",                         Ok("a b")),
        ("both, the form says the other",    "client_id=a%2Bb", "a+b:shared",                         Ok("a+b")),
        ("right, but the form says another", "client_id=a+b",   "a+b:plus",                           Err(Failed)),
        ("the form agrees with neither",     "client_id=a%2Bb", "a b:space",                          Err(TwoClients)),
        ("a name that is the same in both",  "",                "a b:in+sp",                          Ok("a b")),
        ("name as it is, secret encoded",    "",                "c%2Bd:%73",                          Err(Failed)),
        ("a name that looks encoded",        "",                "c%2Bd:s",                            Ok("c%2Bd")),
        ("a public client as it is",         "",                "e+f:",                               Ok("e+f")),
        ("a public client, encoded",         "",                "e%2Bf:",                             Ok("e+f")),
        ("a public client with a secret",    "",                "e+f:+",                              Err(Failed)),
        ("an unknown name, no valid encoding", "",              "100%:100%sure",                      Err(Failed)),
    ];
    for (case, form, credentials, expected) in cases {
        assert_eq!(run(form, Some(&basic(credentials))), expected.map(str::to_owned), "{case}");
    }
}

#[test]
fn credentials_that_are_not_utf_8_are_refused() {
    for credentials in [&b"raw:\xe9"[..], b"r\xe9w:a", b"\xff:\xff"] {
        let header = format!("Basic {}", BASE64_STANDARD.encode(credentials));
        assert_eq!(run("", Some(&header)), Err(ClientAuthError::Malformed));
    }
}

#[test]
fn a_client_authenticates_by_its_configured_methods_only() {
    use ClientAuthError::*;
    #[rustfmt::skip]
    let cases = [
        ("secret",                  "client_id=portal", Some(basic("portal:old")),          Ok("portal")),
        ("the other secret",        "",                 Some(basic("portal:n%3Ae+w%25")),   Ok("portal")),
        ("scheme in lower case",    "",                 Some(basic("portal:old").replace("Basic", "basic")), Ok("portal")),
        ("public",                  "client_id=console", None,                              Ok("console")),
        ("public, empty secret",    "client_id=console", Some(basic("console:")),           Ok("console")),
        ("public, some secret",     "client_id=console", Some(basic("console:x")),          Err(Failed)),
        ("wrong secret",            "client_id=portal", Some(basic("portal:new")),          Err(Failed)),
        ("empty secret",            "client_id=portal", Some(basic("portal:")),             Err(Failed)),
        ("no secret",               "client_id=portal", None,                               Err(CredentialsMissing)),
        ("in the form instead",     "client_id=portal&client_secret=old", None,             Err(AnotherMethod)),
        ("wrong, in the form",      "client_id=portal&client_secret=new", None,             Err(Failed)),
        ("secret in both",          "client_secret=old", Some(basic("portal:old")),         Err(TwoMethods)),
        ("in both, for another",    "client_id=desk-post&client_secret=old", Some(basic("portal:old")), Err(TwoMethods)),
        ("empty in the form",       "client_id=&client_secret=", Some(basic("portal:old")), Ok("portal")),
        ("post",                    "client_id=desk-post&client_secret=old", None,          Ok("desk-post")),
        ("post, the other secret",  "client_id=desk-post&client_secret=n%3Ae+w%25", None,   Ok("desk-post")),
        ("post, wrong",             "client_id=desk-post&client_secret=new", None,          Err(Failed)),
        ("post, empty",             "client_id=desk-post&client_secret=", None,             Err(CredentialsMissing)),
        ("post, none",              "client_id=desk-post", None,                            Err(CredentialsMissing)),
        ("post, by Basic",          "",                  Some(basic("desk-post:old")),      Err(AnotherMethod)),
        ("post, by Basic, wrong",   "",                  Some(basic("desk-post:new")),      Err(Failed)),
        ("post, both",              "client_id=desk-post&client_secret=old", Some(basic("desk-post:old")), Err(TwoMethods)),
        ("post, no name",           "client_secret=old", None,                              Err(NoClientId)),
        ("both, by Basic",          "",                  Some(basic("desk-both:old")),      Ok("desk-both")),
        ("both, in the form",       "client_id=desk-both&client_secret=old", None,          Ok("desk-both")),
        ("both, at once",           "client_id=desk-both&client_secret=old", Some(basic("desk-both:old")), Err(TwoMethods)),
        ("both, wrong",             "client_id=desk-both&client_secret=new", None,          Err(Failed)),
        ("both, none",              "client_id=desk-both", None,                            Err(CredentialsMissing)),
        ("unknown, in the form",    "client_id=nobody&client_secret=old", None,             Err(Failed)),
        ("public, empty, in the form", "client_id=console&client_secret=", None,            Ok("console")),
        ("public, some, in the form", "client_id=console&client_secret=x", None,            Err(Failed)),
        ("unknown client",          "client_id=nobody", None,                               Err(Failed)),
        ("unknown, with a secret",  "",                 Some(basic("nobody:old")),          Err(Failed)),
        ("two clients",             "client_id=console", Some(basic("portal:old")),         Err(TwoClients)),
        ("nobody",                  "",                 None,                               Err(NoClientId)),
        ("empty",                   "client_id=",       None,                               Err(NoClientId)),
        ("another scheme",          "client_id=portal", Some("Bearer x".into()),            Err(Malformed)),
        ("no colon",                "",                 Some(basic("portal")),              Err(Malformed)),
        ("no base64",               "",                 Some("Basic ###".into()),           Err(Malformed)),
    ];
    for (case, form, authorization, expected) in cases {
        assert_eq!(run(form, authorization.as_deref()), expected.map(str::to_owned), "{case}");
    }
}

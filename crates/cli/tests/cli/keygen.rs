//! Tests of `keygen`: the keys sign, the key sets verify, and only the owner can read the files.

use serde_json::{Value, json};

use crate::check::{check, plugin};
use crate::{command, file, fresh, stdout};

#[test]
fn a_generated_key_signs_and_its_set_verifies() {
    for alg in ["EdDSA", "Ed25519", "ES256", "ES384", "ps256"] {
        let output = command(&["keygen", "--alg", alg]).output().unwrap();
        assert!(output.status.success(), "{alg}");
        // As `$(…)` reads it: the key alone. The public half is beside it.
        let private: Value = serde_json::from_str(stdout(&output)).unwrap();
        let set: Value = serde_json::from_slice(&output.stderr).unwrap();
        let public = &set["keys"][0];
        assert_eq!(set["keys"].as_array().unwrap().len(), 1, "{alg}");
        for member in ["kid", "alg", "use", "kty", "crv", "x", "y", "n", "e"] {
            assert_eq!(private.get(member), public.get(member), "{alg} {member}");
        }
        for member in ["d", "p", "q", "dp", "dq", "qi"] {
            assert_eq!(public.get(member), None, "{alg} {member}");
            assert_eq!(
                private.get(member).is_some(),
                member == "d" || alg == "ps256",
                "{alg} {member}"
            );
        }
        assert!(private["alg"].as_str().unwrap().eq_ignore_ascii_case(alg));

        // Use the private key as an operator does, and the key set as an issuer publishes it.
        let mut plugin = plugin();
        plugin["signing_keys"] = json!([{"jwk": private}]);
        plugin["subject_tokens"]["authentication"]["jwt"][0]["local_jwks"]["inline_string"] =
            json!(set.to_string());
        let checked = check(&file("plugin.json", &plugin.to_string()), &[]);
        assert_eq!(checked.status, Some(0), "{alg}: {:?}", checked.lines);
    }
}

#[test]
fn a_key_id_is_the_given_one_or_the_thumbprint() {
    let kid = |arguments: &[&str]| {
        let output = command(&["keygen", "--alg", "ES256"]).args(arguments).output().unwrap();
        let key: Value = serde_json::from_str(stdout(&output)).unwrap();
        key["kid"].as_str().unwrap().to_owned()
    };
    assert_eq!(kid(&["--kid", "2026-11"]), "2026-11");
    assert_eq!(kid(&[]).len(), 43);
    assert_ne!(kid(&[]), kid(&[]));
}

#[test]
fn key_files_are_private_and_never_overwritten() {
    let [private, public] = ["key.json", "jwks.json"].map(fresh);
    let [private, public] = [&private, &public].map(|path| path.to_str().unwrap());
    let arguments = ["keygen", "--alg", "EdDSA", "--out", private, "--public-out", public];
    let output = command(&arguments).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
    let read =
        |path| serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (key, set) = (read(private), read(public));
    assert_eq!(key["x"], set["keys"][0]["x"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(private).unwrap().permissions().mode() & 0o777, 0o600);
    }

    let output = command(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(read(private), key);

    // With a file for the key only, standard output has nothing.
    let other = fresh("key.json");
    let output =
        command(&["keygen", "--alg", "EdDSA", "--out", other.to_str().unwrap()]).output().unwrap();
    assert_eq!(stdout(&output), "");
    assert!(output.stderr.starts_with(b"{\"keys\":"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (unread, pipe) = std::io::pipe().unwrap();
    drop(unread);
    let output = command(&["keygen", "--alg", "EdDSA"]).stdout(pipe).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.starts_with(b"{\"keys\":"));
}

#[test]
fn impossible_keys_are_refused() {
    #[rustfmt::skip]
    let cases: &[&[&str]] = &[
        &["keygen"],
        &["keygen", "--alg", "HS256"],
        &["keygen", "--alg", "none"],
        &["keygen", "--alg", "RS256", "--bits", "1024"],
        &["keygen", "--alg", "RS256", "--bits", "8192"],
        &["keygen", "--alg", "EdDSA", "--kid", ""],
    ];
    for arguments in cases {
        let output = command(arguments).output().unwrap();
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""), "{arguments:?}");
    }
}

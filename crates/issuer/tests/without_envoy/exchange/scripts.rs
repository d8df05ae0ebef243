//! Scripts are compiled while the configuration is read.

use impersonation_issuer::issuer;
use serde_json::json;

use super::setting::configuration;

#[test]
fn a_script_that_does_not_compile_is_a_problem_with_its_place() {
    #[rustfmt::skip]
    let cases = [
        ("a syntax error",   "const a = 1;\n  let = ;",  "line 2"),
        ("another function", "const f = () => ({})", "line 1, column 21: the script declares no function "),
    ];
    for (case, script, expected) in cases {
        for (member, function) in [
            ("custom_claims", "getCustomJwtClaims"),
            ("authorize_subject_token", "authorizeSubjectToken"),
        ] {
            let mut value = configuration();
            value[member] = json!({ "script": script });
            let problems = issuer::check(&value, &|_| None).err().unwrap().problems;
            let [problem] = &*problems else { panic!("{case}: {problems:?}") };
            assert_eq!(problem.path, format!("{member}.script"), "{case}");
            let expected = match case {
                "another function" => format!("{expected}{function}"),
                _ => expected.to_owned(),
            };
            assert!(problem.expected.starts_with(&expected), "{case}: {problem}");
        }
    }
}

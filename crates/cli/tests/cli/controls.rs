//! Tests of `report --controls`: the evidence has the report's counts, in the order of the
//! auditors' questions, and says what is missing.

use serde_json::{Value, json};

use crate::report::{TXN, in_envoys_log, log, night, waiting};
use crate::{stdout, with_input};

fn controls(log: &str, arguments: &[&str]) -> String {
    let arguments = [&["report", "--controls"], arguments].concat();
    let output = with_input(&arguments, log.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(&output).to_owned()
}

fn loaded(digest: &str, time: &str) -> String {
    let line = json!({
        "event": "configuration.loaded", "version": "0.1.0", "digest": digest,
        "callers": ["integrator-backend"], "approvals_required": 1,
    });
    in_envoys_log(&line, time)
}

#[test]
fn the_evidence_answers_in_the_auditors_order() {
    let mut lines = night();
    lines.extend(waiting(TXN, "approval.given"));
    // Two Envoys, or two starts, have the same configuration.
    lines.extend([loaded("aa", "20:00:00.000"), loaded("aa", "20:30:00.000")]);
    lines.push(loaded("bb", "20:59:00.000"));
    let text = controls(&log(&lines), &[]);
    let titles =
        ["Who could", "Who did", "Who approved", "What was refused", "What was ended", "Gaps"];
    let places: Vec<_> = titles.map(|title| text.find(&format!(". {title}\n")).unwrap()).to_vec();
    assert!(places.is_sorted(), "{text}");
    assert!(text.contains("SOC 2 CC6.1") && text.contains("HIPAA 164.312(d)"), "{text}");
    assert_eq!(text.matches("configuration {").count(), 2, "{text}");
    assert!(text.contains("agent-1: 1 users"), "{text}");
    assert!(text.contains("1  approved by dana"), "{text}");
    assert!(text.contains("refused a call: rule"), "{text}");
    assert!(text.contains("ended: "), "{text}");
    assert!(!text.contains("no configuration.loaded"), "{text}");
}

#[test]
fn the_evidence_counts_as_the_report_does() {
    let log = log(&night());
    let evidence: Value = serde_json::from_str(&controls(&log, &["--json"])).unwrap();
    let report = crate::report::json_of(&log, &[]);
    assert_eq!(evidence["totals"], report["totals"]);
    let sum = |member: &str| -> u64 {
        evidence["evidence"][member].as_object().unwrap().values().filter_map(Value::as_u64).sum()
    };
    assert_eq!(report["totals"]["mints"], sum("callers"));
    assert_eq!(report["totals"]["ended"], sum("ends"));
    let actors = evidence["evidence"]["actors"].as_object().unwrap();
    let calls: u64 = actors.values().map(|actor| actor["calls"].as_u64().unwrap()).sum();
    assert_eq!(report["totals"]["calls"], calls);
}

#[test]
fn the_evidence_names_its_gaps() {
    let audit: Vec<_> =
        night().into_iter().filter(|line| !line.starts_with(r#"{"time""#)).collect();
    let text = controls(&log(&audit), &[]);
    for gap in ["no configuration.loaded", "no access log: allowed calls are missing"] {
        assert!(text.contains(gap), "{gap}: {text}");
    }
}

#[test]
fn names_cannot_imitate_a_line_of_the_evidence() {
    let forged = "agent\n6. Gaps\u{202e}";
    let line = json!({
        "event": "token_exchange.succeeded", "subject_token_id": TXN, "user_id": "user-42",
        "actor_id": forged,
    });
    let text = controls(&log(&[in_envoys_log(&line, "21:00:00.000")]), &[]);
    assert!(text.contains(r"agent\u{a}6. Gaps\u{202e}: 1 users"), "{text}");
}

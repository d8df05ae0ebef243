//! The controls that auditors ask for by number. `report --controls` and docs/evidence.md take them
//! from here.

/// A question of an auditor, in the order in which `report --controls` answers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    Could,
    Did,
    Approved,
    Refused,
    Ended,
    Whole,
}

use Question::{Approved, Could, Did, Ended, Refused, Whole};

pub(super) const QUESTIONS: [Question; 6] = [Could, Did, Approved, Refused, Ended, Whole];

impl Question {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Could => "Who could",
            Did => "Who did",
            Approved => "Who approved",
            Refused => "What was refused",
            Ended => "What was ended",
            Whole => "Gaps",
        }
    }

    /// The events that answer the question.
    pub(super) const fn events(self) -> &'static [&'static str] {
        match self {
            Could => &["configuration.loaded"],
            Did => &["subject_token.created", "token_exchange.succeeded", "a call"],
            Approved => &["approval.given", "approval.denied", "break_glass.used"],
            Refused => &["….refused", "subject_token.replayed"],
            Ended => &["impersonation.revoked", "impersonations.ended"],
            Whole => &["a checkpoint"],
        }
    }
}

/// One control: what the product does for it, the questions whose answers prove it, and what
/// remains with the operator.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) standard: &'static str,
    pub(super) number: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "only the manual has the product's part"))]
    pub(super) product: &'static str,
    pub(super) questions: &'static [Question],
    #[cfg_attr(not(test), expect(dead_code, reason = "only the manual has the operator's part"))]
    pub(super) operator: &'static str,
}

const fn control(
    [standard, number]: [&'static str; 2],
    questions: &'static [Question],
    product: &'static str,
    operator: &'static str,
) -> Control {
    Control { standard, number, product, questions, operator }
}

#[rustfmt::skip]
pub(super) const CONTROLS: [Control; 21] = [
    control(["SOC 2", "CC6.1"], &[Could, Refused],
        "only named backends mint, only named clients exchange, and the guard limits each call",
        "access to the backends, to Envoy and to the keys"),
    control(["SOC 2", "CC6.2"], &[Approved, Ended],
        "a person's sign-in is checked at each exchange; a logout or a lost account ends what they began",
        "joiners and leavers in the identity provider"),
    control(["SOC 2", "CC6.3"], &[Could, Approved],
        "bounds, `protected_users`, approvals by another person, read-only by default",
        "the rules, and reviewing them"),
    control(["SOC 2", "CC7.2"], &[Refused, Whole],
        "alarms for a replay and break glass, metrics, detections",
        "somebody who answers them"),
    control(["ISO 27001", "A.5.15"], &[Could],
        "one configuration says who may act as whom",
        "the policy behind it"),
    control(["ISO 27001", "A.5.16"], &[Did],
        "each impersonation names the person who acts, the user, the backend and the client",
        "one account for each person"),
    control(["ISO 27001", "A.5.17"], &[Refused],
        "secrets are stored as hashes, tokens are spent once, and can be bound to keys",
        "handing out and changing secrets"),
    control(["ISO 27001", "A.5.18"], &[Approved, Ended],
        "rights last minutes, and end by an operator, a logout or a security event",
        "reviews of who may approve"),
    control(["ISO 27001", "A.8.2"], &[Could, Approved],
        "acting as a user is a right for one task, with a reason and an approval",
        "who counts as privileged"),
    control(["ISO 27001", "A.8.15"], &[Did, Whole],
        "each step and each call leaves a line without secrets; checkpoints show changes",
        "keeping the logs, and the seal's key away from Envoy"),
    control(["PCI DSS", "7"], &[Could, Refused],
        "need to know: bounds at the mint, rules at the guard, and no writes unless a rule allows them",
        "rules for paths with card data"),
    control(["PCI DSS", "8"], &[Did, Ended],
        "no shared accounts: the user's password is never used, and the person who acts is named",
        "sign-in with several factors (`actor_tokens.acr_values`)"),
    control(["PCI DSS", "10.2"], &[Did, Refused],
        "who, what, when, from where, with which outcome, for each access",
        "an access log like that of envoy.yaml"),
    control(["PCI DSS", "10.3"], &[Whole],
        "`export --seal`, `verify`",
        "who may read and delete the logs"),
    control(["PCI DSS", "10.4"], &[Refused, Whole],
        "detections, and this report",
        "reading them daily"),
    control(["PCI DSS", "10.5"], &[Whole],
        "a chain that shows what is missing in an archive",
        "keeping twelve months"),
    control(["HIPAA", "164.312(a)"], &[Could, Ended],
        "unique names, break glass as the emergency access, sessions that end",
        "who may break the glass"),
    control(["HIPAA", "164.312(b)"], &[Did, Whole],
        "the audit lines and the report on one user",
        "examining them"),
    control(["HIPAA", "164.312(d)"], &[Did, Refused],
        "a person's token from the identity provider, a client's secret, key or certificate",
        "the strength of the sign-in"),
    control(["GDPR", "32(1)"], &[Could, Did],
        "least rights, short tokens, and a report for the user who asks",
        "the assessment of the risk"),
    control(["GDPR", "32(4)"], &[Approved, Did],
        "nobody acts without an instruction: `required_context` and approvals",
        "what the people are told"),
];

#[cfg(test)]
mod tests {
    use testkit::generated::{between, hold};

    use super::{CONTROLS, QUESTIONS};

    #[test]
    fn evidence_in_step_the_manual_has_the_controls() {
        let mut table = String::new();
        for control in &CONTROLS {
            let questions: Vec<_> = control.questions.iter().map(|one| one.title()).collect();
            table.push_str(&format!(
                "| {} {} | {} | {} | {} |\n",
                control.standard,
                control.number,
                control.product,
                questions.join("; "),
                control.operator
            ));
        }
        let mut proofs = String::new();
        for question in QUESTIONS {
            let quoted = |event: &&str| match event.contains(' ') {
                true => (*event).to_owned(),
                false => format!("`{event}`"),
            };
            let events: Vec<_> = question.events().iter().map(quoted).collect();
            proofs.push_str(&format!("| {} | {} |\n", question.title(), events.join(", ")));
        }
        hold("docs/evidence.md", |page| {
            let page = between(
                page,
                "| control | the product | proof | yours |\n|---|---|---|---|\n",
                &table,
                "\nThe product proves",
            );
            between(&page, "| proof | events |\n|---|---|\n", &proofs, "\nThis table maps")
        });
    }
}

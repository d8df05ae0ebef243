//! Checks of the filters: who may mint, and that each subject token is exchanged once.

use impersonation_core::secret::Secret;
use serde_json::json;

use super::deployment::{Answer, Deployment};
use super::report::{Outcome, Report};
use crate::Failure;

/// Runs the checks at every filter.
pub(super) fn check(deployment: &Deployment<'_>, report: &mut Report) -> Result<(), Failure> {
    let body = json!({"userId": deployment.settings.user});
    for at in &deployment.filters {
        let answer = deployment.mint_with(at, None, &body);
        report.add(
            &at.address,
            "a mint without an access token is refused",
            refused(answer, &[401]),
        );

        let token = deployment.mint()?;
        let wrong = Secret::new("not-the-secret".to_owned());
        let answer = deployment.exchange_as(at, &token, Some(&wrong));
        let check = "an exchange with a wrong secret is refused";
        report.add(&at.address, check, refused(answer, &[400, 401]));

        let answer = deployment.exchange(at, &token);
        let outcome = match answer {
            Ok(answer) if answer.status == 200 => Outcome::Holds,
            Ok(answer) => Outcome::Fails(format!("answered {}", answer.in_short())),
            Err(Failure(message)) => Outcome::Fails(message),
        };
        report.add(&at.address, "a refused exchange leaves the token unspent", outcome);

        for again in &deployment.filters {
            let answer = deployment.exchange(again, &token);
            let check = match again.address == at.address {
                true => "a spent token is not exchanged again".to_owned(),
                false => format!("a token spent at {} is not exchanged again", at.address),
            };
            report.add(&again.address, check, refused(answer, &[400]));
        }
    }
    Ok(())
}

fn refused(answer: Result<Answer, Failure>, statuses: &[u16]) -> Outcome {
    match answer {
        Ok(answer) if statuses.contains(&answer.status) => Outcome::Holds,
        Ok(answer) => Outcome::Fails(format!("answered {}", answer.in_short())),
        Err(Failure(message)) => Outcome::Fails(message),
    }
}

//! Names with their issuer: one name means one person.
//!
//! Two issuers may both know an `agent-7`. Therefore each issuer has a prefix of its own, in all
//! lists of the configuration, which the filter puts before every name that the issuer gives.
//! Bounds, rules, records and logs only ever see the name with its prefix.
//!
//! A prefix alone does not keep two issuers apart: the issuer without a prefix could name a user
//! `partner:agent-7`, and an issuer with the prefix `p` could name a user `artner:agent-7`.
//! Therefore a name is refused if it begins with a longer prefix of another issuer. Of all prefixes
//! that an accepted name begins with, the longest belongs to its issuer, so no other issuer can
//! have given the name.
//!
//! The introspection endpoint and the userinfo endpoint count as issuers too. They have a prefix of
//! their own, or that of the issuer whose tokens they know. An answer about another issuer's token
//! is refused.

use super::StatementError;
use crate::policy::is_user_id;

/// The prefixes of issuers.
#[derive(Debug, Default)]
pub struct Names {
    /// Each issuer with its prefix.
    issuers: Vec<(String, String)>,
    /// The prefixes of all issuers, and of the endpoints that are asked about tokens.
    prefixes: Vec<String>,
}

/// Why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name with its prefix is longer than 255 characters, or has control characters.
    #[error("names somebody by more than 255 characters, or by control characters")]
    Malformed,
    /// The name begins with the prefix of another issuer.
    #[error("names somebody by a name that begins with another issuer's name_prefix")]
    OfAnotherIssuer,
}

impl Names {
    /// Takes each issuer with its prefix, and the prefixes of the endpoints that are asked.
    pub fn new(issuers: Vec<(String, String)>, endpoints: Vec<String>) -> Self {
        let of_issuers = issuers.iter().map(|(_, prefix)| prefix.clone());
        let prefixes = of_issuers.chain(endpoints).collect();
        Self { issuers, prefixes }
    }

    /// Knows fewer issuers. A name must still not be one of the others'.
    pub fn only(&self, is_known: impl Fn(&str) -> bool) -> Self {
        let issuers = self.issuers.iter().filter(|(issuer, _)| is_known(issuer));
        Self { issuers: issuers.cloned().collect(), prefixes: self.prefixes.clone() }
    }

    /// The prefix of a known issuer.
    pub fn prefix_of(&self, issuer: &str) -> Option<&str> {
        let listed = self.issuers.iter().find(|(listed, _)| listed == issuer);
        listed.map(|(_, prefix)| &**prefix)
    }

    /// All prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = &str> + Clone {
        self.prefixes.iter().map(|prefix| &**prefix)
    }

    /// The known issuer whose names have this prefix.
    pub fn issuer_with(&self, prefix: &str) -> Option<&str> {
        let listed = self.issuers.iter().find(|(_, known)| known == prefix);
        listed.map(|(issuer, _)| &**issuer)
    }

    /// Puts an issuer's prefix before a name that the issuer gave.
    pub fn qualify(&self, prefix: &str, name: &str) -> Result<String, NameError> {
        let name = format!("{prefix}{name}");
        // The name goes into records, logs and tokens.
        if !is_user_id(&name) {
            return Err(NameError::Malformed);
        }
        if self
            .prefixes
            .iter()
            .any(|other| other.len() > prefix.len() && name.starts_with(&**other))
        {
            return Err(NameError::OfAnotherIssuer);
        }
        Ok(name)
    }

    /// Refuses an issuer whose people an endpoint with this prefix may not name.
    pub fn check_spoken_for(&self, prefix: &str, issuer: &str) -> Result<(), StatementError> {
        let is_anothers = match self.prefix_of(issuer) {
            Some(listed) => listed != prefix,
            // If there is one issuer, or if no issuer has a prefix, the operator takes the unlisted
            // issuer's names for those of the others.
            None => {
                let are_apart = self.issuers.iter().any(|(_, known)| !known.is_empty());
                let is_known = self.issuers.iter().any(|(_, known)| known == prefix);
                self.issuers.len() > 1 && are_apart && is_known
            }
        };
        if is_anothers { Err(StatementError::Issuer(issuer.to_owned())) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTNER: &str = "https://partner.example";
    const OWN: &str = "https://own.example";

    /// Issuers with their prefixes, and the prefixes of endpoints.
    fn names(issuers: &[(&str, &str)], endpoints: &[&str]) -> Names {
        let owned = |(issuer, prefix): &(&str, &str)| ((*issuer).into(), (*prefix).into());
        let endpoints = endpoints.iter().map(|prefix| (*prefix).into());
        Names::new(issuers.iter().map(owned).collect(), endpoints.collect())
    }

    #[test]
    fn a_name_has_the_prefix_of_its_issuer_and_no_longer_one_of_another() {
        let names = names(&[(OWN, ""), (PARTNER, "p:"), ("https://pp.example", "p:p:")], &["o:"]);
        let long = "x".repeat(254);
        #[rustfmt::skip]
        let cases = [
            ("",     "agent-7",   Ok("agent-7")),
            ("p:",   "agent-7",   Ok("p:agent-7")),
            ("p:p:", "agent-7",   Ok("p:p:agent-7")),
            ("o:",   "agent-7",   Ok("o:agent-7")),
            ("",     "p:agent-7", Err(NameError::OfAnotherIssuer)),
            ("",     "o:agent-7", Err(NameError::OfAnotherIssuer)),
            ("p:",   "p:agent-7", Err(NameError::OfAnotherIssuer)),
            ("p:",   "o:agent-7", Ok("p:o:agent-7")),
            ("",     "P:agent-7", Ok("P:agent-7")),
            ("",     "p",         Ok("p")),
            ("",     "p:",        Err(NameError::OfAnotherIssuer)),
            ("p:",   &long,       Err(NameError::Malformed)),
            ("p:",   "a\nb",      Err(NameError::Malformed)),
        ];
        for (prefix, name, expected) in cases {
            let qualified = names.qualify(prefix, name);
            assert_eq!(qualified, expected.map(str::to_owned), "{prefix:?} {name:?}");
        }
    }

    #[test]
    fn an_endpoint_speaks_for_the_issuers_with_its_prefix_and_for_no_other() {
        let two = names(&[(OWN, ""), (PARTNER, "p:")], &[""]);
        let one = names(&[(OWN, "")], &[""]);
        let unknown = "https://unknown.example";
        #[rustfmt::skip]
        let cases = [
            ("its own issuer",                       &two, "",   OWN,     true),
            ("the partner",                          &two, "",   PARTNER, false),
            ("its own issuer, with a prefix",        &two, "p:", PARTNER, true),
            ("another issuer, with a prefix",        &two, "p:", OWN,     false),
            ("an unlisted issuer, the same prefix",  &two, "",   unknown, false),
            ("an unlisted issuer, its own prefix",   &two, "o:", unknown, true),
            ("the only issuer",                      &one, "",   OWN,     true),
            ("an unlisted issuer beside one",        &one, "",   unknown, true),
        ];
        for (case, names, prefix, issuer, spoken_for) in cases {
            let verdict = names.check_spoken_for(prefix, issuer);
            let refused = StatementError::Issuer(issuer.to_owned());
            assert_eq!(verdict.err(), (!spoken_for).then_some(refused), "{case}");
        }
    }

    proptest! {
        /// The prefixes are arbitrary, as long as they differ.
        #[test]
        fn no_two_issuers_give_the_same_name(
            prefixes in proptest::collection::hash_set("[ab]{0,3}", 2..5),
            one in "[ab]{1,5}",
            other in "[ab]{1,5}",
        ) {
            let prefixes: Vec<_> = prefixes.into_iter().collect();
            let issuers: Vec<_> = prefixes.iter().map(|prefix| (OWN, &**prefix)).collect();
            let names = names(&issuers, &[]);
            for (index, prefix) in prefixes.iter().enumerate() {
                for another in prefixes.iter().take(index) {
                    let one = names.qualify(prefix, &one);
                    let other = names.qualify(another, &other);
                    prop_assert!(one.is_err() || other.is_err() || one != other);
                }
            }
        }
    }
}

//! Names with their issuer: one name means one person.
//!
//! Two issuers may both know an `agent-7`. So each issuer of a list has a prefix of its own, which stands before every
//! name that the issuer gives, and nobody here knows the name without it: not a bound, a rule, a record or a log.
//!
//! A prefix alone does not keep two issuers apart: the issuer without one could name somebody `partner:agent-7`, and
//! one with `p` somebody `artner:agent-7`. So a name is refused if it begins with a longer prefix of another issuer. Of
//! all prefixes that a name begins with, the longest is then its issuer's: no other issuer can have given the name.
//!
//! What introspection and userinfo vouch for counts as one more issuer, with a prefix of its own or with that of the
//! issuer whose tokens they know. They name nobody else's people: an answer that names another issuer is refused.

use super::BearerError;
use crate::config::Verification;
use crate::policy::is_user_id;

/// The prefixes of one list of verifiers.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Each listed issuer, and its prefix.
    issuers: Vec<(String, String)>,
    /// The prefixes of those who are asked.
    asked: Vec<String>,
}

/// Whom a token names, by its issuer's own word.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) sub: Option<String>,
    pub(super) client_id: Option<String>,
    /// Counts where there is no `client_id`.
    pub(super) azp: Option<String>,
}

/// Whom a token names, as they are called here. There is at least one of the two.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) subject: Option<String>,
    pub(super) client_id: Option<String>,
}

impl Names {
    pub(super) fn new(ways: &Verification) -> Self {
        let prefix = |prefix: &Option<String>| prefix.clone().unwrap_or_default();
        let issuers = ways.jwt.iter();
        let userinfo = ways.userinfo.iter().map(|userinfo| prefix(&userinfo.name_prefix));
        let introspection = ways.introspection.iter().map(|asked| prefix(&asked.name_prefix));
        Self {
            issuers: issuers.map(|one| (one.issuer.clone(), prefix(&one.name_prefix))).collect(),
            asked: userinfo.chain(introspection).collect(),
        }
    }

    /// Whom a token names whose issuer has this prefix. `client_ids` lists the clients that it may be issued to, by
    /// their issuer's own names for them.
    pub(super) fn identify(
        &self,
        prefix: &str,
        said: Said,
        client_ids: Option<&[String]>,
    ) -> Result<Named, BearerError> {
        let present = |name: Option<String>| name.filter(|name| !name.is_empty());
        let subject = present(said.sub).map(|name| self.full(prefix, &name)).transpose()?;
        let client = present(said.client_id).or_else(|| present(said.azp));
        let client_id = client.as_deref().map(|name| self.full(prefix, name)).transpose()?;
        if subject.is_none() && client_id.is_none() {
            return Err(BearerError::Nobody);
        }
        let is_listed = |list: &[String]| client.is_some_and(|client| list.contains(&client));
        if !client_ids.is_none_or(is_listed) {
            return Err(BearerError::Client);
        }
        Ok(Named { subject, client_id })
    }

    /// Refuses the token of an issuer for whom those with this prefix do not speak.
    pub(super) fn check_spoken_for(&self, prefix: &str, issuer: &str) -> Result<(), BearerError> {
        let listed = self.issuers.iter().find(|(listed, _)| listed == issuer);
        let is_anothers = match listed {
            Some((_, listed)) => listed != prefix,
            // With one issuer there is nobody whom its people could be mistaken for.
            None => self.issuers.len() > 1 && self.issuers.iter().any(|(_, known)| known == prefix),
        };
        if is_anothers { Err(BearerError::Issuer(issuer.to_owned())) } else { Ok(()) }
    }

    /// What an issuer with this prefix calls `name`, in full.
    fn full(&self, prefix: &str, name: &str) -> Result<String, BearerError> {
        let name = format!("{prefix}{name}");
        // It goes into records, logs and tokens.
        if !is_user_id(&name) {
            return Err(BearerError::Identifier);
        }
        let mut prefixes = self.issuers.iter().map(|(_, prefix)| prefix).chain(&self.asked);
        if prefixes.any(|other| other.len() > prefix.len() && name.starts_with(&**other)) {
            return Err(BearerError::NameOfAnotherIssuer);
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTNER: &str = "https://partner.example";
    const OWN: &str = "https://own.example";

    /// Issuers with these prefixes, and one that is asked.
    fn names(issuers: &[(&str, &str)], asked: &[&str]) -> Names {
        let owned = |(issuer, prefix): &(&str, &str)| ((*issuer).into(), (*prefix).into());
        Names {
            issuers: issuers.iter().map(owned).collect(),
            asked: asked.iter().map(|prefix| (*prefix).into()).collect(),
        }
    }

    fn sub(name: &str) -> Said {
        Said { sub: Some(name.to_owned()), ..Said::default() }
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
            ("",     "p:agent-7", Err(BearerError::NameOfAnotherIssuer)),
            ("",     "o:agent-7", Err(BearerError::NameOfAnotherIssuer)),
            ("p:",   "p:agent-7", Err(BearerError::NameOfAnotherIssuer)),
            ("p:",   "o:agent-7", Ok("p:o:agent-7")),
            ("",     "P:agent-7", Ok("P:agent-7")),
            ("",     "p",         Ok("p")),
            ("",     "p:",        Err(BearerError::NameOfAnotherIssuer)),
            ("p:",   &long,       Err(BearerError::Identifier)),
            ("p:",   "a\nb",      Err(BearerError::Identifier)),
            ("p:",   "",          Err(BearerError::Nobody)),
        ];
        for (prefix, name, expected) in cases {
            let subject = names.identify(prefix, sub(name), None).map(|named| named.subject);
            let expected = expected.map(|name: &str| Some(name.to_owned()));
            assert_eq!(subject, expected, "{prefix:?} {name:?}");
        }
    }

    #[test]
    fn clients_are_listed_by_the_names_that_their_issuer_gives_them() {
        let names = names(&[(OWN, ""), (PARTNER, "p:")], &[]);
        let said = |client_id: &str, azp: &str| Said {
            sub: None,
            client_id: Some(client_id.to_owned()),
            azp: Some(azp.to_owned()),
        };
        let list = ["backend".to_owned()];
        #[rustfmt::skip]
        let cases = [
            (said("backend", ""),         Ok("p:backend")),
            (said("", "backend"),         Ok("p:backend")),
            (said("p:backend", ""),       Err(BearerError::Client)),
            (said("portal", "backend"),   Err(BearerError::Client)),
            (sub("backend"),              Err(BearerError::Client)),
        ];
        for (said, expected) in cases {
            let case = format!("{said:?}");
            let client = names.identify("p:", said, Some(&list)).map(|named| named.client_id);
            assert_eq!(client, expected.map(|name: &str| Some(name.to_owned())), "{case}");
        }
    }

    #[test]
    fn who_is_asked_speaks_for_the_issuers_of_its_prefix_and_for_nobody_elses_people() {
        let two = names(&[(OWN, ""), (PARTNER, "p:")], &[""]);
        let one = names(&[(OWN, "")], &[""]);
        let unknown = "https://unknown.example";
        #[rustfmt::skip]
        let cases = [
            ("its own",                        &two, "",   OWN,     true),
            ("the partner's",                  &two, "",   PARTNER, false),
            ("its own, with a prefix",         &two, "p:", PARTNER, true),
            ("another's, with a prefix",       &two, "p:", OWN,     false),
            ("nobody's, with the same prefix", &two, "",   unknown, false),
            ("nobody's, with its own prefix",  &two, "o:", unknown, true),
            ("of one issuer",                  &one, "",   OWN,     true),
            ("beside one issuer",              &one, "",   unknown, true),
        ];
        for (case, names, prefix, issuer, spoken_for) in cases {
            let verdict = names.check_spoken_for(prefix, issuer);
            let refused = BearerError::Issuer(issuer.to_owned());
            assert_eq!(verdict.err(), (!spoken_for).then_some(refused), "{case}");
        }
    }

    proptest! {
        /// Whatever the prefixes are, as long as they differ.
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
                    let one = names.identify(prefix, sub(&one), None);
                    let other = names.identify(another, sub(&other), None);
                    prop_assert!(one.is_err() || other.is_err() || one != other);
                }
            }
        }
    }
}

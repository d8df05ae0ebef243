//! An event of which a sender has told, and whose work it may end.
//!
//! An issuer's people are named by its `name_prefix`: one issuer has one prefix, and of all
//! prefixes that an accepted name begins with, the longest belongs to its issuer ([`names`]). So a
//! name alone says whose person it names, in a row as well as in `act.sub`, `act.sid` and `sub` of
//! an access token. Neither needs the issuer beside the name, and no token leaves open whose it is.
//!
//! [`names`]: crate::statement::Names

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::UnixTime;

/// The people of one issuer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct People {
    /// The issuer's prefix, with which each name of its people begins.
    prefix: String,
    /// The longer prefixes of other issuers that begin with this one.
    others: Vec<String>,
}

impl People {
    /// The people among whom is the person with this name. `prefixes` has those of all issuers.
    pub fn of<'p>(name: &str, prefixes: impl Iterator<Item = &'p str> + Clone) -> Self {
        let own = prefixes.clone().filter(|prefix| name.starts_with(prefix));
        let prefix = own.max_by_key(|prefix| prefix.len()).unwrap_or_default();
        let is_longer = |other: &&str| other.len() > prefix.len() && other.starts_with(prefix);
        let mut others: Vec<String> = Vec::new();
        for other in prefixes.filter(is_longer) {
            if let Err(place) = others.binary_search_by(|one| (**one).cmp(other)) {
                others.insert(place, other.to_owned());
            }
        }
        Self { prefix: prefix.to_owned(), others }
    }

    /// The prefix of all their names.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns true if this is the name of one of these people, or of a session of one.
    pub(crate) fn have(&self, name: &str) -> bool {
        name.starts_with(&*self.prefix) && !self.others.iter().any(|other| name.starts_with(other))
    }
}

/// The relation between a sender and the people of whom it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// The sender is their issuer, or the only one who names them.
    Own,
    /// The people are those of another issuer.
    Others,
}

/// The extent of an event. Events become one event where there is no room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// The one event: it ends what its revocation names.
    One,
    /// The events about sessions of the actor whom the revocation names.
    SessionsOfPerson,
    /// The events about the people as actors.
    AllActors,
    /// The events about the people as users.
    AllUsers,
}

/// An event of which a sender has told: it ends what a revocation names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happened {
    /// The time of the event by its sender's clock, in milliseconds since the epoch. It lies at
    /// most [`CLOCKS_APART`](super::CLOCKS_APART) ahead of the clock of the Envoy that was told.
    pub at_millis: u64,
    /// The sender.
    pub sender: String,
    /// The people among whom the event names somebody.
    pub people: People,
    /// The relation between the sender and these people.
    pub whose: Whose,
    /// The person whose session it is. `None` if the sender does not say it, or if the event is not
    /// about a session.
    pub person: Option<String>,
    /// The seconds for which the event is kept.
    pub kept_for_secs: u32,
    /// The extent of the event.
    pub extent: Extent,
}

impl Happened {
    /// An event of the only sender, about people of whom there are no others.
    pub fn new(sender: &str, at_millis: u64, kept_for: Duration) -> Self {
        Self {
            at_millis,
            sender: sender.to_owned(),
            people: People::default(),
            whose: Whose::Own,
            person: None,
            kept_for_secs: u32::try_from(kept_for.as_secs()).unwrap_or(u32::MAX),
            extent: Extent::One,
        }
    }

    /// The time of the event, by its sender's clock.
    pub(crate) const fn at(&self) -> UnixTime {
        UnixTime::from_millis(self.at_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_person_it_names() {
        let prefixes = ["", "p:", "p:p:", "o:"];
        let people = |name| People::of(name, prefixes.into_iter());
        #[rustfmt::skip]
        let cases = [
            ("agent",     "agent-2",  true),
            ("agent",     "p",        true),
            ("agent",     "p:agent",  false),
            ("agent",     "o:agent",  false),
            ("p:agent",   "p:other",  true),
            ("p:agent",   "p:p:x",    false),
            ("p:agent",   "agent",    false),
            ("p:p:agent", "p:p:x",    true),
            ("p:p:agent", "p:x",      false),
        ];
        for (of, name, is_one) in cases {
            assert_eq!(people(of).have(name), is_one, "{of} {name}");
        }
        assert!(People::default().have("anybody"));
    }
}

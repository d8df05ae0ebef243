//! The senders whose events are believed.

use std::rc::Rc;

use super::EventError;
use crate::config::EventSender;
use crate::host::UnixTime;
use crate::jose::TestedCrypto;
use crate::secret::Digest;
use crate::state::revocations::{People, Whose};
use crate::statement::{Issuers, Names, Untrusted, Verified};
use crate::step::Context;
use crate::upstream::RemoteKeySet;

/// The senders of one kind of event.
pub(crate) struct Senders {
    issuers: Issuers<EventSender>,
    /// Each sender with the prefix of the names that it gives in its own right.
    prefixes: Vec<(String, String)>,
    names: Rc<Names>,
    crypto: Option<Rc<TestedCrypto>>,
}

/// The sender of an event, and whom its names mean.
pub(crate) struct Sender<'s> {
    /// The sender as it is configured.
    pub(crate) configured: &'s EventSender,
    /// The names of actors.
    pub(super) names: &'s Names,
}

impl Senders {
    /// Believes these senders. `names` has the issuers of actor tokens, and so says whom a name of
    /// an issuer means.
    pub(crate) fn new(
        senders: Vec<EventSender>,
        names: Rc<Names>,
        crypto: Option<Rc<TestedCrypto>>,
    ) -> Self {
        let prefix = |sender: &EventSender| sender.name_prefix.clone().unwrap_or_default();
        let prefixes = senders.iter().map(|sender| (sender.issuer.clone(), prefix(sender)));
        let prefixes = prefixes.collect();
        let issuers = Issuers::new(senders, |sender| (&sender.issuer, &sender.keys));
        Self { issuers, prefixes, names, crypto }
    }

    /// The key sets that the background task keeps fresh.
    pub(crate) fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.issuers.remote_key_sets()
    }

    /// The number of senders.
    pub(crate) fn count(&self) -> usize {
        self.issuers.count()
    }

    /// The people among whom is the person or the session with this name, and their relation to a
    /// sender. They are the people of the issuer of actor tokens that has their prefix. If none
    /// has, they are those of the senders with this prefix.
    pub(crate) fn people_of(&self, name: &str, sender: &str) -> (People, Whose) {
        let of_senders = self.prefixes.iter().map(|(_, prefix)| &**prefix);
        let people = People::of(name, self.names.prefixes().chain(of_senders));
        let is_own = match self.names.issuer_with(people.prefix()) {
            Some(issuer) => issuer == sender,
            None => self.prefixes.iter().any(|(one, own)| one == sender && own == people.prefix()),
        };
        (people, if is_own { Whose::Own } else { Whose::Others })
    }

    /// The place of a sender in the list, from zero.
    pub(crate) fn place_of(&self, issuer: &str) -> Option<usize> {
        self.issuers.find(issuer).ok().map(|(place, _)| place)
    }

    /// Refuses a request without the `Authorization` header that its sender may send.
    pub(super) fn check_authorization(
        &self,
        statement: &Untrusted<'_>,
        authorization: Option<&[u8]>,
    ) -> Result<(), EventError> {
        let (_, issuer) = self.issuers.find(statement.issuer()?)?;
        let Some(digests) = &issuer.rules.authorization_digests else { return Ok(()) };
        let sent = authorization.map(Digest::of);
        let is_agreed_on = sent.is_some_and(|sent| digests.iter().any(|one| one.matches(&sent)));
        if is_agreed_on { Ok(()) } else { Err(EventError::Authentication) }
    }

    /// Verifies the signature of a statement with the keys of its sender.
    pub(super) async fn verify<'s>(
        &self,
        context: &Context,
        statement: &'s Untrusted<'_>,
        now: UnixTime,
    ) -> Result<(Sender<'_>, Verified<'s>), EventError> {
        let (_, issuer) = self.issuers.find(statement.issuer()?)?;
        let verified = issuer.verify(context, self.crypto.as_deref(), statement, now).await?;
        Ok((Sender { configured: &issuer.rules, names: &self.names }, verified))
    }
}

impl Sender<'_> {
    /// Refuses a statement that is for another receiver.
    pub(super) fn check_audience(&self, statement: &Verified<'_>) -> Result<(), EventError> {
        let named = statement.texts("aud")?;
        let is_ours = self.configured.audiences.iter().any(|ours| named.contains(&ours.as_str()));
        if is_ours { Ok(()) } else { Err(EventError::Audience) }
    }

    /// The prefix of the names that the sender gives in its own right.
    pub(super) fn prefix(&self) -> &str {
        self.configured.name_prefix.as_deref().unwrap_or_default()
    }

    /// The prefix of the names of an issuer; `None` if the filter does not know the issuer.
    pub(super) fn prefix_of(&self, issuer: &str) -> Option<&str> {
        let listed = self.names.prefix_of(issuer);
        listed.or_else(|| (issuer == self.configured.issuer).then(|| self.prefix()))
    }
}

//! The issuers that a profile trusts, each with its keys.

use std::rc::Rc;

use super::{StatementError, Untrusted, Verified};
use crate::config::Jwks;
use crate::host::UnixTime;
use crate::jose::TestedCrypto;
use crate::step::Context;
use crate::upstream::{KeySource, RemoteKeySet};

/// A list of trusted issuers. `R` has the rules for the statements of one issuer.
#[derive(Debug)]
pub struct Issuers<R>(Vec<Issuer<R>>);

/// A trusted issuer with its keys.
#[derive(Debug)]
pub struct Issuer<R> {
    name: String,
    keys: KeySource,
    /// The rules for statements of this issuer.
    pub rules: R,
}

impl<R> Issuers<R> {
    /// Trusts each issuer that `entry` finds in `rules`, by its name (`iss`) and its keys.
    pub fn new(rules: Vec<R>, entry: impl Fn(&R) -> (&str, &Jwks)) -> Self {
        let issuer = |rules: R| {
            let (name, keys) = entry(&rules);
            Issuer { name: name.to_owned(), keys: KeySource::new(keys), rules }
        };
        Self(rules.into_iter().map(issuer).collect())
    }

    /// Trusts each issuer by its name, its keys and its rules.
    pub fn of(issuers: impl Iterator<Item = (String, Jwks, R)>) -> Self {
        let issuer = |(name, keys, rules)| Issuer { name, keys: KeySource::new(&keys), rules };
        Self(issuers.map(issuer).collect())
    }

    /// The number of issuers.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The first issuer that is named `iss`, compared exactly, with its position in the list.
    pub fn find(&self, iss: &str) -> Result<(usize, &Issuer<R>), StatementError> {
        let found = self.0.iter().enumerate().find(|(_, issuer)| issuer.name == iss);
        found.ok_or_else(|| StatementError::Issuer(iss.to_owned()))
    }

    /// The issuer at a position.
    pub fn get(&self, position: usize) -> Option<&Issuer<R>> {
        self.0.get(position)
    }

    /// The key sets that the background task keeps fresh.
    pub fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        self.0.iter().filter_map(|issuer| issuer.keys.remote())
    }
}

impl<R> Issuer<R> {
    /// Verifies the signature of a statement with the issuer's keys. If no known key fits, fetches
    /// the key set again, if that is allowed at this time, and tries once more.
    pub async fn verify<'s>(
        &self,
        context: &Context,
        crypto: Option<&TestedCrypto>,
        statement: &'s Untrusted<'_>,
        now: UnixTime,
    ) -> Result<Verified<'s>, StatementError> {
        verify(&self.keys, context, crypto, statement, now).await
    }

    /// A number that changes whenever the issuer's keys change.
    pub fn generation(&self) -> u64 {
        self.keys.generation()
    }
}

/// Does what [`Issuer::verify`] says, once for the rules of every kind.
async fn verify<'s>(
    keys: &KeySource,
    context: &Context,
    crypto: Option<&TestedCrypto>,
    statement: &'s Untrusted<'_>,
    now: UnixTime,
) -> Result<Verified<'s>, StatementError> {
    let verify = || statement.verify(crypto, &*keys.keys(now)?);
    let verdict = verify();
    let lacks_key = matches!(verdict, Err(StatementError::NoKey | StatementError::Upstream(_)));
    match keys {
        KeySource::Remote(remote) if lacks_key => {
            remote.refresh(context).await?;
            verify()
        }
        _ => verdict,
    }
}

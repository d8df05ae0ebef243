//! Bounds: limits on the use of one subject token.
//!
//! Bounds come with the mint and stay with the token. They only narrow: no bound grants anything,
//! and a member without a bound keeps the configured limit. Two bounds ask for decisions of people.
//! They do not stay among the bounds: the token's review has them. A bound that can never be met is
//! refused at the mint, where the backend can still correct it. Otherwise a support agent would
//! find the token useless in front of a user.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::is_user_id;
use crate::config::{Client, Config, MOST_APPROVALS, Resource};
use crate::oauth::scope;

const EXPIRES_IN: &str = "expiresIn";
const CLIENT_ID: &str = "clientId";
const RESOURCE: &str = "resource";
const SCOPE: &str = "scope";
const ACTOR_ID: &str = "actorId";
const ACCESS_TOKEN_EXPIRES_IN: &str = "accessTokenExpiresIn";
const APPROVALS: &str = "approvals";
const CONSENT: &str = "consent";

/// The limits on one subject token. `None` means no limit besides the configuration's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Bounds {
    /// How long the subject token lives, in seconds.
    pub(crate) expires_in: Option<u64>,
    /// The clients that may exchange the subject token.
    pub client_ids: Option<Vec<String>>,
    /// The indicators of the resources that the subject token may be exchanged for.
    pub resources: Option<Vec<String>>,
    /// The scopes that can be granted.
    pub scopes: Option<Vec<String>>,
    /// The user who must be acting.
    pub actor_id: Option<String>,
    /// How long the access token lives, in seconds.
    pub(crate) access_token_expires_in: Option<u64>,
    /// How many people must approve. A store does not keep it.
    #[serde(skip)]
    pub(crate) approvals: Option<u8>,
    /// True if the user must consent. A store does not keep it.
    #[serde(skip)]
    pub(crate) consent: bool,
}

/// The reason why bounds are invalid. `Display` names the member, and can serve as an
/// `error_description`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member} {problem}")]
pub struct BoundsError {
    member: &'static str,
    problem: Cow<'static, str>,
}

impl BoundsError {
    fn new<T>(member: &'static str, problem: impl Into<Cow<'static, str>>) -> Result<T, Self> {
        Err(Self { member, problem: problem.into() })
    }
}

/// The configured limits, which bounds are checked against. A bound beyond them can never be met.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'c> {
    /// How long subject tokens live.
    pub lifetime: Duration,
    /// How long access tokens live if their resource sets no lifetime.
    pub access_token_lifetime: Duration,
    /// The clients that exchange subject tokens.
    pub clients: &'c HashMap<String, Rc<Client>>,
    /// The resources that access tokens can be for.
    pub resources: &'c HashMap<String, Resource>,
    /// True if actor tokens can be verified.
    pub accepts_actors: bool,
    /// True if people can approve and consent.
    pub accepts_approvals: bool,
}

impl<'c> Offer<'c> {
    /// Returns the limits of a configuration. Only a service knows `accepts_actors`, because it has
    /// taken over the verification of actor tokens from the configuration.
    pub fn of(config: &'c Config, accepts_actors: bool) -> Self {
        Self {
            lifetime: config.subject_tokens.lifetime,
            access_token_lifetime: config.access_token_lifetime,
            clients: &config.clients,
            resources: &config.resources,
            accepts_actors,
            accepts_approvals: config.approvals.is_some(),
        }
    }

    fn access_token_lifetime(&self, resource: &Resource) -> u64 {
        resource.access_token_lifetime.unwrap_or(self.access_token_lifetime).as_secs()
    }
}

impl Bounds {
    /// The names of all bounds, in the mint's body and in the result of `authorizeSubjectToken`.
    pub const MEMBERS: [&str; 8] = [
        EXPIRES_IN,
        CLIENT_ID,
        RESOURCE,
        SCOPE,
        ACTOR_ID,
        ACCESS_TOKEN_EXPIRES_IN,
        APPROVALS,
        CONSENT,
    ];

    /// Reads bounds from an object. [`Bounds::check`] tells if they can be met.
    pub fn read(members: &Map<String, Value>) -> Result<Self, BoundsError> {
        Self::of(members.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Reads bounds from an iterator over members.
    pub fn of<'v>(
        members: impl Iterator<Item = (&'v str, &'v Value)>,
    ) -> Result<Self, BoundsError> {
        let mut bounds = Self::default();
        for (name, value) in members {
            match name {
                EXPIRES_IN => bounds.expires_in = Some(seconds(EXPIRES_IN, value)?),
                CLIENT_ID => bounds.client_ids = Some(list(CLIENT_ID, value)?),
                RESOURCE => bounds.resources = Some(list(RESOURCE, value)?),
                SCOPE => bounds.scopes = Some(scopes(value)?),
                ACTOR_ID => bounds.actor_id = Some(actor(value)?),
                ACCESS_TOKEN_EXPIRES_IN => {
                    bounds.access_token_expires_in = Some(seconds(ACCESS_TOKEN_EXPIRES_IN, value)?);
                }
                APPROVALS => bounds.approvals = Some(approvals(value)?),
                CONSENT => bounds.consent = boolean(CONSENT, value)?,
                _ => {
                    let known = Self::MEMBERS.join(", ");
                    return BoundsError::new("the object", format!("may have only {known}"));
                }
            }
        }
        Ok(bounds)
    }

    /// Returns the number of people who must approve, and true if the user must consent.
    pub fn asks_for(&self) -> (u8, bool) {
        (self.approvals.unwrap_or(0), self.consent)
    }

    /// Returns true if there are no bounds.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses bounds that can never be met for the user `user_id`.
    pub fn check(&self, offer: &Offer<'_>, user_id: &str) -> Result<(), BoundsError> {
        at_most(EXPIRES_IN, self.expires_in, offer.lifetime.as_secs())?;
        for (member, is_given) in [(APPROVALS, self.approvals.is_some()), (CONSENT, self.consent)] {
            if is_given && !offer.accepts_approvals {
                return BoundsError::new(member, "needs people who may approve: approvals");
            }
        }
        if self.client_ids.iter().flatten().any(|id| !offer.clients.contains_key(id)) {
            return BoundsError::new(CLIENT_ID, "must name only configured clients");
        }
        if self.resources.iter().flatten().any(|indicator| !offer.resources.contains_key(indicator))
        {
            return BoundsError::new(RESOURCE, "must name only configured resources");
        }
        let narrowed = self.client_ids.is_some() || self.resources.is_some();
        if narrowed && self.reachable(offer).next().is_none() {
            let member = if self.resources.is_some() { RESOURCE } else { CLIENT_ID };
            return BoundsError::new(
                member,
                "must leave a client and a resource that it may ask for",
            );
        }
        let grants = |scope: &String| {
            self.reachable(offer).any(|resource| resource.scopes.iter().any(|known| known == scope))
        };
        if !self.scopes.iter().flatten().all(grants) {
            let problem = "must have only scopes of the resources that the token can be for";
            return BoundsError::new(SCOPE, problem);
        }
        if let Some(actor_id) = &self.actor_id {
            if !offer.accepts_actors {
                return BoundsError::new(ACTOR_ID, "needs a way to verify actor tokens");
            }
            if actor_id == user_id {
                let problem = "must not be the user who is impersonated";
                return BoundsError::new(ACTOR_ID, problem);
            }
        }
        if self.access_token_expires_in.is_some() {
            let longest =
                self.reachable(offer).map(|resource| offer.access_token_lifetime(resource)).max();
            at_most(
                ACCESS_TOKEN_EXPIRES_IN,
                self.access_token_expires_in,
                longest.unwrap_or(offer.access_token_lifetime.as_secs()),
            )?;
        }
        Ok(())
    }

    /// Returns the resources that at least one of the allowed clients may ask for.
    fn reachable<'c>(&self, offer: &Offer<'c>) -> impl Iterator<Item = &'c Resource> {
        let (clients, resources) = (offer.clients, offer.resources);
        let asks = move |indicator: &String| {
            clients.values().any(|client| {
                self.allows_client(&client.client_id)
                    && client.resources.as_ref().is_none_or(|known| known.contains(indicator))
            })
        };
        resources
            .iter()
            .filter(move |(indicator, _)| self.allows_resource(indicator) && asks(indicator))
            .map(|(_, resource)| resource)
    }

    /// Returns the bounds that satisfy both `self` and `other`. The error names the bound for which
    /// nothing is left.
    pub fn narrowed_by(self, other: Self) -> Result<Self, BoundsError> {
        if self.actor_id.is_some() && other.actor_id.is_some() && self.actor_id != other.actor_id {
            return nothing_left(ACTOR_ID);
        }
        Ok(Self {
            expires_in: least(self.expires_in, other.expires_in),
            client_ids: common(CLIENT_ID, self.client_ids, other.client_ids)?,
            resources: common(RESOURCE, self.resources, other.resources)?,
            scopes: common(SCOPE, self.scopes, other.scopes)?,
            actor_id: self.actor_id.or(other.actor_id),
            access_token_expires_in: least(
                self.access_token_expires_in,
                other.access_token_expires_in,
            ),
            approvals: self.approvals.max(other.approvals),
            consent: self.consent || other.consent,
        })
    }

    /// Returns how long the subject token lives.
    pub fn lifetime(&self, configured: Duration) -> Duration {
        shortened(configured, self.expires_in)
    }

    /// Returns true if this client may exchange the subject token.
    pub fn allows_client(&self, client_id: &str) -> bool {
        allows(self.client_ids.as_deref(), client_id)
    }

    /// Returns true if the subject token may be exchanged for this resource.
    pub fn allows_resource(&self, indicator: &str) -> bool {
        allows(self.resources.as_deref(), indicator)
    }

    /// Returns true if this scope may be granted.
    pub fn allows_scope(&self, scope: &str) -> bool {
        allows(self.scopes.as_deref(), scope)
    }

    /// Returns true if the subject token may be exchanged while this user is acting. `None` stands
    /// for an exchange without an actor.
    pub fn allows_actor(&self, actor_id: Option<&str>) -> bool {
        self.actor_id.is_none() || self.actor_id.as_deref() == actor_id
    }

    /// Returns how long the access token lives.
    pub fn access_token_lifetime(&self, configured: Duration) -> Duration {
        shortened(configured, self.access_token_expires_in)
    }
}

/// Human-readable formats get the members of the mint's body, without absent bounds. Binary formats
/// (the store) get all fields in order.
impl Serialize for Bounds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            expires_in,
            client_ids,
            resources,
            scopes,
            actor_id,
            access_token_expires_in,
            approvals,
            consent,
        } = self;
        if !serializer.is_human_readable() {
            let all =
                (expires_in, client_ids, resources, scopes, actor_id, access_token_expires_in);
            return all.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        if let Some(seconds) = expires_in {
            map.serialize_entry(EXPIRES_IN, seconds)?;
        }
        if let Some(client_ids) = client_ids {
            map.serialize_entry(CLIENT_ID, client_ids)?;
        }
        if let Some(resources) = resources {
            map.serialize_entry(RESOURCE, resources)?;
        }
        if let Some(scopes) = scopes {
            map.serialize_entry(SCOPE, &scopes.join(" "))?;
        }
        if let Some(actor_id) = actor_id {
            map.serialize_entry(ACTOR_ID, actor_id)?;
        }
        if let Some(seconds) = access_token_expires_in {
            map.serialize_entry(ACCESS_TOKEN_EXPIRES_IN, seconds)?;
        }
        if let Some(approvals) = approvals {
            map.serialize_entry(APPROVALS, approvals)?;
        }
        if *consent {
            map.serialize_entry(CONSENT, consent)?;
        }
        map.end()
    }
}

fn seconds(member: &'static str, value: &Value) -> Result<u64, BoundsError> {
    match value.as_u64() {
        Some(seconds) if seconds > 0 => Ok(seconds),
        _ => BoundsError::new(member, "must be a number of whole seconds, at least 1"),
    }
}

fn approvals(value: &Value) -> Result<u8, BoundsError> {
    let count = value.as_u64().filter(|count| *count <= MOST_APPROVALS);
    match count.and_then(|count| u8::try_from(count).ok()) {
        Some(count) => Ok(count),
        None => BoundsError::new(
            APPROVALS,
            format!("must be a number of people, from 0 to {MOST_APPROVALS}"),
        ),
    }
}

fn boolean(member: &'static str, value: &Value) -> Result<bool, BoundsError> {
    match value {
        Value::Bool(value) => Ok(*value),
        _ => BoundsError::new(member, "must be true or false"),
    }
}

/// Reads one string or a list of strings, and drops duplicates.
fn list(member: &'static str, value: &Value) -> Result<Vec<String>, BoundsError> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        item => std::slice::from_ref(item),
    };
    let mut list = Vec::new();
    for item in items {
        match item {
            Value::String(text) if list.contains(text) => {}
            Value::String(text) => list.push(text.clone()),
            _ => return BoundsError::new(member, "must be a string or a list of strings"),
        }
    }
    match list.is_empty() {
        true => BoundsError::new(member, "must not be an empty list"),
        false => Ok(list),
    }
}

fn scopes(value: &Value) -> Result<Vec<String>, BoundsError> {
    let Some(tokens) = value.as_str().and_then(scope::parse) else {
        return BoundsError::new(SCOPE, "must be scopes with one space between them, at least one");
    };
    let mut scopes: Vec<String> = Vec::new();
    for token in tokens {
        if !scopes.iter().any(|known| known == token) {
            scopes.push(token.to_owned());
        }
    }
    Ok(scopes)
}

fn actor(value: &Value) -> Result<String, BoundsError> {
    match value {
        Value::String(actor) if is_user_id(actor) => Ok(actor.clone()),
        _ => BoundsError::new(
            ACTOR_ID,
            "must be a string of 1 to 255 characters without control characters",
        ),
    }
}

fn at_most(member: &'static str, given: Option<u64>, most: u64) -> Result<(), BoundsError> {
    match given {
        Some(seconds) if seconds > most => {
            BoundsError::new(member, format!("must be at most {most} seconds"))
        }
        _ => Ok(()),
    }
}

fn allows(list: Option<&[String]>, value: &str) -> bool {
    list.is_none_or(|list| list.iter().any(|item| item == value))
}

fn shortened(configured: Duration, bound: Option<u64>) -> Duration {
    bound.map_or(configured, |seconds| configured.min(Duration::from_secs(seconds)))
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

fn common(
    member: &'static str,
    one: Option<Vec<String>>,
    other: Option<Vec<String>>,
) -> Result<Option<Vec<String>>, BoundsError> {
    let (mut one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (one, other) => return Ok(one.or(other)),
    };
    one.retain(|item| other.contains(item));
    if one.is_empty() { nothing_left(member) } else { Ok(Some(one)) }
}

fn nothing_left<T>(member: &'static str) -> Result<T, BoundsError> {
    BoundsError::new(member, "leaves nothing beside what the operator allows")
}

#[cfg(test)]
mod tests;

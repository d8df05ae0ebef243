//! One configured service: what every request of a worker shares.

use std::rc::Rc;

use super::{Documents, Paths};
use crate::config::Config;
use crate::store::{Census, SlotTable};
use crate::upstream::RemoteKeySet;

/// A configuration, ready to answer. Caches live as long as it does: a changed configuration starts with
/// empty ones, so nothing verified under the old rules is taken for granted under the new.
pub struct Service {
    /// What the operator wrote.
    pub config: Config,
    /// Outstanding and spent subject tokens.
    pub store: SlotTable,
    /// Counts the outstanding ones.
    pub census: Census,
    /// The paths that are ours.
    pub paths: Paths,
    /// The documents that anybody may read.
    pub documents: Documents,
}

impl Service {
    /// Builds what can be built once.
    pub fn new(config: Config) -> Self {
        let store = SlotTable::new(&config.tenant(), config.subject_tokens.capacity);
        let paths = Paths::new(&config.base_path);
        let documents = Documents::new(&config);
        Self { config, store, census: Census::default(), paths, documents }
    }
    /// The key sets that must be kept fresh while nobody asks.
    pub fn remote_key_sets(&self) -> impl Iterator<Item = &Rc<RemoteKeySet>> {
        let callers = &self.config.subject_tokens.callers;
        let actors = &self.config.actor_tokens.verifier;
        let jwt = callers.jwt.iter().chain(&actors.jwt);
        jwt.flat_map(|jwt| jwt.remote_key_sets())
    }
}

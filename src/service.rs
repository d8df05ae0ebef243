//! One configured service: what every request of a worker shares.

use crate::bearer::JwtVerifier;
use crate::config::Config;
use crate::endpoint::{Documents, Paths};
use crate::subject_token::SlotTable;

/// A configuration, ready to answer. Caches live as long as it does: a changed configuration starts with
/// empty ones, so nothing verified under the old rules is taken for granted under the new.
pub struct Service {
    /// What the operator wrote.
    pub config: Config,
    /// Outstanding and spent subject tokens.
    pub store: SlotTable,
    /// Verifies who mints.
    pub callers: JwtVerifier,
    /// Verifies who acts; `None` where actor tokens are not accepted.
    pub actors: Option<JwtVerifier>,
    /// The paths that are ours.
    pub paths: Paths,
    /// The documents that anybody may read.
    pub documents: Documents,
}

impl Service {
    /// Builds what can be built once.
    pub fn new(mut config: Config) -> Self {
        let store = SlotTable::new(&config.tenant(), config.subject_tokens.capacity);
        let callers = JwtVerifier::new(std::mem::take(&mut config.subject_tokens.issuers));
        let actor_issuers = std::mem::take(&mut config.actor_tokens.issuers);
        let actors = (!actor_issuers.is_empty()).then(|| JwtVerifier::new(actor_issuers));
        let paths = Paths::new(&config.base_path);
        let documents = Documents::new(&config);
        Self { config, store, callers, actors, paths, documents }
    }
}

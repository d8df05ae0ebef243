//! Opens the stores that a configuration names.

use std::rc::Rc;
use std::time::Duration;

use super::{List, Revocations, Store};
use crate::config::{self, Config, GuardConfig, GuardStore};
use crate::secret::Secret;
use crate::state::etcd::{RecordKeys, Server};
use crate::state::store::Lifetimes;

/// The stores of one service.
pub struct Stores {
    pub tokens: Store,
    pub revocations: Revocations,
    pub list: List,
}

/// Opens the stores of a service. `record_keys` are for the records of a remote store.
pub fn open(config: &Config, record_keys: Vec<Secret<[u8; 16]>>) -> Stores {
    let tenant = config.tenant();
    let lifetimes = Lifetimes {
        usual: config.subject_tokens.lifetime,
        longest: config.longest_subject_token_lifetime(),
    };
    let longest = config.longest_access_token_lifetime();
    match &config.store {
        config::StoreSettings::SharedData { capacity } => Stores {
            tokens: Store::shared_data(&tenant, *capacity, lifetimes),
            revocations: Revocations::shared_data(&tenant),
            list: List::shared_data(&tenant, config.impersonations.capacity(), longest),
        },
        config::StoreSettings::Etcd(settings) => {
            let server = Rc::new(Server::new(settings, RecordKeys::new(record_keys)));
            Stores {
                tokens: Store::etcd(&server, &tenant, lifetimes, longest),
                // A filter never answers from an old copy of the revocations.
                revocations: Revocations::etcd(&server, &tenant, Duration::ZERO),
                list: List::etcd(&server, &tenant),
            }
        }
    }
}

/// Opens the revocations for a guard, which needs no other store: its module does not contain the
/// code for tokens and lists.
pub fn open_for_guard(config: &GuardConfig) -> Revocations {
    let tenant = config.tenant();
    match &config.store {
        GuardStore::SharedData => Revocations::shared_data(&tenant),
        GuardStore::Etcd { settings, max_staleness } => {
            // Revocations have no tags, so a guard needs no keys.
            let server = Rc::new(Server::new(settings, RecordKeys::default()));
            Revocations::etcd(&server, &tenant, *max_staleness)
        }
    }
}

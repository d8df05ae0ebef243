//! A random secret that all workers of one Envoy share, and that nobody configures.
//!
//! The first worker that needs the secret makes it. Shared data has it from then on, so a worker
//! that starts later reads it there. It is lost with everything else in shared data.

use std::cell::OnceCell;

use super::keys::Keys;
use super::{Change, update};
use crate::host::{Host, HostFailure};
use crate::secret::Secret;

/// The number of attempts while other workers make the same secret.
const ATTEMPTS: usize = 8;

const CONTENDED: HostFailure = HostFailure("shared data: others write without end");

/// The secret of one service for one purpose.
#[derive(Debug)]
pub struct SharedSecret {
    key: String,
    read: OnceCell<Secret<[u8; 16]>>,
}

impl SharedSecret {
    /// The secret of the service of `tenant` for `purpose`.
    pub(crate) fn new(tenant: &str, purpose: &str) -> Self {
        Self { key: Keys::new(tenant).secret(purpose), read: OnceCell::new() }
    }

    /// Returns the secret. Makes it if no worker has made it yet.
    pub(crate) fn get(&self, host: &dyn Host) -> Result<&Secret<[u8; 16]>, HostFailure> {
        if let Some(secret) = self.read.get() {
            return Ok(secret);
        }
        let secret = update(host, &self.key, ATTEMPTS, |bytes| {
            if let Some(known) = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) {
                return Ok(Change::Keep(known));
            }
            let mut made = [0; 16];
            host.random(&mut made)?;
            Ok::<_, HostFailure>(Change::Write(made.to_vec(), made))
        });
        let secret = secret?.ok_or(CONTENDED)?;
        Ok(self.read.get_or_init(|| Secret::new(secret)))
    }
}

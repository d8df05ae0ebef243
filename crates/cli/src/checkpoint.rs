//! The signed checkpoints in an exported log: `export --seal` writes them, `verify` checks them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The lines between two checkpoints, at most.
pub(crate) const LINES: u64 = 1000;

/// The line of a checkpoint: a JWS (RFC 7515 §3.1) whose payload is a [`Checkpoint`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line<'a> {
    #[serde(rename = "impersonation_checkpoint")]
    pub(crate) jws: Cow<'a, str>,
}

impl Line<'_> {
    /// The beginning of each line that is meant as a checkpoint. No event begins like this.
    pub(crate) const BEGINNING: &'static [u8] = br#"{"impersonation_checkpoint""#;
}

/// The payload of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Checkpoint {
    /// The name of the log.
    pub(crate) log: String,
    /// The number of lines since the previous checkpoint.
    pub(crate) lines: u64,
    /// The hash of these lines, with their line feeds.
    pub(crate) digest: String,
    /// The hash of the previous checkpoint's JWS; `null` in the first.
    pub(crate) previous: Option<String>,
    /// The time of the checkpoint (RFC 3339).
    pub(crate) time: String,
}

/// The lines since the last checkpoint, and the checkpoint itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct Chain {
    hash: Sha256,
    pub(crate) lines: u64,
    pub(crate) previous: Option<String>,
}

impl Chain {
    /// Adds a line, with its line feed.
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.hash.update(line);
        self.lines = self.lines.saturating_add(1);
    }

    /// The hash of the lines since the last checkpoint.
    pub(crate) fn digest(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.hash.clone().finalize())
    }

    /// Begins after a checkpoint.
    pub(crate) fn follow(&mut self, jws: &str) {
        let previous = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(jws));
        *self = Self { previous: Some(previous), ..Self::default() };
    }
}

//! The output of an export, with a signed checkpoint after each thousand lines, at the end of each
//! hour, and at the end.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use impersonation_core::host::{Expected, Host, HostFailure, SharedData, Swap, Version};
use impersonation_core::jose::{AccessTokenType, PublishedKey, SigningKey};
use impersonation_core::one_line;
use impersonation_core::time::UnixTime;
use serde_json::Value;

use crate::checkpoint::{Chain, Checkpoint, LINES, Line};
use crate::{Failure, text_in};

const HOUR: u64 = 3600;

/// The state between two checkpoints.
pub(super) struct Sealer {
    key: SigningKey,
    log: String,
    chain: Chain,
    /// The hour in which the last line or checkpoint was written.
    hour: u64,
}

impl Sealer {
    /// Reads the private key from a file.
    pub(super) fn new(key: &Path, log: String) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(key.display(), error);
        let jwk: Value = serde_json::from_str(&text_in(key)?)
            .map_err(|_| failed(&"expected a private JWK, as `keygen --out` writes it"))?;
        let (_, private) =
            PublishedKey::from_jwk(&jwk, None, None).map_err(|error| failed(&error))?;
        let key = private.ok_or_else(|| failed(&"has only the public part of a key"))?;
        Ok(Self { key, log, chain: Chain::default(), hour: hour(now()) })
    }

    fn checkpoint(&mut self, now: UnixTime) -> io::Result<String> {
        let checkpoint = Checkpoint {
            log: self.log.clone(),
            lines: self.chain.lines,
            digest: self.chain.digest(),
            previous: self.chain.previous.clone(),
            time: now.rfc3339().to_string(),
        };
        let payload = serde_json::to_vec(&checkpoint)?;
        let jws = self.key.sign_jwt(&Here, None, AccessTokenType::Jwt, &payload);
        let jws = jws.map_err(io::Error::other)?;
        self.chain.follow(&jws);
        Ok(one_line(&Line { jws: jws.into() }))
    }
}

/// Events and checkpoints.
pub(super) struct Output<W: Write> {
    out: BufWriter<W>,
    sealer: Option<Sealer>,
}

/// The output is shared with the clock.
pub(super) type Shared<W> = Arc<Mutex<Output<W>>>;

impl<W: Write> Output<W> {
    pub(super) fn new(out: W, sealer: Option<Sealer>) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, out), sealer }
    }

    /// Writes a line, and the checkpoints that are due before and after it.
    pub(super) fn line(&mut self, mut line: String, now: UnixTime) -> io::Result<()> {
        self.tick(now)?;
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        let Some(sealer) = &mut self.sealer else { return Ok(()) };
        sealer.chain.add(line.as_bytes());
        if sealer.chain.lines >= LINES { self.seal(now) } else { Ok(()) }
    }

    /// Writes a checkpoint if an hour of the clock has ended.
    pub(super) fn tick(&mut self, now: UnixTime) -> io::Result<()> {
        let Some(sealer) = &mut self.sealer else { return Ok(()) };
        let hour = hour(now);
        if std::mem::replace(&mut sealer.hour, hour) == hour { Ok(()) } else { self.seal(now) }
    }

    /// Writes the last checkpoint.
    pub(super) fn end(&mut self, now: UnixTime) -> io::Result<()> {
        self.seal(now)?;
        self.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn seal(&mut self, now: UnixTime) -> io::Result<()> {
        let Some(sealer) = &mut self.sealer else { return Ok(()) };
        let checkpoint = sealer.checkpoint(now)?;
        writeln!(self.out, "{checkpoint}")
    }
}

impl<W: Write + Send + 'static> Output<W> {
    /// Shares the output with the clock, which seals it also while no line comes.
    pub(super) fn shared(self) -> Shared<W> {
        let is_sealed = self.sealer.is_some();
        let shared = Arc::new(Mutex::new(self));
        if is_sealed {
            let output = Arc::clone(&shared);
            thread::spawn(move || {
                loop {
                    let left = HOUR.saturating_sub(now().secs() % HOUR);
                    thread::sleep(Duration::from_secs(left));
                    let mut output = locked(&output);
                    // The next line meets the same error.
                    drop(output.tick(now()).and_then(|()| output.flush()));
                }
            });
        }
        shared
    }
}

/// A thread that panicked has written whole lines.
pub(super) fn locked<W: Write>(output: &Shared<W>) -> MutexGuard<'_, Output<W>> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn hour(time: UnixTime) -> u64 {
    time.secs().checked_div(HOUR).unwrap_or_default()
}

/// The host of a signature: the system's randomness.
struct Here;

impl SharedData for Here {
    fn get(&self, _: &str) -> Result<Option<(Vec<u8>, Version)>, HostFailure> {
        Err(HostFailure("shared data"))
    }

    fn compare_and_set(&self, _: &str, _: &[u8], _: Expected) -> Result<Swap, HostFailure> {
        Err(HostFailure("shared data"))
    }
}

impl Host for Here {
    fn now(&self) -> UnixTime {
        now()
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostFailure> {
        getrandom::fill(buffer).map_err(|_| HostFailure("randomness"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Line;

    fn sealed() -> Output<Vec<u8>> {
        let jwk = testkit::configuration::SIGNING_KEY.private_jwk();
        let (_, key) = PublishedKey::from_jwk(&jwk, None, None).unwrap();
        let sealer =
            Sealer { key: key.unwrap(), log: "log".into(), chain: Chain::default(), hour: 0 };
        Output::new(Vec::new(), Some(sealer))
    }

    fn is_checkpoint(line: &str) -> bool {
        serde_json::from_str::<Line<'_>>(line).is_ok()
    }

    #[test]
    fn an_hour_ends_with_a_checkpoint() {
        let mut output = sealed();
        let at = |minutes: u64| UnixTime::from_millis(minutes.checked_mul(60_000).unwrap());
        output.line("{}".to_owned(), at(1)).unwrap();
        output.tick(at(59)).unwrap();
        output.line("{}".to_owned(), at(61)).unwrap();
        // An hour without lines has a checkpoint, too: nothing was left out.
        output.tick(at(121)).unwrap();
        output.tick(at(181)).unwrap();
        output.end(at(182)).unwrap();
        let written = String::from_utf8(output.out.into_inner().unwrap()).unwrap();
        let are_checkpoints: Vec<_> = written.lines().map(is_checkpoint).collect();
        assert_eq!(are_checkpoints, [false, true, false, true, true, true]);
    }
}

//! `verify`: checks an exported log against its signed checkpoints.

use std::io::{self, BufRead, BufReader, Write as _};
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use clap::Args;
use impersonation_core::jose::{Algorithm, KeySet, UntrustedJwt};
use serde_json::{Value, json};

use super::{Failure, Verdict, open, text_in};
use crate::checkpoint::{Chain, Checkpoint, Line};

/// The longest line that is read. An event is shorter.
const LONGEST: u64 = 16 << 20;

/// Checks that nobody has changed, removed, added or moved a line of an exported log.
///
///     impersonation-filter verify --key seal.jwks.json events.ndjson
///
/// Says which lines are not as the checkpoints of `export --seal` say. Lines after the last
/// checkpoint prove nothing. The exit status is 0 if everything up to the last checkpoint is whole,
/// 1 if it is not, or if there is no checkpoint, and 2 if the file cannot be read.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// The public key: a JWK set, as `keygen --public-out` writes it, or one JWK.
    #[arg(long, value_name = "PUBLIC")]
    key: PathBuf,
    /// The exported log; `-` is standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let keys = key_set(arguments)?;
    let failed = |error| Failure::new(arguments.file.display(), error);
    let mut input = BufReader::with_capacity(1 << 20, open(&arguments.file).map_err(failed)?);
    let mut check = Check::new(keys);
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut input, LONGEST).read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        check.line(&line);
    }
    let mut out = io::stdout().lock();
    for finding in &check.findings {
        writeln!(out, "{finding}")?;
    }
    let Some(last) = &check.last else {
        writeln!(out, "there is no checkpoint: nothing proves that these lines are whole")?;
        return Ok(Verdict::Problems);
    };
    if check.findings.is_empty() {
        writeln!(
            out,
            "the log {:?} is whole until line {}, {}: {} lines, {} checkpoints",
            last.log, check.sealed_until, last.time, check.sealed, check.checkpoints
        )?;
    }
    if check.chain.lines > 0 {
        writeln!(
            out,
            "{} lines come after the last checkpoint: they prove nothing",
            check.chain.lines
        )?;
    }
    Ok(if check.findings.is_empty() { Verdict::Fine } else { Verdict::Problems })
}

fn key_set(arguments: &Arguments) -> Result<KeySet, Failure> {
    let text = text_in(&arguments.key)?;
    let parsed: Option<Value> = serde_json::from_str(&text).ok();
    let set = parsed.map(|it| if it.get("keys").is_some() { it } else { json!({"keys": [it]}) });
    let set = set.and_then(|set| KeySet::parse(set.to_string().as_bytes()));
    let expected = "expected a public JWK set, as `keygen --public-out` writes it, or one JWK";
    set.ok_or_else(|| Failure::new(arguments.key.display(), expected))
}

/// The lines that were read so far.
struct Check {
    keys: KeySet,
    chain: Chain,
    /// The number of the last line, and of the last line that a checkpoint covers.
    number: u64,
    sealed_until: u64,
    /// The events and the checkpoints that are covered.
    sealed: u64,
    checkpoints: u64,
    /// The last checkpoint that the key has signed.
    last: Option<Checkpoint>,
    findings: Vec<String>,
}

impl Check {
    fn new(keys: KeySet) -> Self {
        Self {
            keys,
            chain: Chain::default(),
            number: 0,
            sealed_until: 0,
            sealed: 0,
            checkpoints: 0,
            last: None,
            findings: Vec::new(),
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.number = self.number.saturating_add(1);
        if !line.starts_with(Line::BEGINNING) {
            self.chain.add(line);
            return;
        }
        match self.signed(line) {
            Some((jws, checkpoint)) => self.checkpoint(&jws, checkpoint),
            None => {
                let number = self.number;
                self.findings
                    .push(format!("line {number}: the key has not signed this checkpoint"));
            }
        }
    }

    /// Reads a checkpoint that one of the keys has signed.
    fn signed(&self, line: &[u8]) -> Option<(String, Checkpoint)> {
        let Line { jws } = serde_json::from_slice(line).ok()?;
        let token = UntrustedJwt::parse(&jws)?;
        let algorithm = Algorithm::from_name(token.algorithm())?;
        let (message, _) = jws.rsplit_once('.')?;
        let (_, payload) = message.split_once('.')?;
        let [payload, signature] =
            [payload, jws.rsplit_once('.')?.1].map(|part| BASE64_URL_SAFE_NO_PAD.decode(part));
        let (payload, signature) = (payload.ok()?, signature.ok()?);
        let mut keys = self.keys.candidates(algorithm, token.key_id());
        keys.find(|key| key.verify(None, algorithm, message.as_bytes(), &signature))?;
        Some((jws.clone().into_owned(), serde_json::from_slice(&payload).ok()?))
    }

    fn checkpoint(&mut self, jws: &str, checkpoint: Checkpoint) {
        let number = self.number;
        let first = self.sealed_until.saturating_add(1);
        let lines = format!("lines {first} to {}", number.saturating_sub(1));
        let log = self.last.as_ref().map(|last| &last.log);
        if log.is_some_and(|log| *log != checkpoint.log) {
            self.findings.push(format!(
                "line {number}: this checkpoint is of another log: {:?}",
                checkpoint.log
            ));
        }
        if checkpoint.previous != self.chain.previous {
            self.findings.push(format!(
                "line {number}: the checkpoint before this one is missing, or was moved"
            ));
        }
        let (counted, told) = (self.chain.lines, checkpoint.lines);
        if counted != told {
            self.findings.push(format!("{lines}: {counted} lines, but {told} were written"));
        } else if self.chain.digest() != checkpoint.digest {
            self.findings.push(format!("{lines}: a line was changed or moved"));
        }
        self.sealed = self.sealed.saturating_add(counted);
        self.checkpoints = self.checkpoints.saturating_add(1);
        self.sealed_until = number;
        self.chain.follow(jws);
        self.last = Some(checkpoint);
    }
}

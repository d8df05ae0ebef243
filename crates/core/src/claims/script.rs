//! A script and its engine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use quickjs_rewind::{CallError, Exception, Function, Host, LoadError, Next, Output};
use serde_json::{Map, Value};

use super::{ClaimsError, CompileError, Input, Limits, Thrown, reserved};

/// The function that a script declares.
const NAME: &str = "getCustomJwtClaims";

/// The function that decides about mints.
const AUTHORIZER: &str = "authorizeSubjectToken";

/// To run a script's top level, once. Envoy is not serving yet, or still serves by the old configuration: on a machine
/// that is busy with starting, a script that behaves must not be taken for one that loops.
const LOAD_TIME: Duration = Duration::from_secs(5);

/// How deep a script can go: some seven hundred calls in wasm. Natively frames are smaller, and less of
/// them fit: whoever tries a script there is not to be promised more than Envoy keeps.
const STACK_BYTES: usize = if cfg!(target_arch = "wasm32") { 512 * 1024 } else { 256 * 1024 };
/// How deep it can be nested. The compiler's recursion has none of the room that `quickjs-wasm.h` makes
/// for the others: it is let go only as deep as its frames on the VM's own stack are known to fit.
const COMPILE_STACK_BYTES: usize =
    if cfg!(target_arch = "wasm32") { 24 * 1024 } else { STACK_BYTES };

/// A line of `console.log` is cut at this, and a call's lines after this many.
const LOG_LINE_BYTES: usize = 1024;
const LOG_LINES: usize = 32;

/// The longest `error_description` that a script can send.
const DENIAL_CHARACTERS: usize = 200;

/// A script that has been found fit to be called. It remembers nothing from call to call.
pub struct Script {
    function: RefCell<Function>,
    surroundings: Rc<Surroundings>,
}

impl Script {
    /// Compiles a script, and runs what is outside of its functions.
    pub fn compile(
        source: &str,
        limits: &Limits,
        environment_variables: &BTreeMap<String, String>,
    ) -> Result<Self, CompileError> {
        Self::load(NAME, source, Output::Stringified, limits, environment_variables)
    }

    /// The same for a script that declares `authorizeSubjectToken`. What it returns is held to every word: a bound that
    /// JSON leaves out would be none.
    pub(super) fn compile_authorizer(
        source: &str,
        limits: &Limits,
        environment_variables: &BTreeMap<String, String>,
    ) -> Result<Self, CompileError> {
        Self::load(AUTHORIZER, source, Output::Exact, limits, environment_variables)
    }

    fn load(
        name: &'static str,
        source: &str,
        output: Output,
        limits: &Limits,
        environment_variables: &BTreeMap<String, String>,
    ) -> Result<Self, CompileError> {
        let surroundings = Rc::new(Surroundings::new());
        let host: Rc<dyn Host> = surroundings.clone();
        let limits = quickjs_rewind::Limits {
            time: limits.timeout,
            load_time: LOAD_TIME,
            memory_bytes: limits.memory_bytes,
            stack_bytes: STACK_BYTES,
            compile_stack_bytes: COMPILE_STACK_BYTES,
            output_bytes: limits.output_bytes,
        };
        let prelude = prelude(environment_variables);
        let function =
            Function::load(name, source, &prelude, &host, output, limits).map_err(|error| {
                match error {
                    LoadError::Threw(exception) => {
                        let Thrown { message, position } = thrown(exception);
                        CompileError { message, position }
                    }
                    LoadError::NoFunction(_) => CompileError {
                        message: error.to_string(),
                        position: Some(looked_for(name, source)),
                    },
                    error => CompileError { message: error.to_string(), position: None },
                }
            })?;
        Ok(Self { function: RefCell::new(function), surroundings })
    }

    /// Calls the function. What it logs comes before the result, line by line.
    pub fn run(
        &self,
        input: &Input<'_>,
        log: &mut dyn FnMut(&str),
    ) -> Result<Map<String, Value>, ClaimsError> {
        let json = self.call(&json(input), log)?.ok_or(ClaimsError::NotAnObject)?;
        reserved::read(&json)
    }

    /// Calls the function with an object, as JSON. `None` where it returns nothing.
    pub(super) fn call(
        &self,
        input: &str,
        log: &mut dyn FnMut(&str),
    ) -> Result<Option<String>, ClaimsError> {
        // Nothing that a call does comes back here, so nobody else has it.
        let Ok(mut function) = self.function.try_borrow_mut() else {
            return Err(ClaimsError::StackOverflow);
        };
        self.surroundings.forget();
        let result = function.call(input);
        for line in self.surroundings.log.take() {
            log(&line);
        }
        match result {
            Ok(json) => Ok(Some(json)),
            Err(CallError::Nothing) => Ok(None),
            Err(CallError::Stopped) => Err(ClaimsError::Denied(self.surroundings.denial.take())),
            Err(CallError::TimedOut) => Err(ClaimsError::TimedOut),
            Err(CallError::OutOfMemory) => Err(ClaimsError::OutOfMemory),
            Err(CallError::StackOverflow) => Err(ClaimsError::StackOverflow),
            Err(CallError::NeverResolved) => Err(ClaimsError::NeverResolved),
            Err(CallError::Threw(exception)) => Err(ClaimsError::Threw(thrown(exception))),
            Err(CallError::NotSerializable(exception)) => {
                Err(ClaimsError::NotSerializable(thrown(exception)))
            }
            Err(CallError::NotJson) => Err(ClaimsError::NotAnObject),
            Err(CallError::TooLong) => Err(ClaimsError::TooLarge),
        }
    }
}

/// Secrets may be among the environment variables.
impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

/// What a script reaches beyond its engine.
struct Surroundings {
    started: Instant,
    denial: RefCell<String>,
    log: RefCell<Vec<String>>,
    lines_left: Cell<usize>,
}

impl Surroundings {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            denial: RefCell::default(),
            log: RefCell::default(),
            lines_left: Cell::new(LOG_LINES),
        }
    }

    fn forget(&self) {
        self.denial.take();
        self.log.take();
        self.lines_left.set(LOG_LINES);
    }
}

impl Host for Surroundings {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a float has")]
    fn random(&self) -> f64 {
        const BITS: u32 = f64::MANTISSA_DIGITS;
        let random = getrandom::u64().unwrap_or(0) >> u64::BITS.saturating_sub(BITS);
        random as f64 * 0.5_f64.powi(BITS.cast_signed())
    }

    fn receive(&self, channel: &str, text: &str) -> Next {
        if channel == "deny" {
            let mut said = self.denial.borrow_mut();
            if said.is_empty() {
                *said = denial(text);
            }
            return Next::Stop;
        }
        if let Some(left) = self.lines_left.get().checked_sub(1) {
            self.lines_left.set(left);
            self.log.borrow_mut().push(one_line(text, LOG_LINE_BYTES));
        }
        Next::Continue
    }
}

fn prelude(environment_variables: &BTreeMap<String, String>) -> String {
    // JSON within a string literal: as JavaScript, an object with a member `__proto__` has no such member.
    let environment = serde_json::to_string(environment_variables)
        .and_then(|json| serde_json::to_string(&json))
        .unwrap_or_default();
    let prelude = include_str!("prelude.js").trim_end();
    format!("(host) => ({prelude})(host, JSON.parse({environment}))")
}

fn json(input: &Input<'_>) -> String {
    let Input { token, grant_type, subject_token_context } = input;
    let grant_type = Value::from(*grant_type);
    format!(
        r#"{{"token":{token},"context":{{"grant":{{"type":{grant_type},"subjectTokenContext":{subject_token_context}}}}}}}"#
    )
}

fn thrown(Exception { message, position }: Exception) -> Thrown {
    Thrown { message: one_line(&message, LOG_LINE_BYTES), position }
}

/// Where a script that does not declare the function has something else of its name, or where it ends.
fn looked_for(name: &str, source: &str) -> (u32, u32) {
    let (before, _) = source.split_once(name).unwrap_or((source, ""));
    let from_one = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (from_one(before.matches('\n').count()), from_one(line.chars().count()))
}

/// A script's text in a log: without line breaks, with which it could forge other lines, and cut.
fn one_line(text: &str, longest: usize) -> String {
    let mut line = String::with_capacity(text.len().min(longest));
    for character in text.chars() {
        let character = if character.is_control() { ' ' } else { character };
        if line.len().saturating_add(character.len_utf8()) > longest {
            break;
        }
        line.push(character);
    }
    line
}

/// A script's text in an `error_description` (RFC 6749 §5.2): ASCII without `"` and `\`, and cut.
fn denial(text: &str) -> String {
    if text.trim().is_empty() {
        return "access denied".into();
    }
    text.chars()
        .take(DENIAL_CHARACTERS)
        .map(|character| match character {
            '"' => '\'',
            '\\' => '/',
            ' '..='~' => character,
            _ if character.is_control() || character.is_whitespace() => ' ',
            _ => '?',
        })
        .collect()
}

#[cfg(test)]
mod tests;

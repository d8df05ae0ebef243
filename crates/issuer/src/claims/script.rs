//! An operator's script in its engine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use quickjs_rewind::{CallError, Exception, Function, Host, LoadError, Next, Output};
use serde_json::{Map, Value};

use super::{ClaimsError, CompileError, Input, Limits, Thrown, reserved};

/// The function that adds claims.
const NAME: &str = "getCustomJwtClaims";

/// The function that decides about mints.
const AUTHORIZER: &str = "authorizeSubjectToken";

/// The time limit for a script's top-level code, which runs once. Meanwhile Envoy is not serving
/// yet, or serves by the old configuration. The limit is generous, so that on a machine that is
/// busy with starting a good script is not taken for one that loops.
const LOAD_TIME: Duration = Duration::from_secs(5);

/// The stack of a script: some seven hundred nested calls in Wasm. A native build has smaller
/// frames and gets a smaller stack, so that a script that works there also works in Envoy.
const STACK_BYTES: usize = if cfg!(target_arch = "wasm32") { 512 * 1024 } else { 256 * 1024 };
/// The stack of the compiler, which limits how deeply source code can be nested. The compiler
/// recurses on the VM's own stack, without the room that `quickjs-wasm.h` makes for other
/// recursion. The limit is a depth at which its frames are known to fit.
const COMPILE_STACK_BYTES: usize =
    if cfg!(target_arch = "wasm32") { 24 * 1024 } else { STACK_BYTES };

/// The length at which a line of `console.log` is cut.
const LOG_LINE_BYTES: usize = 1024;

/// How many lines a call can log.
const LOG_LINES: usize = 32;

/// The longest `error_description` that a script can send.
const DENIAL_CHARACTERS: usize = 200;

/// A compiled script. It keeps nothing from call to call.
pub struct Script {
    function: RefCell<Function>,
    host: Rc<ScriptHost>,
}

impl Script {
    /// Compiles a script that declares `getCustomJwtClaims`, and runs its top-level code.
    pub fn compile(
        source: &str,
        limits: &Limits,
        environment_variables: &BTreeMap<String, String>,
    ) -> Result<Self, CompileError> {
        Self::load(NAME, source, Output::Stringified, limits, environment_variables)
    }

    /// Compiles a script that declares `authorizeSubjectToken`, and runs its top-level code. The
    /// returned object must equal its JSON exactly: a bound that JSON drops would not bind.
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
        let host = Rc::new(ScriptHost::new());
        let engine_host: Rc<dyn Host> = host.clone();
        let limits = quickjs_rewind::Limits {
            time: limits.timeout,
            load_time: LOAD_TIME,
            memory_bytes: limits.memory_bytes,
            stack_bytes: STACK_BYTES,
            compile_stack_bytes: COMPILE_STACK_BYTES,
            output_bytes: limits.output_bytes,
        };
        let prelude = prelude(environment_variables);
        let function = Function::load(name, source, &prelude, &engine_host, output, limits)
            .map_err(|error| match error {
                LoadError::Threw(exception) => {
                    let Thrown { message, position } = thrown(exception);
                    CompileError { message, position }
                }
                LoadError::NoFunction(_) => CompileError {
                    message: error.to_string(),
                    position: Some(position_of(name, source)),
                },
                error => CompileError { message: error.to_string(), position: None },
            })?;
        Ok(Self { function: RefCell::new(function), host })
    }

    /// Calls `getCustomJwtClaims`. Passes each line that the function logs to `log`.
    pub fn run(
        &self,
        input: &Input<'_>,
        log: &mut dyn FnMut(&str),
    ) -> Result<Map<String, Value>, ClaimsError> {
        let json = self.call(&json(input), log)?.ok_or(ClaimsError::NotAnObject)?;
        reserved::read(&json)
    }

    /// Calls the function with an object as JSON, and returns its result as JSON; `None` if it
    /// returns nothing.
    pub(super) fn call(
        &self,
        input: &str,
        log: &mut dyn FnMut(&str),
    ) -> Result<Option<String>, ClaimsError> {
        // A script cannot call back into this function, so the borrow never fails.
        let Ok(mut function) = self.function.try_borrow_mut() else {
            return Err(ClaimsError::StackOverflow);
        };
        self.host.reset();
        let result = function.call(input);
        for line in self.host.log.take() {
            log(&line);
        }
        match result {
            Ok(json) => Ok(Some(json)),
            Err(CallError::Nothing) => Ok(None),
            Err(CallError::Stopped) => Err(ClaimsError::Denied(self.host.denial.take())),
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

/// Prints no contents: the environment variables may hold secrets.
impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

/// The host of a script: its clock, its random numbers, its log, and its denial.
struct ScriptHost {
    started: Instant,
    denial: RefCell<String>,
    log: RefCell<Vec<String>>,
    lines_left: Cell<usize>,
}

impl ScriptHost {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            denial: RefCell::default(),
            log: RefCell::default(),
            lines_left: Cell::new(LOG_LINES),
        }
    }

    fn reset(&self) {
        self.denial.take();
        self.log.take();
        self.lines_left.set(LOG_LINES);
    }
}

impl Host for ScriptHost {
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
    // The JSON is passed in a string literal. As a JavaScript object literal, it would lose a
    // member that is named `__proto__`.
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

/// The position at which a script without the function mentions its name, or the end of the script.
fn position_of(name: &str, source: &str) -> (u32, u32) {
    let (before, _) = source.split_once(name).unwrap_or((source, ""));
    let from_one = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (from_one(before.matches('\n').count()), from_one(line.chars().count()))
}

/// Makes one line of a script's text for the log, and cuts it. Line breaks could forge other lines.
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

/// Makes an `error_description` of a script's text (RFC 6749 §5.2): ASCII without `"` and `\`, and
/// cut.
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

//! The function and its engine: loaded once, called often, and put back after each call.

use std::mem::ManuallyDrop;
use std::rc::Rc;

use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::promise::PromiseState;
use rquickjs::{Array, Context, Ctx, FromJs, Object, Persistent, Promise, Runtime, Value};

use crate::bounds::{Ended, Host, Limits, Next, Output, Watch};
use crate::heap::{Heap, HeapAllocator, Snapshot};

/// All intrinsics except `performance` (a second clock), `DOMException`, and those that need
/// threads.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
    intrinsic::WeakRef,
);

/// The engine's memory before any script runs, with room to spare.
const ENGINE_BYTES: usize = 256 * 1024;

/// The name of the script in stack traces.
const SCRIPT: &str = "script";

/// A value that JavaScript code threw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// The name and message from the script, at most some thousand characters.
    pub message: String,
    /// The line and column in the script, counted from 1.
    pub position: Option<(u32, u32)>,
}

/// The reason why a script cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The script does not compile, or its top level throws.
    #[error("{}", .0.message)]
    Threw(Exception),
    /// The script does not compile: brackets are nested hundreds deep.
    #[error("the script is nested too deep")]
    NestedTooDeep,
    /// The script declares no function of this name.
    #[error("the script declares no function {0}")]
    NoFunction(String),
    /// The script's top level took too long.
    #[error("the script takes too long to load")]
    TimedOut,
    /// The script's top level took too much memory.
    #[error("the script takes too much memory to load")]
    OutOfMemory,
}

/// The reason why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The host answered [`Next::Stop`].
    #[error("stopped by the host")]
    Stopped,
    /// The call took too long.
    #[error("timed out")]
    TimedOut,
    /// The call took too much memory, even if the script caught the exception.
    #[error("out of memory")]
    OutOfMemory,
    /// The call recursed too deep.
    #[error("stack overflow")]
    StackOverflow,
    /// The function returned a promise that nothing can settle any more.
    #[error("the promise never resolves")]
    NeverResolved,
    /// The function threw, or rejected its promise.
    #[error("{}", .0.message)]
    Threw(Exception),
    /// The conversion of the result to JSON threw.
    #[error("no JSON: {}", .0.message)]
    NotSerializable(Exception),
    /// The function returned `undefined`, as a function without `return` does.
    #[error("nothing")]
    Nothing,
    /// The result has no form in JSON: a function or a symbol.
    #[error("no JSON")]
    NotJson,
    /// The result is longer than allowed.
    #[error("the result is too long")]
    TooLong,
}

/// A JavaScript function that keeps no state between calls.
pub struct Function {
    // Declared before the runtime, which must be dropped last.
    roots: Roots<Persistent<rquickjs::Function<'static>>>,
    context: Context,
    heap: Rc<Heap>,
    snapshot: Snapshot,
    watch: Rc<Watch>,
    limits: Limits,
}

/// The functions that the engine keeps alive. The host's own functions are among them because their
/// closures are outside the heap. If a script could have one collected, rewinding the heap would
/// bring back a function without its closure.
#[derive(Clone)]
struct Roots<F> {
    enter: F,
    wait: F,
    finish: F,
    describe: F,
    _send: F,
    _random: F,
    _look: F,
    _is_proxy: F,
}

impl Function {
    /// Runs the top level of `source`, and finds the function `name` that it declares.
    ///
    /// `prelude` is JavaScript that runs before the script: an expression whose value is a
    /// function. The function gets the host as an object with `send(channel, text)`, `random()` and
    /// `look()` (which throws when the call is over). It returns a function that converts the
    /// argument of [`Function::call`] to the script's argument.
    pub fn load(
        name: &str,
        source: &str,
        prelude: &str,
        host: &Rc<dyn Host>,
        output: Output,
        limits: Limits,
    ) -> Result<Self, LoadError> {
        let watch = Rc::new(Watch::new(Rc::clone(host)));
        let bytes = limits.memory_bytes.saturating_add(ENGINE_BYTES);
        let heap = Heap::new(bytes, Rc::clone(&watch)).ok_or(LoadError::OutOfMemory)?;
        let runtime = Runtime::new_with_alloc(HeapAllocator(Rc::clone(&heap)))
            .map_err(|_| LoadError::OutOfMemory)?;
        let context =
            Context::custom::<Intrinsics>(&runtime).map_err(|_| LoadError::OutOfMemory)?;
        let interrupt = Rc::clone(&watch);
        runtime.set_interrupt_handler(Some(Box::new(move || interrupt.is_over())));

        watch.start(limits.load_time);
        runtime.set_max_stack_size(limits.compile_stack_bytes);
        let compiles = context.with(|ctx| compiles(&ctx, source));
        if compiles {
            runtime.set_max_stack_size(limits.stack_bytes);
        }
        let roots = context.with(|ctx| {
            load(&ctx, name, source, prelude, host, output, &watch).map_err(|failure| {
                match watch.ended() {
                    Some(Ended::TimedOut | Ended::Stopped) => LoadError::TimedOut,
                    Some(Ended::OutOfMemory) => LoadError::OutOfMemory,
                    None if !compiles && is_too_deep(&failure) => LoadError::NestedTooDeep,
                    None => failure,
                }
            })
        })?;
        runtime.set_max_stack_size(limits.stack_bytes);
        runtime.run_gc();
        let snapshot = heap.snapshot();
        Ok(Self { roots, context, heap, snapshot, watch, limits })
    }

    /// Calls the function with this JSON. Returns the value that it returns or resolves to, as
    /// JSON.
    pub fn call(&mut self, json: &str) -> Result<String, CallError> {
        let rewind = Rewind { heap: &self.heap, snapshot: &self.snapshot };
        self.watch.start(self.limits.time);
        let result = self.context.with(|ctx| {
            let result = call(&ctx, &self.roots, json, &self.watch, self.limits.output_bytes);
            match self.watch.ended() {
                Some(Ended::Stopped) => Err(CallError::Stopped),
                Some(Ended::TimedOut) => Err(CallError::TimedOut),
                Some(Ended::OutOfMemory) => Err(CallError::OutOfMemory),
                None => result,
            }
        });
        drop(rewind);
        result
    }
}

/// Puts the heap back when it is dropped, even if a panic ends the call.
struct Rewind<'a> {
    heap: &'a Heap,
    snapshot: &'a Snapshot,
}

impl Drop for Rewind<'_> {
    #[expect(unsafe_code, reason = "only here is it known that the call is over")]
    fn drop(&mut self) {
        // SAFETY: `call` returns plain data, and nothing with the lifetime of its `Ctx` leaves
        // `Context::with`. The natives take only strings, and keep none of them. Only the handles
        // that `load` made before the snapshot outlive the call: the context, the roots, and the
        // one prototype that rquickjs keeps for native functions. Native functions are the only
        // objects whose finalizers free memory elsewhere. They are roots, so none was freed.
        unsafe { self.heap.rewind(self.snapshot) }
    }
}

type JsFunction<'js> = rquickjs::Function<'js>;

/// Compiles the script as the body of a function, so that none of it runs. A script that does not
/// compile gets no more stack when it is then compiled as a script to learn the reason.
fn compiles(ctx: &Ctx<'_>, source: &str) -> bool {
    evaluate::<Value<'_>>(ctx, SCRIPT, &format!("(function () {{\n{source}\n}})")).is_ok()
}

fn is_too_deep(error: &LoadError) -> bool {
    matches!(error, LoadError::Threw(exception) if is_stack_overflow(exception))
}

fn load<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    source: &str,
    prelude: &str,
    host: &Rc<dyn Host>,
    output: Output,
    watch: &Rc<Watch>,
) -> Result<Roots<Persistent<JsFunction<'static>>>, LoadError> {
    // None of the script has run before `describe` exists.
    let broken = |_| LoadError::OutOfMemory;
    let engine: Object<'_> = evaluate(ctx, "engine", include_str!("engine.js")).map_err(broken)?;
    let describe: JsFunction<'_> = engine.get("describe").map_err(broken)?;
    let threw = |_| LoadError::Threw(exception(ctx, &describe));

    let native = Object::new(ctx.clone()).map_err(threw)?;
    let send = send(ctx, host, watch).map_err(threw)?;
    let random = random(ctx, host).map_err(threw)?;
    let look = look(ctx, watch).map_err(threw)?;
    let is_proxy = is_proxy(ctx).map_err(threw)?;
    let finish: JsFunction<'_> = match output {
        Output::Stringified => engine.get("finish").map_err(threw)?,
        Output::Exact => {
            let finish: JsFunction<'_> = engine.get("finishExactly").map_err(threw)?;
            finish.call((is_proxy.clone(),)).map_err(threw)?
        }
    };
    native.set("send", send.clone()).map_err(threw)?;
    native.set("random", random.clone()).map_err(threw)?;
    native.set("look", look.clone()).map_err(threw)?;
    let prelude: JsFunction<'_> = evaluate(ctx, "prelude", prelude).map_err(threw)?;
    let prepare: JsFunction<'_> = prelude.call((native,)).map_err(threw)?;

    evaluate::<Value<'_>>(ctx, SCRIPT, source).map_err(threw)?;
    while ctx.execute_pending_job() && watch.ended().is_none() {}
    let callee = format!("typeof {name} === 'function' ? {name} : undefined");
    let callee = evaluate::<Option<JsFunction<'_>>>(ctx, "engine", &callee).map_err(threw)?;
    let callee = callee.ok_or_else(|| LoadError::NoFunction(name.to_owned()))?;
    if watch.is_over() {
        return Err(LoadError::TimedOut);
    }

    let enter: JsFunction<'_> = engine.get("enter").map_err(threw)?;
    let keep = |function| Persistent::save(ctx, function);
    Ok(Roots {
        enter: keep(enter.call((prepare, callee)).map_err(threw)?),
        wait: keep(engine.get("wait").map_err(threw)?),
        finish: keep(finish),
        describe: keep(describe),
        _send: keep(send),
        _random: keep(random),
        _look: keep(look),
        _is_proxy: keep(is_proxy),
    })
}

/// Evaluates source as a script, not a module: it is not strict unless it says so.
fn evaluate<'js, V: FromJs<'js>>(ctx: &Ctx<'js>, name: &str, source: &str) -> rquickjs::Result<V> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(name.to_owned());
    ctx.eval_with_options(source, options)
}

fn send<'js>(
    ctx: &Ctx<'js>,
    host: &Rc<dyn Host>,
    watch: &Rc<Watch>,
) -> rquickjs::Result<JsFunction<'js>> {
    let (host, watch) = (Rc::clone(host), Rc::clone(watch));
    JsFunction::new(ctx.clone(), move |ctx: Ctx<'js>, channel: String, text: String| {
        match host.receive(&channel, &text) {
            Next::Continue => Ok(()),
            Next::Stop => {
                watch.end(Ended::Stopped);
                Err(rquickjs::Exception::throw_message(&ctx, "stopped"))
            }
        }
    })
}

fn random<'js>(ctx: &Ctx<'js>, host: &Rc<dyn Host>) -> rquickjs::Result<JsFunction<'js>> {
    let host = Rc::clone(host);
    JsFunction::new(ctx.clone(), move || host.random())
}

fn look<'js>(ctx: &Ctx<'js>, watch: &Rc<Watch>) -> rquickjs::Result<JsFunction<'js>> {
    let watch = Rc::clone(watch);
    JsFunction::new(ctx.clone(), move |ctx: Ctx<'js>| match watch.is_over() {
        true => Err(rquickjs::Exception::throw_message(&ctx, "over")),
        false => Ok(()),
    })
}

fn is_proxy<'js>(ctx: &Ctx<'js>) -> rquickjs::Result<JsFunction<'js>> {
    JsFunction::new(ctx.clone(), |value: Value<'js>| value.is_proxy())
}

fn call(
    ctx: &Ctx<'_>,
    roots: &Roots<Persistent<JsFunction<'static>>>,
    json: &str,
    watch: &Watch,
    output_bytes: usize,
) -> Result<String, CallError> {
    // The roots belong to this runtime, so restoring them does not fail.
    let root = |root: &Persistent<JsFunction<'static>>| {
        root.clone().restore(ctx).map_err(|_| CallError::NotJson)
    };
    let threw = |_| match root(&roots.describe).map(|describe| exception(ctx, &describe)) {
        Ok(exception) if is_stack_overflow(&exception) => CallError::StackOverflow,
        Ok(exception) => CallError::Threw(exception),
        Err(error) => error,
    };

    // Do not free the values of a call one by one: the rewind undoes them all.
    let input = ManuallyDrop::new(ctx.json_parse(json).map_err(threw)?);
    let returned: Value<'_> = root(&roots.enter)?.call((&*input,)).map_err(threw)?;
    let returned = ManuallyDrop::new(returned);
    let settled = match settled(ctx, &returned, watch) {
        Some(settled) => Some(settled),
        None => {
            let promise: Promise<'_> = root(&roots.wait)?.call((&*returned,)).map_err(threw)?;
            let promise = ManuallyDrop::new(promise);
            run_jobs(ctx, &promise, watch);
            promise.result()
        }
    };
    let value: Value<'_> = settled.ok_or(CallError::NeverResolved)?.map_err(threw)?;
    let value = ManuallyDrop::new(value);
    if value.is_undefined() {
        return Err(CallError::Nothing);
    }

    let json: Value<'_> =
        root(&roots.finish)?.call((&*value, output_bytes)).map_err(|error| match threw(error) {
            CallError::Threw(exception) => CallError::NotSerializable(exception),
            error => error,
        })?;
    if json.is_undefined() {
        return Err(CallError::NotJson);
    }
    // A number here is the length of JSON that is too long.
    let json = json.as_string().ok_or(CallError::TooLong)?;
    let json = json.to_string().map_err(threw)?;
    if json.len() > output_bytes { Err(CallError::TooLong) } else { Ok(json) }
}

/// Returns the result of a promise that settles without other pending jobs, as that of an async
/// function usually does. This saves awaiting it. Returns `None` for everything that must be
/// awaited.
fn settled<'js>(
    ctx: &Ctx<'js>,
    returned: &Value<'js>,
    watch: &Watch,
) -> Option<rquickjs::Result<Value<'js>>> {
    let promise = returned.as_promise()?;
    run_jobs(ctx, promise, watch);
    // Awaiting the promise would first run every job that is already waiting.
    let is_alone = promise.state() == PromiseState::Pending || !ctx.execute_pending_job();
    if is_alone { promise.result() } else { None }
}

/// Runs jobs until the promise is settled, or cannot be settled.
fn run_jobs<'js>(ctx: &Ctx<'js>, promise: &Promise<'js>, watch: &Watch) {
    while promise.state() == PromiseState::Pending
        && watch.ended().is_none()
        && ctx.execute_pending_job()
    {}
}

/// Returns the exception that was thrown last.
fn exception<'js>(ctx: &Ctx<'js>, describe: &JsFunction<'js>) -> Exception {
    let unreadable =
        || Exception { message: "an error that cannot be read".into(), position: None };
    let Ok(described) = describe.call::<_, Array<'_>>((ctx.catch(),)) else { return unreadable() };
    match (described.get::<String>(0), described.get::<String>(1)) {
        (Ok(message), Ok(stack)) => Exception { message, position: position(&stack) },
        _ => unreadable(),
    }
}

/// Finds the position of the innermost frame in the script: `    at name (script:3:14)`.
fn position(stack: &str) -> Option<(u32, u32)> {
    stack.lines().find_map(|frame| {
        let (_, frame) = frame.rsplit_once(SCRIPT)?;
        let (line, column) = frame.trim_end_matches(')').strip_prefix(':')?.split_once(':')?;
        Some((line.parse().ok()?, column.parse().ok()?))
    })
}

/// QuickJS has one message for its own recursion and another for that of regular expressions.
fn is_stack_overflow(exception: &Exception) -> bool {
    ["RangeError: Maximum call stack size exceeded", "SyntaxError: stack overflow"]
        .contains(&exception.message.as_str())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    struct Here(Instant);

    impl Host for Here {
        fn now(&self) -> Duration {
            self.0.elapsed()
        }

        fn random(&self) -> f64 {
            0.5
        }

        fn receive(&self, channel: &str, text: &str) -> Next {
            assert_eq!((channel, text), ("channel", "text"));
            Next::Stop
        }
    }

    const LIMITS: Limits = Limits {
        time: Duration::from_millis(50),
        load_time: Duration::from_secs(1),
        memory_bytes: 1024 * 1024,
        stack_bytes: 256 * 1024,
        compile_stack_bytes: 256 * 1024,
        output_bytes: 100,
    };

    fn load(source: &str) -> Function {
        let host: Rc<dyn Host> = Rc::new(Here(Instant::now()));
        load_with(source, Output::Stringified, &host)
    }

    fn load_with(source: &str, output: Output, host: &Rc<dyn Host>) -> Function {
        let prelude = "(host) => (input) => ({ ...host, ...input })";
        Function::load("f", source, prelude, host, output, LIMITS).expect(source)
    }

    #[test]
    fn every_call_leaves_every_byte_as_it_was() {
        let mut function = load(
            "const kept = [], f = async (input) => {
               kept.push(input.random()); Object.prototype.x = kept; globalThis[`y${input.what}`] = kept;
               const { what } = input;
               delete input.host; input = f.call = Array = Promise.prototype.then = undefined;
               if (what === 'loop') for (;;);
               if (what === 'recurse') (function g() { g(); })();
               if (what === 'memory') for (;;) kept.push([[]]);
               if (what === 'throw') throw kept;
               if (what === 'wait') await new Promise(() => {});
               if (what === 'long') return 'x'.repeat(200);
               if (what === 'send') input.send('channel', 'text');
               return kept.length;
             };",
        );
        let before = function.heap.bytes();
        for what in ["", "loop", "recurse", "memory", "throw", "wait", "long", "send", ""] {
            let result = function.call(&format!(r#"{{"what":"{what}"}}"#));
            assert_eq!(result.is_ok(), what.is_empty(), "{what}: {result:?}");
            assert!(function.heap.bytes() == before, "{what}");
        }
        assert_eq!(function.call("{}"), Ok("1".into()));
    }

    #[test]
    fn a_stopped_call_stays_stopped() {
        let mut function = load(
            "const f = ({ send, stop }) => { if (stop) try { send('channel', 'text'); } catch {} return 1; };",
        );
        assert_eq!(function.call(r#"{"stop":true}"#), Err(CallError::Stopped));
        assert_eq!(function.call(r#"{"stop":false}"#), Ok("1".into()));
    }

    #[test]
    fn a_second_function_does_not_disturb_the_first() {
        let mut one = load("let n = 0; const f = () => ++n;");
        let mut two = load("let n = 10; const f = () => ++n;");
        assert_eq!((one.call("{}"), two.call("{}")), (Ok("1".into()), Ok("11".into())));
        drop(two);
        assert_eq!(one.call("{}"), Ok("1".into()));
    }

    #[test]
    fn an_exact_result_is_complete_or_a_failure() {
        let host: Rc<dyn Host> = Rc::new(Here(Instant::now()));
        #[rustfmt::skip]
        let cases = [
            ("{ a: 'x', b: [1, true, null, { c: '\u{e4}\"' }], d: -1.5e3 }", Some("{\"a\":\"x\",\"b\":[1,true,null,{\"c\":\"\u{e4}\\\"\"}],\"d\":-1500}")),
            ("Object.freeze({ a: Object.freeze(['x']) })",       Some(r#"{"a":["x"]}"#)),
            ("Object.assign(Object.create(null), { a: 1 })",     Some(r#"{"a":1}"#)),
            ("JSON.parse('{\"__proto__\":{\"a\":1}}')",          Some(r#"{"__proto__":{"a":1}}"#)),
            ("[]",                                               Some("[]")),
            ("{ a: undefined }",                                 None),
            ("{ a: () => {} }",                                  None),
            ("{ a: Symbol() }",                                  None),
            ("{ a: 1n }",                                        None),
            ("{ a: NaN }",                                       None),
            ("{ a: -Infinity }",                                 None),
            ("{ a: { b: undefined } }",                          None),
            ("{ a: [undefined] }",                               None),
            ("{ a: [,] }",                                       None),
            ("{ a: Object.assign(['x'], { b: 1 }) }",            None),
            ("{ a: Object.setPrototypeOf([], { 0: 'x' }) }",     None),
            ("{ [Symbol()]: 1 }",                                None),
            ("{ get a() { return 1; } }",                        None),
            ("{ set a(_) {} }",                                  None),
            ("Object.defineProperty({}, 'a', { value: 1 })",     None),
            ("Object.create({ a: 1 })",                          None),
            ("new (class { a = 1 })()",                          None),
            ("new (class { get a() { return 1; } })()",          None),
            ("new Map([['a', 1]])",                              None),
            ("new Date(0)",                                      None),
            ("{ a: new String('x') }",                           None),
            ("{ a: 1, toJSON: () => ({}) }",                     None),
            ("new Proxy({}, {})",                                None),
            ("new Proxy({ a: 1 }, { ownKeys: () => [] })",       None),
            ("{ a: new Proxy(['x'], {}) }",                      None),
            ("(Object.prototype.a = 1, {})",                     None),
            // An inherited `toJSON` is not called, and replaced built-ins are not used.
            ("(Object.defineProperty(Object.prototype, 'toJSON', { value: () => ({}) }), { a: 1 })", Some(r#"{"a":1}"#)),
            ("(Array.prototype.toJSON = () => [], JSON.stringify = () => '{}', Object.hasOwn = () => true, { a: [1] })", Some(r#"{"a":[1]}"#)),
            ("(Object.getOwnPropertyDescriptor = Reflect.ownKeys = () => [], { a: undefined })", None),
        ];
        for (returned, expected) in cases {
            let mut function =
                load_with(&format!("const f = () => ({returned});"), Output::Exact, &host);
            let before = function.heap.bytes();
            match (function.call("{}"), expected) {
                (Ok(json), Some(expected)) => assert_eq!(json, expected, "{returned}"),
                (Err(CallError::NotSerializable(thrown)), None) => {
                    assert!(thrown.message.starts_with("TypeError: "), "{returned}: {thrown:?}");
                }
                (result, _) => panic!("{returned}: {result:?}"),
            }
            assert!(function.heap.bytes() == before, "{returned}");
        }
        for returned in ["null", "1", "'x'", "() => {}", "Symbol()"] {
            let mut function =
                load_with(&format!("const f = () => ({returned});"), Output::Exact, &host);
            assert_eq!(function.call("{}"), Err(CallError::NotJson), "{returned}");
        }
        let mut nothing = load_with("const f = () => {};", Output::Exact, &host);
        assert_eq!(nothing.call("{}"), Err(CallError::Nothing));
        let mut long = load_with("const f = () => ({ a: 'x'.repeat(100) });", Output::Exact, &host);
        assert_eq!(long.call("{}"), Err(CallError::TooLong));
        let circle = "const f = () => { const a = {}; a.a = a; return a; };";
        assert_eq!(
            load_with(circle, Output::Exact, &host).call("{}"),
            Err(CallError::StackOverflow)
        );
    }

    #[test]
    fn a_position_is_found_in_the_script_only() {
        let cases = [
            ("    at script:3:14\n", Some((3, 14))),
            ("    at f (script:3:14)\n    at g (script:1:1)\n", Some((3, 14))),
            ("    at map (native)\n    at <anonymous> (script:7:2)\n", Some((7, 2))),
            ("    at start (engine:3:14)\n", None),
            ("    at script:x:1\n", None),
            ("", None),
        ];
        for (stack, expected) in cases {
            assert_eq!(position(stack), expected, "{stack}");
        }
    }
}

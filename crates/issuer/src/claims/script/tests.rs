mod properties;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

const TOKEN: &str = r#"{"iss":"https://auth.example.com/oidc","sub":"user_123","aud":"https://api.example.com/orders","client_id":"support-portal","scope":"orders:read orders:write","jti":"0a1b2c","act":{"sub":"agent_7"}}"#;

const CONTEXT: &str =
    r#"{"ticketId":"TICKET-123","reason":"Checkout fails","supportEngineerId":"eng-42"}"#;

fn compile(source: &str) -> Result<Script, CompileError> {
    let environment = [("REGION", "eu"), ("TENANTS", r#"{"user_123":"acme"}"#)];
    let environment =
        environment.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    // The limits are generous, because tests run unoptimized on busy machines.
    let limits = Limits { timeout: Duration::from_millis(250), ..Limits::default() };
    Script::compile(source, &limits, &environment.collect())
}

fn run(script: &Script, context: &str) -> Result<Value, ClaimsError> {
    let input = Input { token: TOKEN, grant_type: TOKEN_EXCHANGE, subject_token_context: context };
    script.run(&input, &mut |_| ()).map(Value::Object)
}

/// Runs a script with this body.
fn claims(body: &str) -> Result<Value, ClaimsError> {
    let source = format!(
        "const getCustomJwtClaims = async ({{ token, context, environmentVariables, api }}) => {{ {body} }}"
    );
    run(&compile(&source).expect(body), CONTEXT)
}

#[test]
fn a_script_gets_the_documented_input() {
    let input = claims("return { input: { token, context, environmentVariables } }").unwrap();
    let expected = json!({"input": {
        "token": {
            "iss": "https://auth.example.com/oidc",
            "sub": "user_123",
            "aud": "https://api.example.com/orders",
            "client_id": "support-portal",
            "scope": "orders:read orders:write",
            "jti": "0a1b2c",
            "act": {"sub": "agent_7"},
            "accountId": "user_123",
            "clientId": "support-portal",
        },
        "context": {"grant": {
            "type": TOKEN_EXCHANGE,
            "subjectTokenContext": {
                "ticketId": "TICKET-123",
                "reason": "Checkout fails",
                "supportEngineerId": "eng-42",
            },
        }},
        "environmentVariables": {"REGION": "eu", "TENANTS": r#"{"user_123":"acme"}"#},
    }});
    assert_eq!(input, expected);
}

/// The scripts resemble the examples that identity services of this family document.
#[test]
fn scripts_for_other_identity_services_run_unchanged() {
    #[rustfmt::skip]
    let cases = [
        ("the default: no claims", json!({}), r"
const getCustomJwtClaims = async ({ token, context, environmentVariables }) => {
  return {};
};"),

        ("the context in one claim", json!({"impersonation": {
            "ticketId": "TICKET-123", "reason": "Checkout fails", "supportEngineerId": "eng-42",
        }}), r"
const getCustomJwtClaims = async ({ token, context, environmentVariables }) => {
  if (context.grant?.type !== 'urn:ietf:params:oauth:grant-type:token-exchange') return {};
  return { impersonation: context.grant.subjectTokenContext };
};"),

        ("a comment in JSDoc style, and optional members that are not there",
         json!({"ticket": "TICKET-123", "roles": [], "tenant": ""}), r"
/**
 * Called while an access token is issued.
 *
 * @param {Object} payload
 * @returns {Promise<Object>} The custom claims.
 */
const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => {
  const { grant, user } = context;
  const roles = user?.roles ?? [];
  return {
    ticket: grant?.subjectTokenContext?.ticketId,
    roles: roles.map(({ name }) => name),
    tenant: user?.customData?.tenant ?? '',
  };
};"),

        ("claims of the token", json!({"uid": "user_123", "app": "support-portal", "write": true}), r"
const getCustomJwtClaims = async ({ token }) => ({
  uid: token.accountId,
  app: token.clientId,
  write: token.scope.split(' ').some((scope) => scope.endsWith(':write')),
});"),

        ("environment variables", json!({"region": "EU", "tenant": "acme"}), r"
const getCustomJwtClaims = async ({ token, environmentVariables: { REGION, TENANTS, MISSING } }) => {
  const tenants = JSON.parse(TENANTS);
  const claims = { region: REGION.toUpperCase(), missing: MISSING };
  claims['tenant'] = tenants[token.sub];
  return claims;
};"),

        ("a function declaration, not async", json!({"actor": "agent_7"}), r"
function getCustomJwtClaims({ token }) {
  return { actor: token.act && token.act.sub };
}"),

        ("an async function declaration with helpers of its own, and sloppy code",
         json!({"groups": ["a", "b"], "n": 2}), r"
var separator = /\s*,\s*/;
class Groups {
  #names;
  constructor(names) { this.#names = names; }
  get names() { return [...new Set(this.#names)].sort(); }
}
async function groupsOf(list) {
  await null;
  return new Groups(list.split(separator));
}
async function getCustomJwtClaims() {
  const groups = await groupsOf('b, a ,b');
  counted = groups.names.length;
  return { groups: groups.names, n: counted };
}"),

        ("a function expression in a let", json!({"year": 2026}), r"
let getCustomJwtClaims = function (input) {
  return { year: new Date('2026-03-01T00:00:00Z').getUTCFullYear() };
};"),

        ("a thenable", json!({"then": 1}), r"
const getCustomJwtClaims = () => ({ then: (resolve) => resolve({ then: 1 }) });"),

        ("a promise that never rests, and that nobody waits for", json!({"a": 1}), r"
const getCustomJwtClaims = async () => {
  const again = () => { Promise.resolve().then(again); };
  again();
  return { a: 1 };
};"),

        ("no denial", json!({"engineer": "eng-42"}), r"
const getCustomJwtClaims = async ({ context, api }) => {
  const { supportEngineerId } = context.grant.subjectTokenContext;
  if (!supportEngineerId) {
    return api.denyAccess('An engineer must be named');
  }
  return { engineer: supportEngineerId };
};"),
    ];
    for (case, expected, source) in cases {
        let script = compile(source).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(run(&script, CONTEXT), Ok(expected), "{case}");
    }
}

#[test]
fn a_script_that_cannot_be_called_is_refused() {
    #[rustfmt::skip]
    let cases = [
        ("nothing", "", Some((1, 1)), "the script declares no function getCustomJwtClaims"),
        ("another name", "const getClaims = () => ({});\n// é", Some((2, 5)),
         "the script declares no function getCustomJwtClaims"),
        ("no function", "\n'é'; const getCustomJwtClaims = {};", Some((2, 12)),
         "the script declares no function getCustomJwtClaims"),
        ("syntax", "const getCustomJwtClaims = () => {\n  return { a: };\n};", Some((2, 15)),
         "SyntaxError: unexpected token in expression: '}'"),
        ("unfinished", "const getCustomJwtClaims = () => {", Some((1, 35)),
         "SyntaxError: unexpected token in expression: ''"),
        ("declared twice", "const getCustomJwtClaims = 1;\nconst getCustomJwtClaims = 2;", Some((2, 26)),
         "SyntaxError: invalid redefinition of lexical identifier"),
        ("throws", "const a = {};\na.b.c = 1;", Some((2, 1)),
         "TypeError: cannot set property 'c' of undefined"),
        ("throws no error", "throw 'x'", None, "x"),
        ("endless", "for (;;);", None, "the script takes too long to load"),
        ("endless in jobs", "const f = () => { Promise.resolve().then(f); }; f();", None,
         "the script takes too long to load"),
        ("hungry", "const a = []; for (;;) a.push({});", None,
         "the script takes too much memory to load"),
    ];
    for (case, source, position, message) in cases {
        let error = compile(source).expect_err(case);
        assert_eq!(error, CompileError { message: message.into(), position }, "{case}");
    }
    let nested =
        format!("const getCustomJwtClaims = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let error = compile(&nested).expect_err("10 000 brackets");
    assert_eq!(error.message, "the script is nested too deep");
    let error = compile("\n  const = 1;").unwrap_err();
    assert!(error.to_string().starts_with("line 2, column 9: SyntaxError"), "{error}");
}

fn thrown_at(message: &str, column: u32) -> Thrown {
    Thrown { message: message.into(), position: (column > 0).then_some((3, column)) }
}

fn threw(message: &str, column: u32) -> ClaimsError {
    ClaimsError::Threw(thrown_at(message, column))
}

fn not_serializable(message: &str, column: u32) -> ClaimsError {
    ClaimsError::NotSerializable(thrown_at(message, column))
}

/// A script that works for one input, and runs `body` for others. `body` has a line of its own, so
/// that its columns begin at 1.
fn works_or(body: &str) -> String {
    format!(
        "const getCustomJwtClaims = async ({{ token, context }}) => {{
           if (context.grant.subjectTokenContext.works) return {{ works: true }};
{body}
         }}"
    )
}

#[test]
fn a_failure_fails_one_call_and_the_next_works() {
    use ClaimsError::*;
    #[rustfmt::skip]
    let cases = [
        // Endless loops.
        ("for (;;);", TimedOut),
        ("while (true) await null;", TimedOut),
        ("const f = () => { Promise.resolve().then(f); }; f(); await new Promise(() => {});", TimedOut),
        ("/^(a+)+$/.test('a'.repeat(100) + 'b');", TimedOut),
        ("for (;;) try { for (;;); } catch {} finally { continue; }", TimedOut),
        ("for (;;) JSON.stringify('x'.repeat(100000));", TimedOut),
        ("for (;;) try { JSON.stringify('x'.repeat(100000)); } catch {}", TimedOut),
        ("return { get a() { for (;;); } };", TimedOut),
        ("return { toJSON() { for (;;); } };", TimedOut),
        ("return new Proxy({}, { ownKeys() { for (;;); } });", TimedOut),
        ("throw { toString() { for (;;); } };", threw("an object that is not an Error", 0)),
        ("const e = new Error(); Object.defineProperty(e, 'message', { get() { for (;;); } }); throw e;", TimedOut),
        ("const f = () => f(); return f();", StackOverflow),
        ("const f = async () => { await f(); }; return f();", StackOverflow),
        ("const o = {}; o.toString = () => `${o}`; return { o: `${o}` };", StackOverflow),
        ("const o = { get a() { return this.a; } }; return o;", StackOverflow),
        ("const o = { toJSON() { return JSON.stringify(this); } }; return o;", StackOverflow),
        ("let o = {}; for (let i = 0; i < 10000; i++) o = { o }; return o;", StackOverflow),
        ("let o = []; for (let i = 0; i < 10000; i++) o = [o]; return { o };", StackOverflow),
        ("return { o: JSON.parse('['.repeat(10000)) };", StackOverflow),
        ("return { o: JSON.parse('{\"a\":'.repeat(10000)) };", StackOverflow),
        ("return { r: new RegExp('(?:'.repeat(10000)) };", StackOverflow),
        ("let p = {}; for (let i = 0; i < 10000; i++) p = new Proxy(p, {}); return { p: p.a };", StackOverflow),
        ("const t = {}; Object.setPrototypeOf(t, new Proxy(t, {})); return { t: t.a };", StackOverflow),
        ("return new Promise(() => {});", NeverResolved),
        ("await new Promise(() => {});", NeverResolved),
        ("return { then() {} };", NeverResolved),

        // Too much memory.
        ("const a = []; for (;;) a.push({});", OutOfMemory),
        ("let s = 'x'; for (;;) s += s;", threw("InternalError: string too long", 28)),
        ("return { s: 'x'.repeat(500_000_000) };", OutOfMemory),
        ("try { 'x'.repeat(500_000_000) } catch {} return {};", OutOfMemory),
        ("return { s: 'x'.repeat(2 ** 31) };", threw("RangeError: invalid repeat count", 17)),
        ("return { a: Array.from({ length: 2 ** 53 }) };", threw("RangeError: invalid array length", 19)),
        ("return { b: new ArrayBuffer(2e9) };", OutOfMemory),
        ("return { s: 'x'.repeat(5000) };", TooLarge),
        ("return { s: 'é'.repeat(2500) };", TooLarge),
        ("return { s: '\\n'.repeat(2500) };", TooLarge),
        ("return Object.fromEntries([...Array(1000).keys()].map((n) => [`k${n}`, n]));", TooLarge),
        ("let o = []; for (let i = 0; i < 300; i++) o = [o]; return { o };", NotPortable),

        ("return { a: Array(1e8).join() };", threw("RangeError: array too long", 24)),
        ("return { a: Array.prototype.includes.call({ length: 2 ** 53 }, 1) };",
         threw("RangeError: array too long", 38)),

        // Exceptions.
        ("null.x;", threw("TypeError: cannot read property 'x' of null", 1)),
        ("throw new Error('one\\ntwo');", threw("Error: one two", 11)),
        ("throw 'text';", threw("text", 0)),
        ("throw 42;", threw("42", 0)),
        ("throw undefined;", threw("undefined", 0)),
        ("throw null;", threw("null", 0)),
        ("throw Symbol('s');", threw("a symbol", 0)),
        ("throw 10n;", threw("10", 0)),
        ("throw { message: 'm' };", threw("an object that is not an Error", 0)),
        ("throw Object.create(null);", threw("an object that is not an Error", 0)),
        ("return Promise.reject(new RangeError('no'));", threw("RangeError: no", 27)),
        ("Promise.resolve().then(() => 1); throw new Error('x');", threw("Error: x", 44)),
        ("const e = new Error('x'); e.name = { toString() { throw 1; } }; throw e;",
         threw("an error that cannot be read", 0)),
        ("token.sub.missing();", threw("TypeError: not a function", 11)),
        ("await fetch('https://example.com');", threw("ReferenceError: fetch is not defined", 7)),

        // Results that are not objects.
        ("", NotAnObject),
        ("return null;", NotAnObject),
        ("return 1;", NotAnObject),
        ("return 'text';", NotAnObject),
        ("return [1];", NotAnObject),
        ("return () => ({});", NotAnObject),
        ("return Symbol();", NotAnObject),
        ("return new Date(0);", NotAnObject),
        ("return new String('{}');", NotAnObject),
        ("return { toJSON: () => 1 };", NotAnObject),
        ("return { toJSON: () => undefined };", NotAnObject),
        ("return new Proxy([], {});", NotAnObject),
        ("return JSON.rawJSON('1');", NotAnObject),

        // Results that are not JSON.
        ("return { get a() { throw new Error('g'); } };", not_serializable("Error: g", 30)),
        ("const a = {}; a.a = a; return a;", not_serializable("TypeError: circular reference", 0)),
        ("return { n: 1n };", not_serializable("TypeError: BigInt are forbidden in JSON.stringify", 0)),
        ("return 1n;", not_serializable("TypeError: BigInt are forbidden in JSON.stringify", 0)),
        ("return { toJSON() { throw 'j'; } };", not_serializable("j", 0)),
        ("const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return { proxy };",
         not_serializable("TypeError: revoked proxy", 0)),
        ("return new Proxy({}, { ownKeys: () => ['a', 'a'] });",
         not_serializable("TypeError: proxy: duplicate property", 0)),
        ("return { s: '\\ud800' };", NotPortable),

        // Reserved claims.
        ("return { sub: 'admin' };", Reserved("sub")),
        ("return { a: 1, exp: 9999999999 };", Reserved("exp")),
        ("return Object.create(null, { iss: { value: 'x', enumerable: true } });", Reserved("iss")),
        ("return { [Symbol.toPrimitive]: 1, ['a' + 'ud']: 'x' };", Reserved("aud")),
        ("return JSON.parse('{\"a\":1,\"act\":null,\"act\":{}}');", Reserved("act")),
        ("return { toJSON: () => ({ scope: 'all' }) };", Reserved("scope")),
        ("return new Proxy({}, { ownKeys: () => ['jti'], get: () => 1, getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true, value: 1 }) });",
         Reserved("jti")),
        ("return { ['__proto__']: { sub: 'admin' } };", Reserved("__proto__")),
        ("return JSON.parse('{\"__proto__\":{\"sub\":\"admin\"}}');", Reserved("__proto__")),
        ("return { iat: undefined, nbf: null };", Reserved("nbf")),
        ("return { 'client\\u005fid': 'x' };", Reserved("client_id")),
        ("return new (class { may_act = {} })();", Reserved("may_act")),
        ("return Object.assign(() => {}, { cnf: {} }).call?.x ?? { cnf: {} };", Reserved("cnf")),
        ("return { txn: 'x' };", Reserved("txn")),
        ("return { scp: ['admin'] };", Reserved("scp")),
        ("return { azp: 'another' };", Reserved("azp")),
    ];
    for (body, error) in cases {
        let script = compile(&works_or(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
        for _ in 0..2 {
            assert_eq!(run(&script, CONTEXT), Err(error.clone()), "{body}");
            assert_eq!(run(&script, r#"{"works":1}"#), Ok(json!({"works": true})), "after {body}");
        }
    }
}

/// Time or memory runs out, and which one is first depends on the machine.
#[test]
fn a_failure_of_size_fails_one_call_and_the_next_works() {
    let bodies = [
        "return new Array(1_000_000).fill().map(() => ({}));",
        "return { a: new Array(2 ** 32 - 1) };",
        "return { a: [...Array(1e9).keys()] };",
        "return { a: 'x'.repeat(1e6).split('') };",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, i);",
        "const f = () => Promise.resolve().then(f); return f();",
        "let n = 1n; for (;;) n *= n + 1n;",
        "let a = [1]; for (;;) a = a.concat(a);",
        "const o = {}; for (let i = 0; ; i++) o[`k${i}`] = i;",
        "for (let f = () => 1; ; ) f = f.bind(null);",
        "return { s: 'x'.repeat(1e6).replaceAll('x', 'yy') };",
        "let s = 'x'; for (;;) s = (s + s).replaceAll('x', 'xy');",
    ];
    for body in bodies {
        let script = compile(&works_or(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
        for _ in 0..2 {
            let error = run(&script, CONTEXT).expect_err(body);
            // The machine decides which limit is met first.
            let bounds = ["BigInt is too large to allocate", "array too long", "string too long"];
            let expected = matches!(error, ClaimsError::OutOfMemory | ClaimsError::TimedOut)
                || bounds.iter().any(|bound| error.to_string().ends_with(bound));
            assert!(expected, "{body}: {error}");
            assert_eq!(run(&script, r#"{"works":1}"#), Ok(json!({"works": true})), "after {body}");
        }
    }
}

#[test]
fn a_call_sees_nothing_of_an_earlier_call() {
    // Each script counts its calls, and keeps the count wherever it can.
    #[rustfmt::skip]
    let traces = [
        "count = (globalThis.count ?? 0) + 1; return { count };",
        "top.push(1); return { count: top.length };",
        "constant.n++; return { count: constant.n };",
        "return { count: closure() };",
        "environmentVariables.N = +(environmentVariables.N ?? 0) + 1; return { count: environmentVariables.N };",
        "Object.prototype.n = (Object.prototype.n ?? 0) + 1; return { count: Object.prototype.n };",
        "const n = [].push(1); Array.prototype.push = () => 9; return { count: n };",
        "const n = `${{}}`.length; Object.prototype.toString = () => '9'; return { count: n - 14 };",
        "const { then } = Promise.prototype; then.n = (then.n ?? 0) + 1; return { count: then.n };",
        "getCustomJwtClaims.n = (getCustomJwtClaims.n ?? 0) + 1; return { count: getCustomJwtClaims.n };",
        "Math.n = (Math.n ?? 0) + 1; return { count: Math.n };",
        "console.n = (console.n ?? 0) + 1; return { count: console.n };",
        "const n = (JSON.n ?? 0) + 1; JSON = { n }; return { count: n };",
        "const once = tag(); seen.set(once, (seen.get(once) ?? 0) + 1); return { count: seen.get(once) };",
        "const count = Object.isFrozen(Object.prototype) ? 2 : 1; Object.freeze(Object.prototype); return { count };",
        "sticky.test('aa'); return { count: sticky.lastIndex };",
        "pending = (globalThis.pending ?? 0) + 1; Promise.resolve().then(() => { pending = 7; }); return { count: pending };",
        "const count = typeof Map === 'function' ? 1 : 2; delete globalThis.Map; return { count };",
        "return { count: generator.next().value };",
        "Object.defineProperty(globalThis, 'x', { value: 1 }); return { count: x };",
        "Error.stackTraceLimit--; return { count: 10 - Error.stackTraceLimit };",
        "weak.deref().n++; return { count: weak.deref().n };",
        "new Uint8Array(buffer)[0]++; return { count: new Uint8Array(buffer)[0] };",
        "registry.register({}, 1); return { count: Object.keys(registry).push(1) };",
    ];
    for trace in traces {
        let source = format!(
            "const top = [], constant = {{ n: 0 }}, seen = new WeakMap(), sticky = /a/g;
             const weak = new WeakRef(constant), buffer = new ArrayBuffer(4);
             const registry = new FinalizationRegistry(() => {{}});
             const tag = () => ((strings) => strings)`a`;
             const closure = (() => {{ let n = 0; return () => ++n; }})();
             const generator = (function* () {{ for (let i = 1; ; i++) yield i; }})();
             function getCustomJwtClaims({{ context, environmentVariables }}) {{ {trace} }}"
        );
        let script = compile(&source).unwrap_or_else(|error| panic!("{trace}: {error}"));
        for _ in 0..3 {
            assert_eq!(run(&script, CONTEXT), Ok(json!({"count": 1})), "{trace}");
        }
    }
}

#[test]
fn a_call_that_is_cut_off_leaves_nothing_behind() {
    let script = compile(
        "let n = 0;
         function getCustomJwtClaims({ context: { grant: { subjectTokenContext: { fails } } } }) {
           n++;
           Array.prototype.map = Map = undefined;
           Promise.resolve().then(() => { n = 100; });
           if (fails === 'loop') for (;;);
           if (fails === 'recurse') getCustomJwtClaims(arguments[0]);
           if (fails === 'memory') for (const a = []; ; ) a.push([]);
           if (fails === 'throw') throw new Error();
           if (fails === 'wait') return new Promise(() => {});
           return { n };
         }",
    )
    .unwrap();
    for fails in ["loop", "recurse", "memory", "throw", "wait"] {
        assert!(run(&script, &json!({ "fails": fails }).to_string()).is_err(), "{fails}");
        assert_eq!(run(&script, "{}"), Ok(json!({"n": 1})), "after {fails}");
    }
}

#[test]
fn a_denial_cannot_be_taken_back() {
    #[rustfmt::skip]
    let cases = [
        ("return api.denyAccess('No ticket');", "No ticket"),
        ("api.denyAccess('No ticket'); return { ok: true };", "No ticket"),
        ("try { api.denyAccess('No ticket'); } catch {} return { ok: true };", "No ticket"),
        ("try { api.denyAccess('first'); } catch {} api.denyAccess('second');", "first"),
        ("try { api.denyAccess('No'); } catch {} for (;;);", "No"),
        ("try { api.denyAccess('No'); } finally { return 'x'.repeat(5000); }", "No"),
        ("await Promise.all([null, (async () => api.denyAccess('No'))()]);", "No"),
        ("Promise.resolve().then(() => api.denyAccess('late')); await null; return {};", "late"),
        ("return { get a() { return api.denyAccess('in a getter'); } };", "in a getter"),
        ("const { denyAccess } = api; Error = undefined; denyAccess();", "access denied"),
        ("Promise.resolve().then(() => api.denyAccess('later still')); return {};", "later still"),
        ("api.denyAccess();", "access denied"),
        ("api.denyAccess('');", "access denied"),
        ("api.denyAccess(null);", "null"),
        ("api.denyAccess(42);", "42"),
        ("api.denyAccess(Symbol());", "access denied"),
        ("api.denyAccess({ toString() { throw 1; } });", "access denied"),
        ("api.denyAccess = () => {}; api.denyAccess('No');", "No"),
        (r#"api.denyAccess('say "no"\\ to\r\nthis\u0000 \u2014 caf\u00e9');"#, "say 'no'/ to  this  ? caf?"),
        (r"api.denyAccess('\ud800');", "?"),
        ("api.denyAccess('x'.repeat(1e6));", &"x".repeat(200)),
    ];
    for (body, message) in cases {
        assert_eq!(claims(body), Err(ClaimsError::Denied(message.into())), "{body}");
    }
}

#[test]
fn a_script_makes_no_code_from_strings() {
    let expressions = [
        "eval('1')",
        "(0, eval)('1')",
        "globalThis['ev' + 'al']('1')",
        "Function('return 1')()",
        "new Function('return 1')()",
        "(() => {}).constructor('return 1')()",
        "(async () => {}).constructor('return 1')()",
        "(function* () {}).constructor('yield 1')().next()",
        "(async function* () {}).constructor('yield 1')().next()",
        "Object.getPrototypeOf(async () => {}).constructor('return 1')()",
        "Reflect.construct(class {}.constructor, ['return 1'])()",
        "Object.getPrototypeOf((async () => {}).constructor)('return 1')()",
        "[].at.constructor('return 1')()",
        "console.log.constructor('return 1')()",
        "new (class extends (() => {}).constructor {})('return 1')()",
        "await import('data:text/javascript,export default 1')",
        "await import('/etc/passwd')",
    ];
    for expression in expressions {
        let error = claims(&format!("{expression}; return {{}};")).expect_err(expression);
        assert!(matches!(error, ClaimsError::Threw(_)), "{expression}: {error}");
    }
    assert_eq!(
        claims("return { function: (() => {}) instanceof Function, name: Function.name };"),
        Ok(json!({"function": true, "name": "Function"})),
    );
}

#[test]
fn a_script_has_the_globals_of_javascript_and_a_console() {
    let globals =
        claims("return { names: Object.getOwnPropertyNames(globalThis).sort().join(' ') };");
    let names = globals.unwrap()["names"].as_str().unwrap().to_owned();
    // A newer engine may bring further globals. Review them before you add them here.
    let expected = "AggregateError Array ArrayBuffer AsyncDisposableStack Atomics BigInt BigInt64Array \
        BigUint64Array Boolean DataView Date DisposableStack Error EvalError FinalizationRegistry \
        Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array \
        InternalError Iterator JSON Map Math NaN Number Object Promise Proxy RangeError ReferenceError \
        Reflect RegExp Set SharedArrayBuffer String SuppressedError Symbol SyntaxError TypeError URIError \
        Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet console decodeURI \
        decodeURIComponent encodeURI encodeURIComponent escape globalThis isFinite isNaN parseFloat \
        parseInt queueMicrotask undefined unescape";
    assert_eq!(names, expected);
}

/// The engine cannot interrupt these built-in functions, and some calls would take minutes. The
/// prelude refuses such calls in advance, however fast the machine is.
#[test]
fn a_call_that_cannot_be_interrupted_is_refused() {
    #[rustfmt::skip]
    let cases = [
        ("Array(131_073).sort()",                                  "array too long"),
        ("Array(131_073).flat()",                                  "array too long"),
        ("[].concat(Array(70_000), Array(70_000))",                "array too long"),
        ("new Uint8Array(131_073).sort()",                         "array too long"),
        ("new Uint8Array(131_073).join()",                         "array too long"),
        ("String.raw({ raw: { length: 4e9 } })",                   "array too long"),
        ("long.replaceAll('x', '')",                               "string too long"),
        ("long.replace(/x/g, '')",                                 "string too long"),
        ("long.split('')",                                         "string too long"),
        ("long.match(/x/g)",                                       "string too long"),
        ("long.toUpperCase()",                                     "string too long"),
        ("('a' + '\\u0301\\u0316'.repeat(2048)).normalize('NFC')",  "string too long"),
        ("long.localeCompare(long)",                               "string too long"),
        ("long.trim()",                                            "string too long"),
        ("decodeURIComponent(long)",                               "string too long"),
        ("escape(long)",                                           "string too long"),
        ("parseInt(long)",                                         "string too long"),
        ("JSON.parse(long)",                                       "string too long"),
        ("Date.parse(long)",                                       "string too long"),
        ("'x'.repeat(2e6)",                                        "string too long"),
        ("'x'.padEnd(2e6)",                                        "string too long"),
        ("'x'.repeat(100_000).indexOf('x'.repeat(50_000) + 'y')",  "what is looked for is too long"),
        ("'x'.repeat(100_000).lastIndexOf('y' + 'x'.repeat(200))", "what is looked for is too long"),
        ("'x'.repeat(100_000).includes('x'.repeat(200) + 'y')",    "what is looked for is too long"),
        ("'x'.repeat(100_000).split('x'.repeat(200) + 'y')",       "what is looked for is too long"),
        ("'x'.repeat(100_000).replace('x'.repeat(200) + 'y', '')", "what is looked for is too long"),
        ("long[Symbol.iterator]().drop(4e9).next()",               "what is dropped is too long"),
    ];
    for (expression, expected) in cases {
        let error =
            claims(&format!("const long = 'x'.repeat(131_073); {expression}; return {{}};"));
        let error = error.expect_err(expression).to_string();
        assert!(error.ends_with(&format!("RangeError: {expected}")), "{expression}: {error}");
    }
}

#[test]
fn guarded_string_functions_behave_as_before() {
    #[rustfmt::skip]
    let cases = [
        ("'a-b-c'.split('-').join('+').replaceAll('+', '')",  json!("abc")),
        ("'a1b22'.replace(/[0-9]+/g, (digits) => digits.length)", json!("a1b2")),
        ("'x'.repeat(100_000).replaceAll('x', '').length",     json!(0)),
        ("'x'.repeat(60_000).concat('needle').indexOf('needle')", json!(60_000)),
        ("[...'a1b2'.matchAll(/[a-z]/g)].length",              json!(2)),
        ("'é'.normalize('NFD').length",                        json!(2)),
        ("['a'.padStart(3, '.'), 'ab'.repeat(2), ' a '.trim()]", json!(["..a", "abab", "a"])),
        ("String.raw`a\\n${1}`",                             json!("a\\n1")),
        ("[encodeURIComponent('a b'), decodeURIComponent('%41'), parseInt('12px'), JSON.parse('[1]')[0]]", json!(["a%20b", "A", 12, 1])),
        ("JSON.parse('{\"a\":1}', (key, value) => key === 'a' ? 2 : value)", json!({"a": 2})),
        ("[String.prototype.split.name, String.prototype.split.length, JSON.parse.length]", json!(["split", 2, 2])),
        ("[Object.keys(String.prototype), Object.keys(JSON)]",  json!([[], []])),
        ("Array.from(Uint8Array.of(3, 1, 2).sort().map((n) => n * 2))", json!([2, 4, 6])),
        ("[1, 2, 3].values().drop(1).toArray()",               json!([2, 3])),
        ("(() => { try { String.prototype.trim.call(null); } catch (e) { return e.name; } })()", json!("TypeError")),
        ("(() => { try { new Uint8Array(1).map(); } catch (e) { return e.name; } })()", json!("TypeError")),
        ("(() => { try { 'x'.repeat(-1); } catch (e) { return e.name; } })()", json!("RangeError")),
    ];
    for (expression, expected) in cases {
        let expected = Ok(json!({ "value": expected }));
        assert_eq!(claims(&format!("return {{ value: {expression} }};")), expected, "{expression}");
    }
}

#[test]
fn guarded_array_functions_behave_as_before() {
    #[rustfmt::skip]
    let cases = [
        ("[3, 1, 2].sort().map((n) => n * 2).concat([7], 8, [[9]]).join('-')", json!("2-4-6-7-8-9")),
        ("[1, [2, [3]]].flat(2)", json!([1, 2, 3])),
        ("[1, 2, 3].reduce((a, b) => a + b)", json!(6)),
        ("Array.from({ length: 1500 }, (_, i) => i).filter((i) => i % 500 === 0)", json!([0, 500, 1000])),
        ("Array.prototype.join.call({ length: 2, 0: 'a', 1: 'b' }, '+')", json!("a+b")),
        ("`${[1, 2]}`", json!("1,2")),
        ("[Array.prototype.splice.name, Array.prototype.splice.length]", json!(["splice", 2])),
        ("Object.keys(Array.prototype)", json!([])),
        ("(() => { class A extends Array {} return new A(1, 2).map((n) => n) instanceof A; })()", json!(true)),
        ("(() => { try { new [].map(() => 1); } catch (e) { return e.name; } })()", json!("TypeError")),
        ("(() => { try { Array.prototype.map.call(null); } catch (e) { return e.name; } })()", json!("TypeError")),
    ];
    for (expression, expected) in cases {
        let expected = Ok(json!({ "value": expected }));
        assert_eq!(claims(&format!("return {{ value: {expression} }};")), expected, "{expression}");
    }
}

#[test]
fn a_script_has_a_clock_and_random_numbers() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let date = claims("return { now: Date.now(), year: new Date().getFullYear() };").unwrap();
    let elapsed = date["now"].as_f64().unwrap() / 1000.0 - now.as_secs_f64();
    assert!((-0.01..60.0).contains(&elapsed), "{elapsed}");

    let script = compile(
        "const getCustomJwtClaims = () => ({ n: Array.from({ length: 100 }, () => Math.random()) });",
    )
    .unwrap();
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let claims = run(&script, CONTEXT).unwrap();
        numbers.extend(claims["n"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()));
    }
    assert!(numbers.iter().all(|n| (0.0..1.0).contains(n)));
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    // Restoring the heap does not repeat the random numbers.
    assert_eq!(numbers.len(), 200);
    assert!(numbers.first() < Some(&0.2) && numbers.last() > Some(&0.8));
}

/// The lines that a call logs, which may fail.
fn logged(body: &str) -> Vec<String> {
    let source = format!("const getCustomJwtClaims = () => {{ {body}; return {{}}; }}");
    let script = compile(&source).unwrap();
    let input = Input { token: "{}", grant_type: "", subject_token_context: "{}" };
    let mut lines = Vec::new();
    let _ = script.run(&input, &mut |line| lines.push(line.to_owned()));
    lines
}

#[test]
fn console_log_reaches_the_log() {
    #[rustfmt::skip]
    let cases = [
        ("console.log()", ""),
        ("console.log('a', 1, true, null, undefined, 2n, Symbol('s'))", "a 1 true null undefined 2 a symbol"),
        ("console.info({ a: [1, '2'] })", r#"{"a":[1,"2"]}"#),
        ("console.warn(new TypeError('t'))", "TypeError: t"),
        ("const a = {}; a.a = a; console.error(a)", "an object that is no JSON"),
        (r"console.debug('one\ntwo\u001b[31m')", "one two [31m"),
        (r"console.trace('\ud800')", "\u{fffd}"),
        ("console.log(() => 1)", "() => 1"),
        ("console.log('x'.repeat(5000))", &"x".repeat(1024)),
        ("console.log('é'.repeat(5000))", &"é".repeat(512)),
        ("console.log('before'); throw 1", "before"),
        ("console.log('before'); for (;;)", "before"),
    ];
    for (body, line) in cases {
        assert_eq!(logged(body), [line], "{body}");
    }
    assert_eq!(logged("for (let i = 0; i < 1000; i++) console.log(i)").len(), 32);
}

#[test]
fn input_is_data_and_not_code() {
    let context = json!({
        "quote": "\"}};throw 1;//", "lines": "\u{2028}\n", "__proto__": {"admin": true}, "null": "\0",
    });
    let script = compile(
        "const getCustomJwtClaims = ({ context: { grant } }) => ({
           type: grant.type, context: grant.subjectTokenContext, admin: grant.subjectTokenContext.admin,
         });",
    )
    .unwrap();
    let grant_type = "\"}},{\n";
    let input = Input { token: "{}", grant_type, subject_token_context: &context.to_string() };
    let claims = script.run(&input, &mut |_| ()).map(Value::Object);
    assert_eq!(claims, Ok(json!({"type": grant_type, "context": context})));
}

#[test]
fn environment_variables_are_data_and_not_code() {
    let environment = [("__proto__", "p"), ("A\"'`${1}", "\\u0041\u{2028}\0\"'`${1}\\"), ("", "")];
    let environment: BTreeMap<_, _> =
        environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let script = Script::compile(
        "const getCustomJwtClaims = ({ environmentVariables }) => ({ environmentVariables });",
        &Limits::default(),
        &environment,
    )
    .unwrap();
    assert_eq!(run(&script, "{}"), Ok(json!({ "environmentVariables": environment })));
    assert_eq!(format!("{script:?}"), "Script", "they may be secrets");
}

#[test]
fn the_log_has_what_the_operator_needs() {
    let error = claims("\n  null.x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the script threw: line 2, column 3: TypeError: cannot read property 'x' of null"
    );
    let error = claims("throw new Error('x'.repeat(1e6))").unwrap_err().to_string();
    assert!(error.len() < 1200, "{}", error.len());
}

/// A test in Envoy runs this script too. There, an error that the engine does not catch is a trap
/// of the VM.
#[test]
fn a_hostile_script_fails_only_its_own_call() {
    let script = compile(include_str!("../../../../../tests/fixtures/claims/hostile.js")).unwrap();
    let names = run(&script, r#"{"case":"names"}"#).unwrap();
    for name in names["names"].as_str().unwrap().split(' ') {
        let result = run(&script, &json!({ "case": name }).to_string());
        assert!(result.is_err(), "{name}: {result:?}");
        assert_eq!(run(&script, "{}"), Ok(json!({"works": true})), "after {name}");
    }
}

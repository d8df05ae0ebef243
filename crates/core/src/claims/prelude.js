// What a claims script finds around it beyond JavaScript itself. Evaluated before the script.
(host, environmentVariables) => {
  'use strict';
  const { stringify } = JSON;
  const { defineProperty, freeze, getOwnPropertyNames, getPrototypeOf } = Object;
  const { apply } = Reflect;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const slice = uncurry(String.prototype.slice);
  const toWellFormed = uncurry(String.prototype.toWellFormed);
  const clip = (string) => toWellFormed(string.length > 1024 ? slice(string, 0, 1024) : string);

  // No code from strings. The `constructor` of a function is the other way to `Function`.
  function NoFunction() {
    throw new EvalError('code from strings is not allowed');
  }
  defineProperty(NoFunction, 'name', { value: 'Function' });
  defineProperty(NoFunction, 'prototype', { value: Function.prototype });
  const kinds = [() => {}, async () => {}, function* () {}, async function* () {}];
  for (const kind of kinds) {
    defineProperty(getPrototypeOf(kind), 'constructor', { value: NoFunction });
  }
  defineProperty(globalThis, 'Function', { value: NoFunction });
  delete globalThis.eval;

  // QuickJS seeds its own from the clock, and would repeat itself in every call.
  defineProperty(Math, 'random', { value: { random: () => host.random() }.random });

  // An array can be billions of holes long and take no memory, and the built-in functions that go
  // through it never ask whether they may go on: `Array(n).join()` could hold Envoy up for minutes.
  const bounded = (array) => {
    const length = array?.length;
    if (!(length > 1000)) return;
    host.look();
    if (length > 1_000_000) throw new RangeError('array too long');
  };
  const instant = ['constructor', 'at', 'entries', 'keys', 'pop', 'push', 'toString', 'values', 'with'];
  for (const name of getOwnPropertyNames(Array.prototype)) {
    const method = Array.prototype[name];
    if (typeof method !== 'function' || instant.includes(name)) continue;
    const { [name]: wrapper } = {
      [name](...values) {
        bounded(this);
        if (name === 'concat') for (let i = 0; i < values.length; i++) bounded(values[i]);
        return apply(method, this, values);
      },
    };
    defineProperty(wrapper, 'length', { value: method.length });
    defineProperty(Array.prototype, name, { value: wrapper });
  }

  const show = (value) => {
    if (typeof value === 'string') return value;
    if (typeof value === 'symbol') return 'a symbol';
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    if (typeof value === 'object') {
      try {
        return stringify(value) ?? `${value}`;
      } catch {
        return 'an object that is no JSON';
      }
    }
    return `${value}`;
  };
  const log = (...values) => {
    let line = '';
    for (let i = 0; i < values.length; i++) line += (i > 0 ? ' ' : '') + show(values[i]);
    host.send('log', clip(line));
  };
  globalThis.console = { log, debug: log, info: log, warn: log, error: log, trace: log };

  const denyAccess = (message) => {
    let text = '';
    try {
      if (message !== undefined) text = clip(`${message}`);
    } finally {
      host.send('deny', text);
    }
  };
  const api = freeze({ denyAccess });

  return ({ token, context }) => {
    token.accountId = token.sub;
    token.clientId = token.client_id;
    return { token, context, environmentVariables, api };
  };
}

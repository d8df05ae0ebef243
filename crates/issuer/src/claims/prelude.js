// The environment of an operator's script beyond JavaScript itself. It is evaluated before the
// script.
(host, environmentVariables) => {
  'use strict';
  const { stringify } = JSON;
  const { defineProperty, freeze, getOwnPropertyNames, getPrototypeOf } = Object;
  const { apply } = Reflect;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const slice = uncurry(String.prototype.slice);
  const toWellFormed = uncurry(String.prototype.toWellFormed);
  const clip = (string) => toWellFormed(string.length > 1024 ? slice(string, 0, 1024) : string);

  // Forbid code from strings. A function's `constructor` is another way to `Function`.
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

  // QuickJS seeds its generator from the clock, and would repeat the numbers in every call.
  defineProperty(Math, 'random', { value: { random: () => host.random() }.random });

  // The engine cannot interrupt its built-in functions. An array can be billions of holes long and
  // take no memory, so `Array(n).join()` could block Envoy for minutes, as could a search for half
  // a megabyte in another string. The functions that are named below check their lengths in
  // advance.
  const tooLong = (what) => {
    throw new RangeError(`${what} too long`);
  };
  const boundedArray = (array) => {
    const length = array?.length;
    if (!(length > 1000)) return 0;
    host.look();
    return length > 131_072 ? tooLong('array') : length;
  };
  const boundedString = (string, sought) => {
    const length = string?.length;
    if (!(length > 1000)) return;
    host.look();
    if (length > 131_072) tooLong('string');
    if (typeof sought === 'string' && length * sought.length > 4_194_304) tooLong('what is looked for is');
  };
  const guard = (object, names, check) => {
    for (const name of names) {
      const method = object[name];
      if (typeof method !== 'function') continue;
      const { [name]: wrapper } = {
        [name](...values) {
          check(this, values);
          return apply(method, this, values);
        },
      };
      defineProperty(wrapper, 'length', { value: method.length });
      defineProperty(object, name, { value: wrapper });
    }
  };
  // A letter can have any number of marks, and `normalize` sorts them one by one.
  const boundedMarks = (string) => {
    if (string?.length > 4096) tooLong('string');
  };
  // Making a string costs as much as reading it. Longer ones exceed every script's memory anyway.
  const boundedMade = (length) => {
    if (length > 1_048_576 && length <= 67_108_864) tooLong('string');
  };
  const instant = [
    'constructor', 'at', 'entries', 'keys', 'pop', 'push', 'subarray', 'toString', 'values', 'with', 'buffer', 'byteLength',
    'byteOffset', 'length',
  ];
  const TypedArray = getPrototypeOf(Uint8Array);
  for (const { prototype } of [Array, TypedArray]) {
    guard(prototype, getOwnPropertyNames(prototype).filter((name) => !instant.includes(name)), boundedArray);
  }
  guard(Array.prototype, ['concat'], (array, values) => {
    let length = boundedArray(array);
    for (let i = 0; i < values.length; i++) length += boundedArray(values[i]);
    if (length > 131_072) tooLong('array');
  });
  guard(String.prototype, [
    'includes', 'indexOf', 'isWellFormed', 'lastIndexOf', 'localeCompare', 'match', 'matchAll', 'replace', 'replaceAll', 'search', 'split', 'toLocaleLowerCase', 'toLocaleUpperCase', 'toLowerCase', 'toUpperCase',
    'toWellFormed', 'trim', 'trimEnd', 'trimStart',
  ], (string, values) => boundedString(string, values[0]));
  guard(String.prototype, ['normalize'], boundedMarks);
  guard(String.prototype, ['repeat'], (string, values) => boundedMade(string?.length * values[0]));
  guard(String.prototype, ['padEnd', 'padStart'], (_, values) => boundedMade(values[0]));
  const ofString = (_, values) => boundedString(values[0]);
  guard(globalThis, [
    'decodeURI', 'decodeURIComponent', 'encodeURI', 'encodeURIComponent', 'escape', 'parseFloat', 'parseInt', 'unescape',
  ], ofString);
  guard(JSON, ['parse'], ofString);
  guard(Date, ['parse'], ofString);
  guard(Iterator.prototype, ['drop'], (_, values) => {
    if (values[0] > 131_072) tooLong('what is dropped is');
  });
  guard(String, ['raw'], (_, values) => boundedArray(values[0]?.raw));

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

  return (input) => {
    const { token } = input;
    if (token) {
      token.accountId = token.sub;
      token.clientId = token.client_id;
    }
    input.environmentVariables = environmentVariables;
    input.api = api;
    return input;
  };
}

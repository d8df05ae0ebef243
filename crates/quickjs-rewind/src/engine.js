// What the engine does in JavaScript. Evaluated before the script, which can reach none of this: it
// may replace what is built in, but not what was taken from there before.
(() => {
  'use strict';
  const { stringify } = JSON;
  const { Error, Object, TypeError } = globalThis;
  const { isArray } = Array;
  const { getOwnPropertyDescriptor, getPrototypeOf, hasOwn } = Object;
  const { ownKeys } = Reflect;
  const [ofObjects, ofArrays] = [Object.prototype, Array.prototype];
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const slice = uncurry(String.prototype.slice);
  const toWellFormed = uncurry(String.prototype.toWellFormed);
  const text = (value) => {
    const string = typeof value === 'symbol' ? 'a symbol' : `${value}`;
    return toWellFormed(string.length > 1000 ? slice(string, 0, 1000) : string);
  };

  // JSON that says all of a value, or an error that names what it would not say. `JSON.stringify` leaves out what it
  // has no word for, and believes `toJSON`, getters and proxies; this asks nobody, and reads everything once.
  const exact = (isProxy) => {
    const no = (path, what) => {
      throw new TypeError(`${path} ${what}`);
    };
    // A property's own value, where JSON would look at it.
    const member = (object, key, path) => {
      const property = getOwnPropertyDescriptor(object, key);
      if (!property || !hasOwn(property, 'value')) no(path, 'has a getter');
      if (!property.enumerable) no(path, 'is not enumerable');
      return property.value;
    };
    const array = (value, path) => {
      const { length } = value;
      // The indices, and `length`.
      if (ownKeys(value).length !== length + 1) no(path, 'has a hole, or more than its items');
      let json = '';
      for (let i = 0; i < length; i++) {
        const item = `${path}[${i}]`;
        if (!hasOwn(value, i)) no(item, 'is not there');
        json += (i > 0 ? ',' : '') + write(member(value, i, item), item);
      }
      return `[${json}]`;
    };
    const object = (value, path) => {
      const keys = ownKeys(value);
      let json = '';
      for (let i = 0; i < keys.length; i++) {
        const key = keys[i];
        if (typeof key === 'symbol') no(path, 'has a symbol for a name');
        json += `${i > 0 ? ',' : ''}${stringify(key)}:${write(member(value, key, key), key)}`;
      }
      return `{${json}}`;
    };
    const write = (value, path) => {
      const type = typeof value;
      if (value === null || type === 'string' || type === 'boolean') return stringify(value);
      if (type === 'number') return value - value === 0 ? stringify(value) : no(path, `is ${value}`);
      if (type !== 'object') return no(path, `is ${type === 'undefined' ? type : `a ${type}`}`);
      if (isProxy(value)) no(path, 'is a proxy');
      const prototype = getPrototypeOf(value);
      if (isArray(value)) {
        return prototype === ofArrays ? array(value, path) : no(path, 'is no plain array');
      }
      // What stands in a prototype looks like a member, and is none.
      if (prototype !== null && prototype !== ofObjects) no(path, 'is no plain object');
      for (const name in value) if (!hasOwn(value, name)) no(name, 'is inherited');
      return object(value, path);
    };
    return (value) => write(value, 'what is returned');
  };

  return {
    // The call, from the argument of the host to what the script's function returns.
    enter: (prepare, callee) => (input) => callee(prepare(input)),

    // Awaited, because `await` waits for a promise even where a script has replaced its `then`.
    wait: async (returned) => await returned,

    // The JSON of a value, its length where it is too long, undefined where it has none.
    finish: (value, longest) => {
      const json = stringify(value);
      return json?.length > longest ? json.length : json;
    },

    // The same of an object that JSON says all of. What is no object at all has none.
    finishExactly: (isProxy) => {
      const write = exact(isProxy);
      return (value, longest) => {
        if (Object(value) !== value || typeof value === 'function') return undefined;
        const json = write(value);
        return json.length > longest ? json.length : json;
      };
    },

    // What was thrown, and where.
    describe: (thrown) => {
      try {
        if (Object(thrown) !== thrown) return [text(thrown), ''];
        if (!(thrown instanceof Error)) return ['an object that is not an Error', ''];
        const { name, message, stack } = thrown;
        return [message === '' ? text(name) : `${text(name)}: ${text(message)}`, text(stack)];
      } catch {
        return ['an error that cannot be read', ''];
      }
    },
  };
})()

// The engine's JavaScript. It is evaluated before the script, which cannot reach it: a script may
// replace built-ins, but not the references taken here.
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

  // Writes JSON that expresses the whole value, or throws an error that names the part that JSON
  // cannot express. Unlike `JSON.stringify` it skips nothing, and calls no `toJSON`, getter or
  // proxy. It reads everything once.
  const exact = (isProxy) => {
    const no = (path, what) => {
      throw new TypeError(`${path} ${what}`);
    };
    // Returns a property's own value, if it is plain data.
    const member = (object, key, path) => {
      const property = getOwnPropertyDescriptor(object, key);
      if (!property || !hasOwn(property, 'value')) no(path, 'has a getter');
      if (!property.enumerable) no(path, 'is not enumerable');
      return property.value;
    };
    const array = (value, path) => {
      const { length } = value;
      // The keys must be the indices and `length`.
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
      // JSON would not show an inherited member.
      if (prototype !== null && prototype !== ofObjects) no(path, 'is no plain object');
      for (const name in value) if (!hasOwn(value, name)) no(name, 'is inherited');
      return object(value, path);
    };
    return (value) => write(value, 'what is returned');
  };

  return {
    // Calls the script's function with the argument made from the host's input.
    enter: (prepare, callee) => (input) => callee(prepare(input)),

    // `await` waits for a promise even if a script has replaced its `then`.
    wait: async (returned) => await returned,

    // Returns the JSON of a value, its length if it is too long, or undefined if it has none.
    finish: (value, longest) => {
      const json = stringify(value);
      return json?.length > longest ? json.length : json;
    },

    // As `finish`, for an object that JSON can express in full. Other values have no JSON.
    finishExactly: (isProxy) => {
      const write = exact(isProxy);
      return (value, longest) => {
        if (Object(value) !== value || typeof value === 'function') return undefined;
        const json = write(value);
        return json.length > longest ? json.length : json;
      };
    },

    // Returns the message and the stack of a thrown value.
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

// What the engine does in JavaScript. Evaluated before the script, which can reach none of this: it
// may replace what is built in, but not what was taken from there before.
(() => {
  'use strict';
  const { stringify } = JSON;
  const { Error, Object } = globalThis;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const slice = uncurry(String.prototype.slice);
  const toWellFormed = uncurry(String.prototype.toWellFormed);
  const text = (value) => {
    const string = typeof value === 'symbol' ? 'a symbol' : `${value}`;
    return toWellFormed(string.length > 1000 ? slice(string, 0, 1000) : string);
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

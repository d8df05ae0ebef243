// Requests that are sent, and shown as the curl line that does the same. Values that are kept as
// shell variables are shown by name, so that a line stays readable and can be pasted.

const variables = new Map();
/** The names of variables that are good for one request only. */
const passing = new Set();

/** From now on `value` is shown as `$name`. */
export function keep(name, value) {
  variables.set(name, value);
  return value;
}

/** Does the same for a value that nobody can use again: it is no assignment. */
export function mention(name, value) {
  passing.add(name);
  return keep(name, value);
}

export function assignments() {
  return [...variables].filter(([name]) => !passing.has(name)).map(([name, value]) => `${name}='${value}'`);
}

/**
 * `basic` is [user, password]; `form` and `json` are the body. `bearer` is an access token, and
 * `bound` one that is bound to the key of `proof`.
 */
export function curl({ url, basic, bearer, bound, proof, form, json }) {
  const words = [`curl -s ${quote(url)}`];
  if (basic) words.push(`-u ${quote(basic.join(':'))}`);
  if (bearer) words.push(`-H ${quote(`Authorization: Bearer ${bearer}`)}`);
  if (bound) words.push(`-H ${quote(`Authorization: DPoP ${bound}`)}`);
  if (proof) words.push(`-H ${quote(`DPoP: ${proof}`)}`);
  if (json) words.push(`-H 'Content-Type: application/json'`, `-d ${quote(JSON.stringify(json))}`);
  for (const field of Object.entries(form ?? {})) {
    const asIs = /^[\w:/.~-]*$/.test(field[1]);
    words.push(`${asIs ? '-d' : '--data-urlencode'} ${quote(field.join('='))}`);
  }
  return words.join(' \\\n  ');
}

/** `method` is GET, or POST if there is a body, unless it is given. */
export async function send({ url, method, basic, bearer, bound, proof, form, json }) {
  const headers = {};
  if (basic) headers.authorization = `Basic ${Buffer.from(basic.join(':')).toString('base64')}`;
  if (bearer) headers.authorization = `Bearer ${bearer}`;
  if (bound) headers.authorization = `DPoP ${bound}`;
  if (proof) headers.dpop = proof;
  if (json) headers['content-type'] = 'application/json';
  const body = json ? JSON.stringify(json) : form && new URLSearchParams(form);
  const response = await fetch(url, { method: method ?? (body ? 'POST' : 'GET'), headers, body });
  const text = await response.text();
  return { status: response.status, reason: response.statusText, headers: response.headers, text, json: parsed(text) };
}

function quote(word) {
  for (const [name, value] of variables) {
    if (word.includes(value)) return `"${word.replaceAll(value, `$${name}`)}"`;
  }
  return /^[\w:/.=-]+$/.test(word) ? word : `'${word.replaceAll(`'`, `'\\''`)}'`;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

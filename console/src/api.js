// The requests of the page: list, end one, end many. The server decides all of it; the page only
// puts its answers into words.
import { configuration } from './configuration.js';

const PATIENCE_MS = 8_000;

/**
 * What went wrong: `signed-out`, `forbidden`, `gone`, `busy`, `unavailable` (the filter answers, and
 * cannot read its store), `unreachable` (nobody answers) or `unexpected`.
 */
export class Trouble extends Error {
  constructor(kind, { retryAfter, description = '' } = {}) {
    super(description || kind);
    Object.assign(this, { kind, retryAfter, description });
  }
}

const KINDS = { 401: 'signed-out', 403: 'forbidden', 404: 'gone', 429: 'busy', 502: 'unreachable', 503: 'unavailable', 504: 'unreachable' };

async function request(token, path, { method = 'GET', json, signal } = {}) {
  const timeout = AbortSignal.timeout(PATIENCE_MS);
  let response;
  let body;
  try {
    response = await fetch(configuration.impersonations + path, {
      method,
      headers: { authorization: `Bearer ${token}`, ...(json && { 'content-type': 'application/json' }) },
      body: json && JSON.stringify(json),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
    const text = await response.text();
    const isJson = /^application\/json\b/.test(response.headers.get('content-type'));
    body = isJson && text ? JSON.parse(text) : {};
    if (response.status === 200 && !isJson) throw new Trouble('unexpected', { description: 'the list is not JSON' });
  } catch (error) {
    signal?.throwIfAborted();
    throw error instanceof Trouble ? error : new Trouble('unreachable');
  }
  if (!response.ok) {
    // A 503 without the filter's words is Envoy's own: nobody behind it answers.
    const kind = response.status === 503 && !body.error ? 'unreachable' : KINDS[response.status] ?? 'unexpected';
    throw new Trouble(kind, {
      retryAfter: Number(response.headers.get('retry-after')) || undefined,
      description: body.error_description ?? `status ${response.status}`,
    });
  }
  return { body, date: Date.parse(response.headers.get('date')) };
}

/** One part of the list, and the server's time. */
export function list(token, cursor, signal) {
  const query = new URLSearchParams({ limit: 1000, ...(cursor && { cursor }) });
  return request(token, `?${query}`, { signal });
}

export function endOne(token, id) {
  return request(token, `/${encodeURIComponent(id)}`, { method: 'DELETE' });
}

/** `members` is the body of the revocation: names, or `{all: true}`. */
export async function endMany(token, members) {
  return (await request(token, '/revocations', { method: 'POST', json: members })).body;
}

// The requests of the page: list, end one, end many; list what waits for approval, and decide. The
// server decides all of it; the page only puts its answers into words.
import { configuration } from './configuration.js';

const PATIENCE_MS = 8_000;

/**
 * What went wrong: `signed-out`, `forbidden`, `gone`, `decided` (by somebody else), `busy`,
 * `unavailable` (the filter answers, and cannot read its store), `unreachable` (nobody answers) or
 * `unexpected`. `code` is the filter's word for it.
 */
export class Trouble extends Error {
  constructor(kind, { retryAfter, code, description = '' } = {}) {
    super(description || kind);
    Object.assign(this, { kind, retryAfter, code, description });
  }
}

const KINDS = { 401: 'signed-out', 403: 'forbidden', 404: 'gone', 409: 'decided', 429: 'busy', 502: 'unreachable', 503: 'unavailable', 504: 'unreachable' };

async function request(token, address, { method = 'GET', json, signal } = {}) {
  const timeout = AbortSignal.timeout(PATIENCE_MS);
  let response;
  let body;
  try {
    response = await fetch(address, {
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
      code: body.error,
      description: body.error_description ?? `status ${response.status}`,
    });
  }
  return { body, date: Date.parse(response.headers.get('date')) };
}

/** One part of a list. */
async function part(token, address, name, { limit, cursor, signal }) {
  const query = new URLSearchParams({ limit, ...(cursor && { cursor }) });
  const { body, date } = await request(token, `${address}?${query}`, { signal });
  return { entries: body[name], cursor: body.cursor, complete: body.complete, date };
}

/** One part of the list of impersonations, and the server's time. */
export function list(token, cursor, signal) {
  return part(token, configuration.impersonations, 'impersonations', { limit: 1000, cursor, signal });
}

/** One part of what waits for approval, and the server's time. */
export function listWaiting(token, cursor, signal) {
  return part(token, configuration.approvals, 'approvals', { limit: 200, cursor, signal });
}

/** `decision` is `approve` or `deny`. Returns what has become of the request. */
export async function decide(token, id, decision, reason) {
  const json = { decision, ...(reason && { reason }) };
  return (await request(token, `${configuration.approvals}/${encodeURIComponent(id)}`, { method: 'POST', json })).body;
}

export function endOne(token, id) {
  return request(token, `${configuration.impersonations}/${encodeURIComponent(id)}`, { method: 'DELETE' });
}

/** `members` is the body of the revocation: names, or `{all: true}`. */
export async function endMany(token, members) {
  return (await request(token, `${configuration.impersonations}/revocations`, { method: 'POST', json: members })).body;
}

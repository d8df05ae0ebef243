// The list of live impersonations, read again and again while somebody looks.
//
// A large list comes in parts. The first time, parts are shown before the whole is read; later, the
// whole replaces the whole, so that nothing seems to end because it is not read yet.
import { list } from './api.js';

const REST_MS = 3_000;
const RETRY_MS = 2_000;
/** A list older than this is called stale. */
const STALE_MS = 10_000;

export class Live {
  rows = [];
  /** When the reading of these rows began; undefined before the first part. */
  asOf;
  complete = true;
  /** All parts were read once. */
  whole = false;
  /** Why the list could not be read. */
  trouble;
  troubleSince;
  /** The server's clock, as it differs from this one. */
  #ahead = 0;
  #stop = new AbortController();
  #wake = () => {};

  /** `changed` is called after each change. */
  constructor(token, changed) {
    this.changed = changed;
    this.#run(token);
    document.addEventListener('visibilitychange', () => this.#wake(), { signal: this.#stop.signal });
    addEventListener('online', () => this.#wake(), { signal: this.#stop.signal });
  }

  stop() {
    this.#stop.abort();
    this.#wake();
  }

  /** Reads the list now. */
  again() {
    this.#again = true;
    this.#wake();
  }

  #again = false;

  get now() {
    return Date.now() + this.#ahead;
  }

  get stale() {
    return this.asOf !== undefined && Date.now() - this.asOf > STALE_MS;
  }

  async #run(token) {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const began = Date.now();
      let rest;
      this.#again = false;
      try {
        await this.#read(token, began, signal);
        this.trouble = undefined;
        // A list that takes long to read is read less often.
        rest = Math.max(REST_MS, Date.now() - began);
      } catch (error) {
        if (signal.aborted) return;
        if (this.trouble === undefined) this.troubleSince = began;
        this.trouble = error;
        rest = (error.retryAfter ?? 0) * 1_000 || RETRY_MS;
        if (['signed-out', 'forbidden'].includes(error.kind)) return this.changed();
      }
      this.changed();
      await this.#pause(rest);
      while (document.hidden && !signal.aborted) await this.#pause(2 ** 30);
    }
  }

  async #read(token, began, signal) {
    const known = new Map(this.whole ? this.rows.map((row) => [row.id, row]) : []);
    const rows = [];
    let complete = true;
    let cursor;
    do {
      const { body, date } = await list(token, cursor, signal);
      for (const entry of body.impersonations) rows.push(known.get(entry.id) ?? row(entry));
      cursor = body.cursor;
      complete &&= body.complete;
      // The header has whole seconds: a smaller difference is none.
      const ahead = date + 500 - Date.now();
      this.#ahead = Math.abs(ahead) > 2_000 ? ahead : 0;
      // Each drawing sorts all rows, so the next one waits until there are twice as many.
      if (!cursor || (!this.whole && rows.length >= 2 * this.rows.length)) {
        Object.assign(this, { rows: cursor ? [...rows] : rows, complete, asOf: began, whole: this.whole || !cursor });
        if (cursor) this.changed();
      }
    } while (cursor);
  }

  #pause(ms) {
    if (this.#again) return undefined;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** What filters name, and their words. */
export const MEMBERS = { actorId: 'actor', userId: 'user', clientId: 'client', caller: 'caller', resource: 'resource' };

function row(entry) {
  const { context = {} } = entry;
  const words = [entry.id, entry.scope, ...Object.keys(MEMBERS).map((name) => entry[name]), ...Object.values(context).map(textOf)];
  return {
    ...entry,
    context: Object.entries(context),
    began: Date.parse(entry.issuedAt),
    until: Date.parse(entry.expiresAt),
    haystack: words.join('\n').toLowerCase(),
  };
}

/** A value of a context, which is any JSON. */
export function textOf(value) {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

const compare = (a = '', b = '') => (a < b ? -1 : Number(a > b));
const by = (name) => (a, b) => compare(a[name], b[name]) || b.began - a.began;

export const ORDERS = {
  newest: { words: 'newest first', compare: (a, b) => b.began - a.began || compare(b.id, a.id) },
  oldest: { words: 'oldest first', compare: (a, b) => a.began - b.began || compare(a.id, b.id) },
  left: { words: 'least time left first', compare: (a, b) => a.until - b.until || compare(a.id, b.id) },
  actor: { words: 'by actor', compare: by('actorId') },
  user: { words: 'by user', compare: by('userId') },
};

/** The rows that have all of these members and words, in order. */
export function select(rows, { members = {}, search = '', order = 'newest' }) {
  const named = Object.entries(members);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return rows
    .filter((row) => named.every(([name, value]) => row[name] === value) && words.every((word) => row.haystack.includes(word)))
    .sort(ORDERS[order].compare);
}

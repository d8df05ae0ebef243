// A list of the filter, read again and again while somebody looks.
//
// A large list comes in parts. The first time, parts are shown before the whole is read; later, the
// whole replaces the whole, so that nothing seems to end because it is not read yet.
import { useEffect, useMemo, useState } from 'preact/hooks';

const REST_MS = 3_000;
const RETRY_MS = 2_000;
/** Days. */
const LONG_MS = 2 ** 30;
/** A list older than this is called stale. */
const STALE_MS = 10_000;

class Reading {
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

  /**
   * `read` reads a part, from a cursor. `rowOf` makes a row of an entry. `changed` is called after
   * each change.
   */
  constructor(read, rowOf, changed) {
    Object.assign(this, { read, rowOf, changed });
    this.#run();
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

  /** One word for how good the list is. */
  get word() {
    if (this.asOf === undefined) return this.trouble ? 'no list' : 'loading';
    if (this.stale) return 'stale';
    if (!this.whole) return 'reading on';
    return this.complete ? 'up to date' : 'incomplete';
  }

  async #run() {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const began = Date.now();
      let rest;
      this.#again = false;
      try {
        await this.#readAll(began, signal);
        this.trouble = undefined;
        // A list that takes long to read is read less often.
        rest = Math.max(REST_MS, Date.now() - began);
      } catch (error) {
        if (signal.aborted) return;
        if (this.trouble === undefined) this.troubleSince = began;
        this.trouble = error;
        rest = (error.retryAfter ?? 0) * 1_000 || RETRY_MS;
        if (error.kind === 'signed-out') return this.changed();
        // Another answer may come when the person comes back to the tab, or asks for it.
        if (error.kind === 'forbidden') rest = LONG_MS;
      }
      this.changed();
      await this.#pause(rest);
      while (document.hidden && !signal.aborted) await this.#pause(LONG_MS);
    }
  }

  async #readAll(began, signal) {
    const known = new Map(this.whole ? this.rows.map((row) => [row.id, row]) : []);
    const rows = [];
    let complete = true;
    let cursor;
    do {
      const part = await this.read(cursor, signal);
      for (const entry of part.entries) rows.push(this.rowOf(entry, known.get(entry.id)));
      cursor = part.cursor;
      complete &&= part.complete;
      // The header has whole seconds: a smaller difference is none.
      const ahead = part.date + 500 - Date.now();
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

/** Reads a list while `session` lasts. Without `read` there is none. */
export function useReading(session, read, rowOf) {
  const [, draw] = useState(0);
  const changed = () => draw((times) => times + 1);
  const reading = useMemo(() => read && new Reading((...part) => read(session.token, ...part), rowOf, changed), [session]);
  useEffect(() => () => reading?.stop(), [reading]);
  return reading;
}

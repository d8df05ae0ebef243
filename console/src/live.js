// The rows of the list of live impersonations: what is searched, filtered and sorted.

/** The members that a filter can name, and their words. */
export const MEMBERS = { actorId: 'actor', userId: 'user', clientId: 'client', caller: 'caller', resource: 'resource' };

/** An impersonation never changes, so a row that is known stays. */
export function rowOf(entry, known) {
  if (known) return known;
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

const escape = (strings, ...values) =>
  strings.raw.reduce((text, part, i) => text + part + (i < values.length ? encodeURIComponent(values[i]) : ''), '');

const getCustomJwtClaims = async ({ token, context }) => {
  const { reason } = context.grant.subjectTokenContext;
  const words = reason.trim().split(/[^\p{L}\p{N}]+/u).filter(Boolean);

  return {
    url: escape`https://support.example.com/users/${token.sub}?reason=${reason}`,
    initials: words.map(([initial]) => initial.toLocaleUpperCase()).join(''),
    slug: reason.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase().replaceAll(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, ''),
    padded: token.sub.slice(-3).padStart(6, '0'),
    masked: token.sub.replace(/(?<=^.{2}).*(?=\d)/, (hidden) => '*'.repeat(hidden.length)),
    length: [reason.length, [...reason].length],
    codes: Array.from('aé😀', (character) => character.codePointAt(0).toString(16)),
    at: reason.at(-1),
    compare: ['b', 'a', 'C'].sort((a, b) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1)).join(''),
    raw: String.raw`\n`,
    multiline: `one
two`,
  };
};

const LEVELS = Object.freeze({ read: 1, write: 2, admin: 3 });
const PATTERN = /^(?<api>[a-z]+):(?<verb>read|write|admin)$/;

/** The highest level for each API. */
function levels(scope) {
  const found = new Map();
  for (const name of new Set(scope.split(/\s+/))) {
    const match = PATTERN.exec(name);
    if (!match) continue;
    const { api, verb } = match.groups;
    found.set(api, Math.max(found.get(api) ?? 0, LEVELS[verb]));
  }
  return found;
}

const getCustomJwtClaims = async ({ token }) => {
  const granted = levels(token.scope);
  return {
    levels: Object.fromEntries([...granted].sort(([a], [b]) => a.localeCompare(b))),
    apis: granted.size,
    verbs: [...token.scope.matchAll(/:(\w+)/g)].map(([, verb]) => verb),
  };
};

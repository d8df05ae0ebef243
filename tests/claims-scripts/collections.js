const seen = new WeakSet();

const getCustomJwtClaims = async ({ context }) => {
  const { tickets } = context.grant.subjectTokenContext;
  const byProject = tickets.reduce((all, { project, id }) => {
    (all[project] ??= []).push(id);
    return all;
  }, {});
  const index = new Map(tickets.map((ticket) => [ticket.id, ticket]));
  const { length, 0: first, [length - 1]: last } = tickets;
  seen.add(first);

  function* pairs(list) {
    for (const [i, item] of list.entries()) if (i % 2 === 0) yield [item.id, list[i + 1]?.id];
  }

  return {
    byProject,
    sorted: tickets.toSorted((a, b) => b.id - a.id).map(({ id }) => id),
    unchanged: tickets.map(({ id }) => id),
    found: tickets.findLast(({ project }) => project === 'SHOP')?.id,
    has: [index.has(3), index.get(2).project, seen.has(first), seen.has(last)],
    pairs: [...pairs(tickets)],
    flat: [[1], [2, [3, [4]]]].flat(Infinity),
    filled: Array.from({ length: 3 }, (_, i) => i ** 2),
    unique: [...new Set(tickets.map(({ project }) => project))],
    nested: tickets.some(({ id }) => id > 2) && tickets.every(({ id }) => Number.isInteger(id)),
    keys: Reflect.ownKeys({ b: 1, a: 2, 1: 3 }),
    spliced: ((list) => [list.splice(1, 2), list])([1, 2, 3, 4]),
    proxy: new Proxy({}, { get: (_, name) => `no ${String(name)}` }).such,
    tagged: Object.prototype.toString.call(new Map()),
  };
};

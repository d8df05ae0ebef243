const getCustomJwtClaims = async ({ context }) => {
  const { subjectTokenContext } = context.grant;
  const copy = JSON.parse(JSON.stringify(subjectTokenContext));
  copy.changed = true;
  const { secret, ...visible } = subjectTokenContext;

  return {
    visible,
    text: JSON.stringify(visible, (name, value) => (typeof value === 'number' ? value + 1 : value)),
    pretty: JSON.stringify({ a: [1, {}], b: [] }, null, 2),
    only: JSON.stringify(visible, ['n', 'list']),
    dates: JSON.parse('{"at":"2024-01-01"}', (name, value) => (name === 'at' ? new Date(value).getTime() : value)).at,
    dropped: [undefined, () => 1, NaN, Infinity, -0, new Date(0), /x/, new Map([[1, 2]]), Symbol('s')],
    unchanged: subjectTokenContext.changed ?? 'unchanged',
    order: { 10: 'ten', b: 1, 2: 'two', a: 2, 1: 'one' },
    escapes: '"\\/\b\f\n\r\t\u0000\u001f\u007f\u2028😀',
    boxed: [new String('s'), new Number(1), Object(true)],
    proto: JSON.parse('{"__proto__": 1}'),
  };
};

const later = (value) => new Promise((resolve) => resolve(value)).then((value) => value);
const never = async (reason) => {
  throw new Error(reason);
};

async function* numbers(upTo) {
  for (let n = 1; n <= upTo; n += 1) yield await later(n);
}

const getCustomJwtClaims = async ({ context, environmentVariables }) => {
  const order = [];
  queueMicrotask(() => order.push('microtask'));
  order.push('first');

  const [a, b] = await Promise.all([later('a'), later('b')]);
  const settled = await Promise.allSettled([later(1), never('no')]);
  const fastest = await Promise.race([later('race'), new Promise(() => {})]);
  const any = await Promise.any([never('x'), later('any')]);

  let sum = 0;
  for await (const n of numbers(4)) sum += n;

  let caught;
  try {
    await never('caught');
  } catch ({ message }) {
    caught = message;
  } finally {
    order.push('last');
  }

  return {
    letters: a + b,
    settled: settled.map(({ status, reason }) => reason?.message ?? status),
    fastest,
    any,
    sum,
    caught,
    order,
    thenable: await { then: (resolve) => resolve('thenable') },
  };
};

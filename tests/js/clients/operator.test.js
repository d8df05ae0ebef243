// Promises of envoy.yaml to its operator besides the filter: rate limits, that the admin interface
// is not public, and that a probe passes. browser.test.js has the cross-origin rules.
import assert from 'node:assert/strict';
import { get } from 'node:http';
import { after, before, test } from 'node:test';
import { probe } from '../stack/probe.js';
import { stopAll } from '../stack/process.js';
import { credentials } from '../stack/client.js';
import { startStack } from '../stack/shipped.js';

const ENDPOINTS = ['/api/subject-tokens', '/oidc/token'];

let stack;

before(async () => {
  stack = await startStack();
});

after(stopAll);

test('two spellings of a path reach one route', async () => {
  for (const path of ['//oidc/jwks', '/x/../oidc/jwks', '/oidc/./jwks']) {
    // A raw request, because fetch would normalise the path itself.
    assert.equal((await rawGet(path)).status, 200, path);
  }
  assert.equal((await rawGet('/x/../orders/1')).status, 401);
  assert.equal((await rawGet('/orders%2f1')).status, 307);
});

test('the admin interface is not on the public listener', async () => {
  for (const path of ['/ready', '/config_dump', '/quitquitquit']) {
    assert.equal((await fetch(`${stack.origin}${path}`, { method: 'POST' })).status, 404);
  }
});

test('a probe passes on every address, and leaves nothing behind', async () => {
  const { origin } = stack;
  const tokens = await credentials(origin);
  const other = origin.replace('127.0.0.1', 'localhost');
  const { status, printed } = await probe({ origin, apis: [origin, other], tokens });
  assert.equal(status, 0, printed);
  for (const secret of Object.values(tokens)) assert.ok(!printed.includes(secret));
  const list = await fetch(`${origin}/api/impersonations?userId=user-42`, { headers: { authorization: `Bearer ${tokens.operator}` } });
  assert.deepEqual((await list.json()).impersonations, []);
});

// This test is the last: for a second afterwards this address has no requests left.
for (const path of ENDPOINTS) {
  test(`${path}: too many requests from one address are refused, in JSON and with Retry-After`, async () => {
    // Many requests at once: one after the other they can be slower than the limit.
    let answer;
    for (let rounds = 0; answer === undefined; rounds += 1) {
      assert.ok(rounds < 50, 'no limit was met');
      const answers = await Promise.all(Array.from({ length: 400 }, async () => {
        const response = await fetch(`${stack.origin}${path}`, { method: 'POST', body: '', headers: { origin: 'http://localhost:3000' } });
        return { status: response.status, headers: response.headers, text: await response.text() };
      }));
      answer = answers.find(({ status }) => status === 429);
    }
    assert.equal(answer.headers.get('content-type'), 'application/json');
    assert.equal(answer.headers.get('retry-after'), '1');
    assert.equal(JSON.parse(answer.text).error, 'temporarily_unavailable');
    // The support client's page can read the answer, on paths that pages may use.
    const page = path === '/oidc/token' ? 'http://localhost:3000' : null;
    assert.equal(answer.headers.get('access-control-allow-origin'), page);
  });
}

async function rawGet(path) {
  const { hostname, port } = new URL(stack.origin);
  return new Promise((resolve, reject) => {
    get({ hostname, port, path }, (response) => {
      response.resume().on('end', () => resolve({ status: response.statusCode }));
    }).on('error', reject);
  });
}

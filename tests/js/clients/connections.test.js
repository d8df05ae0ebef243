// When Envoy keeps a connection open and when it closes it. envoy.yaml decides most of it, so a
// plain server stands in the place of the gateway.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { stopAll } from '../stack/process.js';
import { serve } from '../stack/server.js';
import { newPorts, startEnvoyOn } from '../stack/shipped.js';

const EXCHANGE = 'grant_type=urn:ietf:params:oauth:grant-type:token-exchange&client_id=support-console&subject_token=sub_a';
const FORM = 'content-type: application/x-www-form-urlencoded';
const SECOND = 1000;

let ports;

before(async () => {
  ports = await newPorts();
  await serve((request, response) => {
    if (request.url === '/never') return;
    response.writeHead(request.url === '/oidc/jwks' ? 404 : 200).end();
  }, ports.gateway);
  // The shipped configuration with shorter time limits.
  await startEnvoyOn(ports, (yaml) => [
    ['idle_timeout: 300s', 'idle_timeout: 3s'],
    ['request_timeout: 30s', 'request_timeout: 2s'],
    ['stream_idle_timeout: 60s', 'stream_idle_timeout: 2s'],
  ].reduce((edited, [long, short]) => {
    // Once in the public listener, and once in that of browser sessions.
    assert.equal(edited.split(long).length, 3, long);
    return edited.replaceAll(long, short);
  }, yaml));
});

after(stopAll);

for (const [what, ...request] of [
  ['a refused exchange', 400, `POST /oidc/token`, EXCHANGE, FORM],
  ['a client that is not known', 401, `POST /oidc/token`, EXCHANGE.replace('support', 'no'), FORM],
  ['a mint without a bearer', 401, `POST /api/subject-tokens`, '{}'],
  ['a method that is not allowed', 405, `GET /api/subject-tokens`],
  ['a token that is missing', 401, `GET /orders/1`],
]) {
  test(`the connection stays open after ${what}`, async () => {
    const [status, line, body = '', ...headers] = request;
    const connection = open();
    for (let times = 0; times < 3; times += 1) {
      const answer = await connection.ask(http(line, [...headers, `content-length: ${body.length}`], body));
      assert.equal(answer.status, status);
      assert.equal(answer.closes, false);
    }
    connection.end();
  });
}

for (const [what, status, bytes] of [
  ['a body that is too long to be read', 413, http('POST /oidc/token', [FORM, 'content-length: 90000'], `${EXCHANGE}&a=${'a'.repeat(70_000)}`)],
  ['a body behind a method that is not allowed', 405, http('PUT /api/subject-tokens', ['content-length: 100'], 'abc')],
  ['bytes that are not HTTP', 400, 'hello\r\n\r\n'],
  ['a bad chunk', 400, http('POST /oidc/token', [FORM, 'transfer-encoding: chunked'], 'zz\r\n')],
  ['a length beside chunks', 400, http('POST /oidc/token', ['content-length: 5', 'transfer-encoding: chunked'], '0\r\n\r\n')],
  ['two lengths', 400, http('POST /oidc/token', ['content-length: 5', 'content-length: 6'], 'abcdef')],
  ['a malformed header field', 400, http('GET /oidc/jwks', ['a b: c'])],
  ['a header field with an underscore', 400, http('GET /oidc/jwks', ['a_b: c'])],
]) {
  test(`the connection is closed after ${what}`, async () => {
    const connection = open();
    const answer = await connection.ask(bytes);
    assert.equal(answer.status, status);
    assert.equal(answer.closes, true);
    await connection.closed;
  });
}

test('a body that is too long is refused in the form that OAuth clients expect', async () => {
  const answer = await fetch(`http://127.0.0.1:${ports.public}/oidc/token`, {
    method: 'POST', body: new URLSearchParams(`${EXCHANGE}&a=${'a'.repeat(100_000)}`),
  });
  assert.equal(answer.status, 413);
  assert.equal((await answer.json()).error, 'invalid_request');
});

// The time limits are the shortened ones from above.
test('a slow sender is cut off', async () => {
  const connection = open();
  const answer = await connection.ask(http('POST /oidc/token', [FORM, 'content-length: 100'], 'grant_type='));
  assert.equal(answer.status, 408);
  await connection.closed;
});

test('Envoy does not wait for a silent gateway', async () => {
  const began = Date.now();
  const answer = await open().ask(http('GET /never'));
  assert.ok([408, 504].includes(answer.status), String(answer.status));
  assert.ok(Date.now() - began < 20 * SECOND); // 30 s in envoy.yaml
});

test('an idle connection is closed', async () => {
  const connection = open();
  assert.equal((await connection.ask(http('GET /elsewhere'))).status, 200);
  await connection.closed;
});

function http(line, headers = [], body = '') {
  return [`${line} HTTP/1.1`, 'host: gateway.test', ...headers, '', body].join('\r\n');
}

/**
 * A raw connection: an HTTP client would send nothing malformed, and hide how the connection ends.
 */
function open() {
  const socket = connect(ports.public, '127.0.0.1');
  const closed = once(socket, 'close', { signal: AbortSignal.timeout(60 * SECOND) });
  closed.catch(() => {});
  socket.on('error', () => {}); // a reset counts as an end, too
  const ask = async (bytes) => {
    socket.write(bytes);
    let received = '';
    for (;;) {
      const [piece] = await once(socket, 'data', { signal: AbortSignal.timeout(60 * SECOND) });
      received += piece;
      const [head, body] = received.split('\r\n\r\n', 2);
      const length = Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
      if (body?.length >= length) {
        return { status: Number(head.split(' ')[1]), closes: /^connection: close/im.test(head) };
      }
    }
  };
  return { ask, closed, end: () => socket.destroy() };
}

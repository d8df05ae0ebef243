// Requests that are not the filter's pass unchanged: a plain server stands in the place of the
// gateway, and both ends compare what they sent with what arrived. The filter is on for /oidc/token
// and off for the rest.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request as http1 } from 'node:http';
import { connect } from 'node:http2';
import { buffer } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { stopAll } from '../stack/process.js';
import { serve } from '../stack/server.js';
import { newPorts, startEnvoyOn } from '../stack/shipped.js';

const PATHS = ['/oidc/token', '/elsewhere'];
const MIB = 1024 * 1024;

let origin;
let respond; // each test sets the server's behaviour

before(async () => {
  const ports = await newPorts();
  // The filter fetches the gateway's documents at any time: no test is about that.
  const documents = ['/oidc/jwks', '/oidc/.well-known/openid-configuration'];
  await serve((request, response) => (
    documents.includes(request.url) ? notFound(request, response) : respond(request, response)
  ), ports.gateway);
  ({ origin } = await startEnvoyOn(ports));
});

after(stopAll);

for (const path of PATHS) {
  for (const [kind, headers, body] of [
    ['a form of another grant', { 'content-type': 'application/x-www-form-urlencoded' }, 'grant_type=password&a=%zz&&b=+'],
    ['an empty form', { 'content-type': 'application/x-www-form-urlencoded' }, ''],
    ['JSON', { 'content-type': 'application/json' }, '{"grant_type": "client_credentials"}'],
    ['bytes of no type', {}, randomBytes(1000)],
    ['60 KiB', { 'content-type': 'application/x-www-form-urlencoded' }, `a=${'b'.repeat(60 * 1024)}`],
    ['3 MiB', { 'content-type': 'application/octet-stream' }, randomBytes(3 * MIB)],
  ]) {
    for (const framing of ['content-length', 'chunked']) {
      test(`${path}: ${kind}, ${framing}`, async () => {
        let arrived;
        respond = async (request, response) => {
          arrived = { headers: request.headers, method: request.method, url: request.url, body: await buffer(request) };
          response.writeHead(418, 'I am a teapot', { 'x-answer': ['one', 'two'] }).end('short and stout');
        };
        const sent = { 'x-odd': 'a  b;"c"', 'x-twice': ['one', 'two'], ...headers };
        const answer = await exchange1(`${path}?q=%41+b`, { method: 'POST', headers: sent, body, framing });

        assert.equal(arrived.method, 'POST');
        assert.equal(arrived.url, `${path}?q=%41+b`);
        assert.equal(digest(arrived.body), digest(body));
        for (const [name, value] of Object.entries(headers)) assert.equal(arrived.headers[name], value);
        assert.equal(arrived.headers['x-odd'], 'a  b;"c"');
        assert.equal(arrived.headers['x-twice'], 'one, two');
        assert.equal(answer.status, 418);
        assert.equal(answer.headers['x-answer'], 'one, two');
        assert.equal(answer.body.toString(), 'short and stout');
      });
    }
  }

  test(`${path}: HTTP/2, with trailers in both directions`, async () => {
    let arrived;
    respond = async (request, response) => {
      arrived = { body: await buffer(request), trailers: request.trailers };
      response.writeHead(200, { trailer: 'x-checksum' });
      response.write('first, ');
      response.addTrailers({ 'x-checksum': 'abc' });
      response.end('second');
    };
    const body = `grant_type=password&a=${'b'.repeat(5000)}`;
    const answer = await exchange2(path, { body, trailers: { 'x-signature': 'def' } });

    assert.equal(arrived.body.toString(), body);
    assert.equal(arrived.trailers['x-signature'], 'def');
    assert.equal(answer.status, 200);
    assert.equal(answer.body.toString(), 'first, second');
    assert.equal(answer.trailers['x-checksum'], 'abc');
  });

  test(`${path}: a response arrives piece by piece, as it is sent`, async () => {
    let proceed;
    respond = (request, response) => {
      request.resume();
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: 1\n\n');
      proceed = () => response.end('data: 2\n\n');
    };
    const response = await open1(path, { method: 'POST', headers: {}, body: 'grant_type=password' });
    const [first] = await once(response, 'data'); // before the second part was sent
    assert.equal(first.toString(), 'data: 1\n\n');
    proceed();
    assert.equal((await buffer(response)).toString(), 'data: 2\n\n');
  });

  test(`${path}: a large response is the same at both ends`, async () => {
    const body = randomBytes(5 * MIB);
    respond = (request, response) => {
      request.resume();
      response.writeHead(200, { 'content-length': body.length, etag: '"large"' }).end(body);
    };
    const answer = await exchange1(path, { method: 'POST', headers: {}, body: 'grant_type=password' });
    assert.equal(digest(answer.body), digest(body));
    assert.equal(answer.headers['content-length'], String(body.length));
    assert.equal(answer.headers.etag, '"large"');
  });
}

test('an upload to another path arrives piece by piece, too', async () => {
  const arrived = [];
  let firstArrived;
  const seen = new Promise((resolve) => { firstArrived = resolve; });
  respond = (request, response) => {
    request.on('data', (piece) => {
      arrived.push(piece.toString());
      firstArrived();
    });
    request.on('end', () => response.end(arrived.join('')));
  };
  const request = http1(`${origin}/elsewhere`, { method: 'POST' });
  const responded = once(request, 'response');
  request.write('first ');
  await seen; // before the second part was sent
  request.end('second');
  const [response] = await responded;
  assert.equal((await buffer(response)).toString(), 'first second');
});

test('Envoy adds no header of its own to a response', async () => {
  respond = (request, response) => {
    request.resume();
    response.sendDate = false;
    response.writeHead(200, { 'content-length': 2, 'x-mine': '1' }).end('ok');
  };
  const answer = await exchange1('/elsewhere', { method: 'GET', headers: {}, body: '' });
  assert.deepEqual(Object.keys(answer.headers).sort(), ['content-length', 'date', 'x-mine']);
});

function notFound(request, response) {
  request.resume();
  response.writeHead(404).end();
}

function digest(bytes) {
  return createHash('sha256').update(bytes).digest('hex');
}

async function open1(path, { method, headers, body, framing = 'content-length' }) {
  const length = framing === 'chunked' ? { 'transfer-encoding': 'chunked' } : { 'content-length': Buffer.byteLength(body) };
  const request = http1(`${origin}${path}`, { method, headers: { ...headers, ...length } });
  const responded = once(request, 'response');
  request.end(body);
  const [response] = await responded;
  return response;
}

async function exchange1(path, options) {
  const response = await open1(path, options);
  return { status: response.statusCode, headers: response.headers, body: await buffer(response) };
}

async function exchange2(path, { body, trailers }) {
  const session = connect(origin);
  try {
    const stream = session.request({ ':path': path, ':method': 'POST' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    const received = {};
    stream.on('response', (headers) => { received.status = headers[':status']; });
    stream.on('trailers', (headers) => { received.trailers = headers; });
    stream.end(body);
    received.body = await buffer(stream);
    return received;
  } finally {
    session.close();
  }
}

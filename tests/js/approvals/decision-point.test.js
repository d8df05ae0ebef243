// The policy decision point: Cerbos by AuthZEN 1.0, and one that misbehaves.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { poll } from '../stack/envoy.js';
import { freePorts, start, stopAll } from '../stack/process.js';
import { configuration, FILES, mint, serve, startFilter } from './world.js';

const CERBOS = fileURLToPath(new URL('../node_modules/@cerbos/cerbos-linux-x64/cerbos-linux-x64', import.meta.url));
const POLICY = `
apiVersion: api.cerbos.dev/v1
resourcePolicy:
  resource: user
  version: default
  rules:
  - actions: [impersonate]
    effect: EFFECT_ALLOW
    roles: ["*"]
    condition: {match: {expr: 'P.id == "backend" && R.id.startsWith("u-")'}}
`;

after(stopAll);

const authzen = (timeout) => ({
  authzen: { http_uri: { uri: 'https://pdp.example.com/access/v1/evaluation', cluster: 'pdp', timeout } },
});

test('Cerbos decides on each mint', async () => {
  const folder = `${FILES}/cerbos`;
  mkdirSync(`${folder}/policies`, { recursive: true });
  writeFileSync(`${folder}/policies/user.yaml`, POLICY);
  const [http, grpc] = await freePorts(2);
  const settings = [
    `server.httpListenAddr=127.0.0.1:${http}`, `server.grpcListenAddr=127.0.0.1:${grpc}`,
    `storage.driver=disk,storage.disk.directory=${folder}/policies`, 'telemetry.disabled=true',
  ];
  await start('cerbos', CERBOS, ['server', ...settings.flatMap((setting) => ['--set', setting])], {
    ready: /Starting HTTP server/, log: `${folder}/cerbos.log`,
  });
  await poll(async () => (await fetch(`http://127.0.0.1:${http}/_cerbos/health`).catch(() => ({}))).status === 200);
  const filter = await startFilter(configuration(authzen('30s')), { pdp: [http] });
  assert.equal((await mint(filter, { userId: 'u-1' })).status, 201);
  const denied = await mint(filter, { userId: 'root' });
  assert.deepEqual([denied.status, denied.body.error], [403, 'access_denied']);
});

test('a decision point that is slow, down or lying lets no mint continue', async () => {
  let answer;
  const stub = await serve((request, body, response) => answer(response));
  const filter = await startFilter(configuration(authzen('500ms')), { pdp: [stub.port] });
  const json = (status, body) => (response) => response.writeHead(status, { 'content-type': 'application/json' }).end(body);
  answer = json(200, '{"decision":true}');
  assert.equal((await mint(filter)).status, 201);
  const cases = {
    'a page': (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>{"decision":true}'),
    'a text': json(200, '{"decision":"true"}'),
    'a number': json(200, '{"decision":1}'),
    'two members': json(200, '{"decision":false,"decision":true}'),
    'no member': json(200, '{}'),
    'half an answer': json(200, '{"decision":tr'),
    'another status': json(201, '{"decision":true}'),
    'an error': json(500, '{"decision":true}'),
    'a redirect': (response) => response.writeHead(302, { location: '/yes' }).end(),
    'no answer': () => {},
    'a reset': (response) => response.socket.destroy(),
    'a decision in another case': json(200, '{"Decision":true}'),
    'a decision within': json(200, '{"evaluation":{"decision":true}}'),
    'a list': json(200, '[{"decision":true}]'),
    'null': json(200, '{"decision":null}'),
    'nothing': json(200, ''),
    'more than JSON': json(200, '{"decision":true}{"decision":false}'),
    'a megabyte': json(200, `{"reason":"${'x'.repeat(1 << 20)}","decision":"yes"}`),
    'half of the headers': (response) => response.socket.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'),
    'half of the body': (response) => response.writeHead(200, { 'content-type': 'application/json', 'content-length': 17 }).write('{"decision":'),
  };
  for (const [name, bad] of Object.entries(cases)) {
    answer = bad;
    const refused = await mint(filter);
    assert.deepEqual([refused.status, refused.body.error], [503, 'temporarily_unavailable'], name);
  }
  answer = json(200, '{"decision":false}');
  assert.equal((await mint(filter)).status, 403);
  stub.stop();
  assert.equal((await mint(filter)).status, 503, 'down');
});

// Checks that Envoy answers as docs/openapi.yaml describes: schemathesis makes good and bad
// requests of the description, and compares status, header fields and body.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { parse, stringify } from 'yaml';
import { poll, ROOT } from '../stack/envoy.js';
import { client } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { serve } from '../stack/server.js';
import { newPorts, startEnvoyOn } from '../stack/shipped.js';

const run = promisify(execFile);
const EXAMPLES = 25; // of each kind for each operation
/** The statuses that each operation must have answered, so that the run shows something. */
const ANSWERED = {
  mintSubjectToken: [201, 400, 401, 403, 404],
  showSubjectToken: [200, 401, 403, 404],
  cancelSubjectToken: [204, 401, 403, 404],
  listApprovals: [200, 400, 401, 403],
  decide: [200, 400, 401, 403, 404],
  listImpersonations: [200, 400, 401, 403],
  endImpersonation: [204, 401, 403, 404],
  endImpersonations: [201, 400, 401, 403],
  exchangeSubjectToken: [200, 400, 401],
  revokeToken: [200, 401],
  introspectToken: [200, 401],
  receiveLogoutToken: [200, 400],
  receiveSecurityEvent: [202, 400],
  getKeySet: [200],
  headKeySet: [200],
  getDiscovery: [200],
  headDiscovery: [200],
  getConsole: [200],
  headConsole: [200],
};

const CLIENTS = fileURLToPath(new URL('./', import.meta.url));
const PACKAGES = fileURLToPath(new URL('..', import.meta.url));
/** The answers that a generated client prints. */
const PLAYED = { token: 'sub_', complete: true, actors: [], ended: 0 };

/** Returns an empty folder for the client that a generator makes. */
function generatedFolder(name) {
  const folder = `${ROOT}target/clients/generated-${name}`;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}

let origin;
let who;

before(async () => {
  const ports = await newPorts();
  origin = `http://127.0.0.1:${ports.public}`;
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
  const key = { ...(await exportJWK(publicKey)), kid: 'gateway-1', alg: 'ES256', use: 'sig' };
  const sign = (clientId, scope) => new SignJWT({ client_id: clientId, scope })
    .setProtectedHeader({ alg: 'ES256', kid: key.kid, typ: 'at+jwt' })
    .setIssuer(`${origin}/oidc`).setAudience(`${origin}/api`).setSubject(clientId)
    .setIssuedAt().setExpirationTime('1h').sign(privateKey);
  const signEvent = (typ, type, claims) => new SignJWT({ ...claims, events: { [type]: {} } })
    .setProtectedHeader({ alg: 'ES256', kid: key.kid, typ })
    .setIssuer(`${origin}/oidc`).setAudience('filter').setJti(typ).setIssuedAt().setExpirationTime('1h').sign(privateKey);
  who = {
    backend: await sign('integrator-backend', 'impersonate users:read'),
    operator: await sign('operations', 'impersonations:read impersonations:revoke'),
    approver: await sign('oncall', 'impersonations:approve'),
    'approver with another scope': await sign('oncall', 'impersonations:nothing'),
    'backend with another scope': await sign('integrator-backend', 'users:read'),
    'operator with another scope': await sign('operations', 'impersonations:nothing'),
    actor: 'opaque-of-agent-1',
    client: client('support-portal'),
    'logout token': await signEvent('logout+jwt', 'http://schemas.openid.net/event/backchannel-logout', { sid: 's-1' }),
    event: await signEvent('secevent+jwt', 'https://schemas.openid.net/secevent/caep/event-type/session-revoked', {
      sub_id: { format: 'opaque', id: 'nobody' },
    }),
  };
  await startStub(ports.gateway, key);
  // All requests come from one address, so the rate limit is raised.
  const sender = { issuer: `${origin}/oidc`, audiences: ['filter'], local_jwks: { inline_string: JSON.stringify({ keys: [key] }) } };
  await startEnvoyOn(ports, (yaml) => withSender(
    yaml.replaceAll(/max_tokens: \d+, tokens_per_fill: \d+/g, 'max_tokens: 1000000, tokens_per_fill: 1000000'),
    sender,
  ));
  await poll(async () => (await fetch(`${origin}/api/subject-tokens`, {
    method: 'POST', headers: { authorization: `Bearer ${who.backend}`, 'content-type': 'application/json' }, body: '{"userId":"user-42"}',
  })).status === 201);
});

after(stopAll);

test('the description is an OpenAPI document', async () => {
  await run(`${ROOT}scripts/schemathesis`, ['-m', 'openapi_spec_validator', 'docs/openapi.yaml'], { cwd: ROOT });
});

test('openapi-typescript makes a client that compiles, mints, lists and ends', async () => {
  const folder = generatedFolder('typescript');
  await run('node_modules/.bin/openapi-typescript', [`${ROOT}docs/openapi.yaml`, '--output', `${folder}/api.d.ts`], { cwd: PACKAGES });
  copyFileSync(`${CLIENTS}generated.ts`, `${folder}/generated.ts`);
  writeFileSync(`${folder}/package.json`, '{"type": "module"}');
  symlinkSync(`${PACKAGES}/node_modules`, `${folder}/node_modules`);
  const options = ['--strict', '--skipLibCheck', '--target', 'es2022', '--module', 'nodenext'];
  await run(process.execPath, ['node_modules/typescript/bin/tsc', ...options, 'generated.ts'], { cwd: folder });
  const { stdout } = await run(process.execPath, ['generated.js', origin, who.backend, who.operator], { cwd: folder });
  assert.deepEqual(JSON.parse(stdout), PLAYED);
});

test('openapi-python-client makes a client that mints, lists and ends', async () => {
  const folder = generatedFolder('python');
  const python = (...args) => run(`${ROOT}scripts/openapi-python-client`, args);
  await python('-m', 'openapi_python_client', 'generate', '--path', `${ROOT}docs/openapi.yaml`, '--meta', 'none', '--output-path', `${folder}/api`);
  const { stdout } = await python(`${CLIENTS}generated.py`, origin, who.backend, who.operator, folder);
  assert.deepEqual(JSON.parse(stdout), PLAYED);
});

test('the described errors are those of docs/endpoints.md and those that the filter makes', () => {
  const sorted = (pairs) => [...new Set(pairs.map(([status, error]) => `${status} ${error}`))].sort();
  const read = (path) => readFileSync(`${ROOT}${path}`, 'utf8');

  const { paths, components } = parse(read('docs/openapi.yaml'));
  const resolved = (response) => (response.$ref ? components.responses[response.$ref.split('/').at(-1)] : response);
  const described = Object.values(paths).flatMap((path) => Object.values(path)).flatMap(({ responses = {} }) => (
    Object.entries(responses).flatMap(([status, response]) => {
      const [error] = resolved(response).content?.['application/json']?.schema.allOf?.slice(1) ?? [];
      const { error: code, err = code } = error?.properties ?? {};
      return (err?.enum ?? []).map((each) => [status, each]);
    })
  ));
  // The descriptions of all errors are compared, whatever operation they belong to.
  for (const path of Object.values(paths)) {
    for (const { responses = {} } of Object.values(path)) {
      for (const [status, response] of Object.entries(responses)) {
        const { 'application/json': { schema } = {}, 'text/html': page } = resolved(response).content ?? {};
        if (status >= 400 && !page) assert.match(schema?.allOf?.[0].$ref, /^#\/components\/schemas\/(Event)?Error$/, `${status}`);
      }
    }
  }

  const [, table] = read('docs/endpoints.md').split('\n## Errors\n');
  // Some rows have two statuses.
  const documented = [...table.matchAll(/^\|.*\| (\d{3}(?:[,;] [^|]*)?) \| `(\w+)` \|$/gm)].flatMap(([, statuses, code]) => (
    statuses.match(/\b\d{3}\b/g).map((status) => [status, code])
  ));

  const folder = 'crates/issuer/src/issuer';
  const sources = readdirSync(`${ROOT}${folder}`, { recursive: true }).filter((name) => name.endsWith('.rs')).map((name) => read(`${folder}/${name}`));
  // The errors of security events have the codes of RFC 8935.
  const events = read('crates/issuer/src/events/mod.rs').split('fn code(')[1].split('\n    }\n')[0];
  const ofEvents = [...events.matchAll(/"(\w+)"/g)].map(([, code]) => [code === 'authentication_failed' ? '401' : '400', code]);
  const newIn = (source) => [...source.matchAll(/\b(?:Refusal|Self)::new\(\s*(\d{3}),\s*"(\w+)"/g)].map(([, ...pair]) => pair);
  // Beside an access token the errors of a proof are 401 (RFC 9449, 7.1).
  const ofProofs = newIn(read(`${folder}/refusal.rs`).split('fn proof(')[1].split('\n    }\n')[0]).map(([, code]) => ['401', code]);
  const made = newIn(sources.join('\n')).concat(ofEvents, ofProofs);

  assert.ok(made.length > 15, 'the refusals are written in another way');
  assert.deepEqual(sorted(documented), sorted(made));
  // OpenAPI has no place for other methods: a sentence of the description names 405.
  assert.deepEqual(sorted(described), sorted(made.filter(([status]) => status !== '405')));
});

test('every request is answered as described', async (context) => {
  const asked = { origin, who, examples: EXAMPLES, resource: `${origin}/orders` };
  const script = fileURLToPath(new URL('openapi.py', import.meta.url));
  const { stdout } = await run(`${ROOT}scripts/schemathesis`, [script, JSON.stringify(asked)], { cwd: ROOT, maxBuffer: 2 ** 26 });
  const seen = JSON.parse(stdout);
  context.diagnostic(JSON.stringify(seen));
  // The gateway answers at an endpoint that is not configured.
  const answered = Object.keys(seen).filter((name) => Object.keys(seen[name]).some((status) => status !== 'passed on'));
  assert.deepEqual(answered.sort(), Object.keys(ANSWERED).sort());
  for (const [operation, statuses] of Object.entries(ANSWERED)) {
    for (const status of statuses) assert.ok(seen[operation][status], `${operation} never answered ${status}: ${JSON.stringify(seen[operation])}`);
  }
});

/** Makes the filter take logout tokens and security events of a sender. */
function withSender(yaml, sender) {
  const config = parse(yaml);
  const [{ filters: [{ typed_config: manager }] }] = config.static_resources.listeners[0].filter_chains;
  const configurations = manager.http_filters.map(({ typed_config: filter }) => filter.config?.configuration?.value);
  const { impersonations } = configurations.find((configuration) => configuration?.impersonations);
  Object.assign(impersonations, { back_channel_logout: [sender], security_events: [sender] });
  return stringify(config);
}

/** A stub of the gateway: answers the filter's requests, and marks all other answers. */
function startStub(port, key) {
  return serve((request, response) => {
    const path = request.url.split('?', 1)[0];
    const [status, body] = answerTo(path, request.headers.authorization, key);
    response.writeHead(status, { 'content-type': 'application/json', ...(status === 418 && { 'x-passed-on': '1' }) });
    request.resume().on('end', () => response.end(JSON.stringify(body)));
  }, port);
}

function answerTo(path, authorization, key) {
  if (path === '/oidc/jwks') return [200, { keys: [key] }];
  if (path === '/oidc/.well-known/openid-configuration') {
    const endpoints = { token_endpoint: `${origin}/oidc/token`, jwks_uri: `${origin}/oidc/jwks` };
    return [200, { issuer: `${origin}/oidc`, ...endpoints }];
  }
  if (path === '/oidc/me') return authorization === `Bearer ${who.actor}` ? [200, { sub: 'agent-1' }] : [401, {}];
  if (path === '/oidc/token/introspection' && authorization?.startsWith(`Basic ${btoa('impersonation-filter:')}`)) return [200, { active: false }];
  // A user exists if the length of the path is even.
  if (path.startsWith('/api/users/')) return path.length % 2 === 0 || path.endsWith('/user-42') ? [200, { id: 'x' }] : [404, {}];
  return [418, {}];
}

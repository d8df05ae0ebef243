// A path that only resembles one of the filter or of an API reaches neither the filter nor
// jwt_authn. So it must not reach the gateway either, which might take it for that path.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import { connect } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { after, before, test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { ROOT } from '../stack/envoy.js';
import { stopAll } from '../stack/process.js';
import { moved } from '../gateways/moved.js';
import { serve } from '../stack/server.js';
import { newPorts, startEnvoyOn } from '../stack/shipped.js';

const OURS = [
  '/api/subject-tokens', '/oidc/token', '/oidc/jwks', '/oidc/.well-known/openid-configuration',
  '/api/impersonations', '/api/impersonations/revocations', '/api/approvals', '/oidc/token/revocation', '/oidc/token/introspection',
  '/oidc/backchannel-logout',
  '/impersonations/',
];
/** envoy.yaml is prepared for security events. The manifests configure none. */
const SECURITY_EVENTS = '/api/security-events';
const APIS = ['/orders', '/invoices'];

/** Returns paths that some server takes for `path`. */
function lookAlikes(path) {
  const [, first, rest] = /^\/([^/]+)(.*)$/.exec(path);
  const encoded = (character) => `%${character.charCodeAt(0).toString(16)}`;
  return [
    path.toUpperCase(),
    `/${first[0].toUpperCase()}${first.slice(1)}${rest}`,
    `/${first};x${rest}`, `/${first};x=1;y${rest}`, `/${first};${rest}`, `/${first}%3bx${rest}`, `/${first}%3Bx${rest}`,
    `/;x${path}`, `/%3bx${path}`, `/.;${path}`, `/elsewhere/..;${path}`, `/elsewhere/..;x=1${path}`, `/elsewhere/%2e%2e;${path}`,
    `/elsewhere/..%3b${path}`, `/${first}/;x${rest}`, `/${first}/.;x${rest}`,
    `/${encoded(first[0])}${first.slice(1)}${rest}`, `/${encoded(first[0]).toUpperCase()}${first.slice(1)}${rest}`,
    `/${first.toUpperCase()};x${rest}`,
    `${path};x`, `${path};`, `${path};x/`, `${path};x?a=b`, `${path}%3bx`, `${path.toUpperCase()}/`, `${path.toUpperCase()}?a=b`,
  ];
}

/** More look-alikes of a whole path, as opposed to a prefix. */
const longer = (path) => [`${path}/`, `${path}//`, `${path}/.`, `${path}/x/..`, `${path}/?a=b`, `${path}/;x`, path.replaceAll('-', '%2d').replace('token', '%74oken').replace('jwks', 'jwk%73')];

/** Paths beside those above, and the gateway's own. */
const LEGITIMATE = [
  '/', '/oidc', '/oidc/', '/api', '/api/', '/oidc/auth?client_id=a;b&x=%41', '/oidc/auth/abc', '/oidc/me', '/oidc/tokens', '/oidc/jwks.json', '/oidc/.well-known/', '/oidc/.well-known/jwks', '/.well-known/openid-configuration', '/oidc/session/end',
  '/api/users/user-42', '/api/users/a%3Bb', '/api/users/a%20b%40c', '/api/users/%C3%A9', '/api/users/a;b', '/api/subject-tokens-of', '/api/subject-tokens/x/context', '/api/approvals-of', '/api/approvals/x/y',
  '/oidc/backchannel-logouts', '/oidc/backchannel-logout/x', '/api/security-events', // no transmitter is configured
  '/orders-of/1', '/ordersx', '/my/orders/1', '/elsewhere;jsessionid=1', '/elsewhere/a;b/c', '/elsewhere/.well-known', '/elsewhere/...;x', '/%7Ejohn', '/100%25',
];

let reached; // the requests of this test that reached the gateway
let fields; // the header fields of the last of them
let ports;

before(async () => {
  ports = await newPorts();
  await serve((request, response) => {
    if (request.headers['x-sent-here']) {
      reached.push(request.url);
      fields = request.headers;
    }
    response.end('the gateway');
  }, ports.gateway);
});

after(stopAll);

const shipped = (yaml) => yaml;
/** envoy.yaml with the regular expressions of a manifest instead of its own. */
const withRegexes = (regexes) => (yaml) => {
  const route = /^( *)- match: \{safe_regex: \{regex: '\(\?i\)[^']*'\}\}.*\n *direct_response: \*nobodys\n/gm;
  const [first, ...others] = regexes;
  assert.ok(yaml.includes(`'${first}'`));
  let left = others;
  return yaml.replace(route, (_, margin) => {
    const routes = left.map((regex) => `${margin}- match: {safe_regex: {regex: '${regex}'}}\n${margin}  direct_response: *nobodys\n`);
    left = [];
    return routes.join('');
  });
};
/** The default paths, and those to which docs/gateway.md moves envoy.yaml. */
const MOVES = [
  ['/oidc/token/revocation', '/realms/acme/protocol/openid-connect/revoke'],
  ['/oidc/token/introspection', '/realms/acme/protocol/openid-connect/token/introspect'],
  ['/oidc/token', '/realms/acme/protocol/openid-connect/token'],
  ['/oidc/jwks', '/realms/acme/protocol/openid-connect/certs'],
  ['/oidc/.well-known/openid-configuration', '/realms/acme/.well-known/openid-configuration'],
  ['/oidc/backchannel-logout', '/api/backchannel-logout'],
];
const move = (text) => MOVES.reduce((all, [from, to]) => all.replaceAll(from, to), text);
const manifest = (folder, pick) => (
  parseAllDocuments(readFileSync(`${ROOT}deploy/${folder}/impersonation.yaml`, 'utf8')).map((it) => it.toJS()).map(pick).find(Boolean)
);
const istio = manifest('istio', ({ spec }) => spec.http?.find(({ name }) => name === 'look-alikes')?.match.map(({ uri }) => uri.regex));
const envoyGateway = manifest('envoy-gateway', ({ metadata, spec }) => (
  metadata.name === 'impersonation-look-alikes' && spec.rules?.[0].matches.map(({ path }) => path.value)
));

for (const [whose, edit, apis, ours = OURS, yaml = undefined] of [
  ['envoy.yaml', shipped, APIS, [...OURS, SECURITY_EVENTS]],
  ['envoy.yaml with other paths', shipped, APIS, [...OURS, SECURITY_EVENTS].map(move), moved()],
  ['the manifest for Istio', withRegexes(istio), []],
  ['the manifest for Envoy Gateway', withRegexes(envoyGateway), []],
]) {
  test(`${whose}: a look-alike reaches no server, and the gateway's own paths reach the gateway`, async () => {
    const { envoy } = await startEnvoyOn(ports, edit, yaml);
    const faults = [];
    const refused = [...ours, ...apis, ...apis.map((api) => `${api}/1`)].flatMap(lookAlikes).concat(ours.flatMap(longer));
    const passing = apis.length > 0 ? LEGITIMATE : [...LEGITIMATE, '/Reports/1', '/reports;x/1'];
    for (const [protocol, send] of [['HTTP/1.1', send1], ['HTTP/2', send2]]) {
      for (const path of refused) {
        reached = [];
        const status = await send(path);
        // If Envoy itself rewrites the path to one of these, it also routes it like that: then the
        // filter or jwt_authn sees it.
        const routed = reached.every((url) => ours.includes(url.split('?')[0]));
        if (!routed || (reached.length === 0 && ![404, 401, 405, 415, 307].includes(status))) faults.push(`${protocol} ${path}: ${status}, reached ${reached}`);
      }
      for (const path of passing) {
        reached = [];
        const status = await send(path);
        if (reached.length !== 1 || status !== 200) faults.push(`${protocol} ${path}: ${status}, should have reached the gateway`);
      }
    }
    await envoy.stop();
    assert.deepEqual(faults, []);
  });
}

test('no header field changes the path of a request, and a token in the query is ignored', async () => {
  const { envoy } = await startEnvoyOn(ports, shipped);
  const send = (path, headers) => fetch(`http://127.0.0.1:${ports.public}${path}`, { headers: { ...headers, 'x-sent-here': '1' } });
  reached = [];
  await send('/anything', { 'x-original-url': '/orders/1', 'x-rewrite-url': '/orders/1', 'x-kept': 'yes' });
  assert.deepEqual(reached, ['/anything']);
  assert.deepEqual([fields['x-original-url'], fields['x-rewrite-url'], fields['x-kept']], [undefined, undefined, 'yes']);
  // Sends the same token in the header and in the query, which Envoy does not read.
  const token = 'eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJ4In0.AAAA';
  const header = await send('/orders/1', { authorization: `Bearer ${token}` });
  const query = await send(`/orders/1?access_token=${token}`, {});
  assert.equal(await query.text(), 'Jwt is missing');
  assert.notEqual(await header.text(), 'Jwt is missing');
  assert.deepEqual([query.status, header.status, reached.length], [401, 401, 1]);
  await envoy.stop();
});

/** Sends the target as it is: client libraries would normalise it. */
async function send1(target) {
  const socket = connectTcp(ports.public, '127.0.0.1');
  socket.write(`POST ${target} HTTP/1.1\r\nhost: a.test\r\nx-sent-here: 1\r\ncontent-length: 0\r\n\r\n`);
  const [start] = await once(socket, 'data');
  socket.destroy();
  return Number(/^HTTP\/1.1 (\d+)/.exec(start)?.[1]);
}

async function send2(target) {
  const session = connect(`http://127.0.0.1:${ports.public}`);
  const stream = session.request({ ':method': 'POST', ':path': target, 'x-sent-here': '1' }, { endStream: true });
  const [headers] = await once(stream, 'response');
  session.destroy();
  return headers[':status'];
}

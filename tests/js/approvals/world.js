// Envoys with the filter and nothing else, keys for the people of these tests, and servers that
// take the places of the hook and of a misbehaving decision point.
import { mkdirSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { text } from 'node:stream/consumers';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { ROOT, startEnvoy } from '../stack/envoy.js';
import { ask } from '../stack/http.js';
import { ACCESS_TOKEN, EXCHANGE } from '../stack/names.js';
import { freePorts } from '../stack/process.js';
import { serve as startServer } from '../stack/server.js';
import { newSigningKey } from '../stack/signing-key.js';

export const FILES = `${ROOT}target/approvals`;
const MODULE = `${ROOT}target/wasm32-wasip1/release/impersonation_filter.wasm`;
const ISSUER = 'https://auth.example.com/oidc';
export const ORDERS = 'https://api.example.com/orders';

const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
const JWKS = { keys: [{ ...(await exportJWK(publicKey)), kid: 'gateway-1', alg: 'ES256', use: 'sig' }] };
const SIGNING_KEY = newSigningKey();

function sign(subject, clientId, audience, scope) {
  return new SignJWT({ client_id: clientId, scope }).setProtectedHeader({ alg: 'ES256', kid: 'gateway-1', typ: 'at+jwt' })
    .setIssuer(ISSUER).setAudience(audience).setSubject(subject).setIssuedAt().setExpirationTime('2h').sign(privateKey);
}

/** The access token of a backend that mints. */
export const backend = (name = 'backend') => sign(name, name, 'mint', 'impersonate');
/** The access token of a person who may approve. */
export const approver = (name) => sign(name, 'console', 'people', 'openid impersonations:approve');
/** The access token of a user. */
export const user = (name) => sign(name, 'shop', 'people', 'openid');
/** The access token of somebody who acts. */
export const actor = (name) => sign(name, 'portal', 'actors', 'openid');

const issuer = (audience) => ({ issuer: ISSUER, audiences: [audience], local_jwks: { inline_string: JSON.stringify(JWKS) } });

/** The filter's configuration, with these members besides. */
export function configuration(members) {
  return {
    issuer: ISSUER,
    signing_keys: [{ jwk: SIGNING_KEY }],
    subject_tokens: { authentication: { jwt: [{ ...issuer('mint'), required_scopes: ['impersonate'] }] } },
    actor_tokens: { jwt: [issuer('actors')] },
    clients: [{ client_id: 'portal', type: 'single_page' }],
    resources: [{ indicator: ORDERS, scopes: ['orders:read'] }],
    identity_gateway: { documents: 'none' },
    audit: { context: true },
    ...members,
  };
}

export const approvals = (members) => ({ authentication: { jwt: [issuer('people')] }, ...members });

const cluster = (name, ports, http2) => ({
  name,
  type: 'STATIC',
  connect_timeout: '2s',
  load_assignment: {
    cluster_name: name,
    endpoints: [{ lb_endpoints: ports.map((port_value) => ({ endpoint: { address: { socket_address: { address: '127.0.0.1', port_value } } } })) }],
  },
  ...(http2 && {
    typed_extension_protocol_options: {
      'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
        '@type': 'type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
        explicit_http_config: { http2_protocol_options: {} },
      },
    },
  }),
});

let count = 0;

/** Starts an Envoy. `clusters` names the ports of each cluster; `etcd` speaks HTTP/2. */
export async function startFilter(value, clusters = {}, { workers = 4 } = {}) {
  mkdirSync(FILES, { recursive: true });
  const [port, admin] = await freePorts(2);
  const name = `envoy-${(count += 1)}`;
  const wasm = {
    '@type': 'type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm',
    config: {
      name: 'impersonation',
      allow_on_headers_stop_iteration: true,
      vm_config: { vm_id: 'impersonation', runtime: 'envoy.wasm.runtime.v8', code: { local: { filename: MODULE } } },
      configuration: { '@type': 'type.googleapis.com/google.protobuf.StringValue', value: JSON.stringify(value) },
    },
  };
  const connections = {
    '@type': 'type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager',
    stat_prefix: 'in',
    route_config: { virtual_hosts: [{ name: 'all', domains: ['*'], routes: [{ match: { prefix: '/' }, direct_response: { status: 418 } }] }] },
    http_filters: [
      { name: 'wasm', typed_config: wasm },
      { name: 'router', typed_config: { '@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router' } },
    ],
  };
  const address = (port_value) => ({ socket_address: { address: '127.0.0.1', port_value } });
  const config = `${FILES}/${name}.json`;
  writeFileSync(config, JSON.stringify({
    admin: { address: address(admin) },
    static_resources: {
      listeners: [{ name: 'in', address: address(port), filter_chains: [{ filters: [{ name: 'http', typed_config: connections }] }] }],
      clusters: Object.entries(clusters).map(([cluster_, ports]) => cluster(cluster_, ports, cluster_ === 'etcd')),
    },
  }));
  const log = `${FILES}/${name}.log`;
  const envoy = await startEnvoy({ config, log, admin, workers });
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  return { envoy, log, agent, port, admin: `http://127.0.0.1:${admin}` };
}

/** Sends a request to an Envoy of [`startFilter`]. Resolves with status, headers and JSON body. */
export async function send({ port, agent }, method, path, request = {}) {
  const { status, headers, json: body } = await ask({ port, agent, method, path, ...request });
  return { status, headers, body };
}

/** Mints a token. Returns its text and its id. */
export async function mint(filter, members = {}, token = undefined) {
  const json = { userId: 'u-1', context: { ticketId: 'T-1' }, ...members };
  const answer = await send(filter, 'POST', '/api/subject-tokens', { token: token ?? await backend(), json });
  return { ...answer, token: answer.body.subjectToken, id: answer.headers.location?.split('/').at(-1) };
}

export const decide = (filter, token, id, decision, reason = undefined) => (
  send(filter, 'POST', `/api/approvals/${id}`, { token, json: { decision, reason } })
);

export function exchange(filter, token, actorToken = undefined) {
  return send(filter, 'POST', '/oidc/token', {
    form: {
      grant_type: EXCHANGE,
      client_id: 'portal',
      scope: 'orders:read',
      resource: ORDERS,
      subject_token: token,
      subject_token_type: ACCESS_TOKEN,
      ...(actorToken && { actor_token: actorToken, actor_token_type: ACCESS_TOKEN }),
    },
  });
}

/** A server on any free port. `answer` gets the request and its body. */
export const serve = (answer) => startServer((incoming, response) => {
  text(incoming).then((body) => answer(incoming, body, response), () => {}); // the caller may hang up
});

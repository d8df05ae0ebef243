// `impersonation-filter probe` on the hosts of browser sessions: it passes with the shipped
// envoy.yaml and with the filters of the manifests in deploy/, and fails where the guard does not
// know that its hosts are those of sessions.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, test } from 'node:test';
import { parse, stringify } from 'yaml';
import { credentials } from '../stack/client.js';
import { ROOT } from '../stack/envoy.js';
import { startGateway } from '../stack/gateway.js';
import { probe } from '../stack/probe.js';
import { freePorts, stopAll } from '../stack/process.js';
import { newPorts, startEnvoyOn } from '../stack/shipped.js';
import { finder, manifests } from './manifests.js';

const NAME = 'impersonation-sessions';
const HEADER_MUTATION = 'type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation';

const shop = createServer((request, response) => {
  request.resume();
  response.end('a page of the shop');
});

after(async () => {
  await stopAll();
  shop.close();
});

test('a probe passes on the hosts of sessions, and finds a guard that is not for sessions', async () => {
  const [apis, sessions, ofShop] = await freePorts(3);
  await new Promise((resolve) => { shop.listen(ofShop, '127.0.0.1', resolve); });
  const ports = { ...(await newPorts()), apis, sessions, shop: ofShop };
  const origin = `http://127.0.0.1:${ports.public}`;
  await startGateway({ port: ports.gateway, apis, origin });
  const domain = `http://as-user.localhost:${sessions}`;
  const settings = {
    session: domain,
    session_resource: `${domain}/`,
    session_scope: 'shop:use',
    session_origin: 'http://localhost:3000',
  };
  const probed = async () => {
    const { status, printed } = await probe({ origin, tokens: await credentials(origin), settings }, ['--json']);
    const { checks } = JSON.parse(printed);
    return { status, printed, failed: checks.filter(({ holds }) => holds === false).map(({ check }) => check) };
  };
  const { envoy } = await startEnvoyOn(ports);
  const shipped = await probed();
  assert.equal(shipped.status, 0, shipped.printed);
  await envoy.stop();

  for (const mesh of [istio, envoyGateway]) {
    const { envoy: another } = await startEnvoyOn(ports, (yaml) => placed(yaml, mesh));
    const { status, printed } = await probed();
    assert.equal(status, 0, `${mesh.name}: ${printed}`);
    await another.stop();
  }

  const withoutSessions = (yaml) => yaml.replace(/\n *browser_session: \{.*/, '');
  await startEnvoyOn(ports, withoutSessions);
  const { status, failed, printed } = await probed();
  assert.equal(status, 1, printed);
  for (const check of ['a stranger\'s page frames nothing', 'another session\'s host refuses the cookie']) {
    assert.ok(failed.includes(check), printed);
  }
});

/** Puts what a manifest has for sessions into the listener `sessions` of the shipped envoy.yaml. */
function placed(yaml, mesh) {
  const config = parse(yaml, { merge: true });
  const listener = config.static_resources.listeners.find(({ name }) => name === 'sessions');
  const [{ typed_config: manager }] = listener.filter_chains[0].filters;
  const [jwtAuthn] = manager.http_filters.filter(({ name }) => name === 'envoy.filters.http.jwt_authn');
  Object.assign(jwtAuthn.typed_config.providers.shop, { from_headers: [], from_cookies: ['__Host-impersonation'] });
  const named = (name) => manager.http_filters.find((filter) => filter.name === name);
  const guard = named('impersonation-guard');
  // The address of the issuer, the store and the domain are those of this Envoy.
  const { issuer, store, browser_session: session } = guard.typed_config.config.configuration.value;
  const its = ({ public_origin: _, ...configuration }) => Object.assign(guard.typed_config.config.configuration, {
    value: JSON.parse(JSON.stringify({ ...configuration, issuer, store, browser_session: session })),
  });
  const [provider] = Object.values(jwtAuthn.typed_config.providers);
  const out = mesh({ find: finder(manifests(readFileSync(`${ROOT}deploy/${mesh.folder}/sessions.yaml`, 'utf8'))), manager, provider, its });
  const [location] = out.wayOut.mappers.map(({ headers_to_add: [{ header }] }) => header);
  assert.equal(location.value, 'https://support.example.com/ended');
  location.value = 'http://localhost:3000/ended';
  manager.local_reply_config = out.wayOut;
  manager.http_filters = [...out.first, named('envoy.filters.http.wasm'), ...out.next, jwtAuthn, guard, named('envoy.filters.http.router')];
  return stringify(config, { aliasDuplicateObjects: false });
}

istio.folder = 'istio';
function istio({ find, provider, its }) {
  const { configPatches } = find('EnvoyFilter', NAME).spec;
  const values = (kind) => configPatches.filter(({ applyTo }) => applyTo === kind).map(({ patch }) => patch);
  const [, guard] = values('EXTENSION_CONFIG').map(({ value }) => value);
  const [ofSessions, filter, ofGuard] = values('HTTP_FILTER');
  // The filter is inserted last, so it is the first.
  assert.deepEqual([ofSessions, filter, ofGuard].map(({ operation }) => operation), ['INSERT_FIRST', 'INSERT_FIRST', 'INSERT_AFTER']);
  assert.equal(ofGuard.value.name, guard.name);
  const [rule] = find('RequestAuthentication', NAME).spec.jwtRules;
  assert.deepEqual([rule.fromCookies, rule.fromHeaders], [['__Host-impersonation'], undefined]);
  Object.assign(provider, { forward_payload_header: rule.outputPayloadToHeader, payload_in_metadata: 'payload' });
  its(guard.typed_config.config.configuration.value);
  const [{ value: { typed_config: { local_reply_config: wayOut } } }] = values('NETWORK_FILTER');
  return { first: [], next: [ofSessions.value], wayOut };
}

envoyGateway.folder = 'envoy-gateway';
function envoyGateway({ find, manager, provider, its }) {
  const application = `${NAME}-application`;
  const values = find('EnvoyPatchPolicy', NAME).spec.jsonPatches.map(({ operation }) => operation);
  const wayOut = values.find(({ path }) => path === 'local_reply_config').value;
  const withoutOddNames = values.find(({ value }) => value?.name === 'without-odd-names').value;
  const { remove } = find('ClientTrafficPolicy', NAME).spec.headers.earlyRequestHeaders;
  const early = { name: 'early', typed_config: { '@type': HEADER_MUTATION, mutations: { request_mutations: remove.map((name) => ({ remove: name })) } } };
  const [jwt] = find('SecurityPolicy', application).spec.jwt.providers;
  assert.deepEqual(jwt.extractFrom, { cookies: ['__Host-impersonation'] });
  delete provider.forward_payload_header;
  Object.assign(provider, {
    payload_in_metadata: jwt.name,
    claim_to_headers: jwt.claimToHeaders.map(({ claim, header }) => ({ claim_name: claim, header_name: header })),
  });
  its(find('EnvoyExtensionPolicy', application).spec.wasm[0].config);
  // The router changes the fields of the application's route.
  const [{ filters }] = find('HTTPRoute', application).spec.rules;
  const [request, response] = filters.map((filter) => filter.requestHeaderModifier ?? filter.responseHeaderModifier);
  const route = manager.route_config.virtual_hosts[0].routes.at(-1);
  route.request_headers_to_remove = request.remove;
  route.response_headers_to_add = response.set.map((header) => ({ header: { key: header.name, value: header.value }, append_action: 'OVERWRITE_IF_EXISTS_OR_ADD' }));
  return { first: [early, withoutOddNames], next: [], wayOut };
}

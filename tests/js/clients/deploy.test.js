// Judges the manifests in deploy/, and probes the guards of both in a real Envoy.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { parse, stringify } from 'yaml';
import { ROOT } from '../stack/envoy.js';
import { probe } from '../stack/probe.js';
import { freePorts, stopAll } from '../stack/process.js';
import { credentials } from '../stack/client.js';
import {
  actionOf, finder, inputsOf, judgeEnvoyGateway, judgeIstio, manifests, patchesOf, pathsOfEnvoyGateway, pathsOfIstio,
} from './manifests.js';
import { startStack } from '../stack/shipped.js';

after(stopAll);

const read = (mesh) => manifests(readFileSync(`${ROOT}deploy/${mesh}/impersonation.yaml`, 'utf8'));

judgeIstio('deploy', read('istio'));
judgeEnvoyGateway('deploy', read('envoy-gateway'));

test('both manifests turn the filter on for all of its paths', () => {
  assert.deepEqual(pathsOfIstio(read('istio')), pathsOfEnvoyGateway(read('envoy-gateway')));
});

test('a probe passes before the guard of each manifest', async () => {
  const places = {
    istio: istioGuard(),
    'envoy-gateway': envoyGatewayGuard(),
  };
  const ports = await freePorts(Object.keys(places).length);
  const stack = await startStack((yaml) => {
    const config = parse(yaml, { merge: true });
    const [shipped] = config.static_resources.listeners;
    for (const [index, [name, place]] of Object.entries(places).entries()) {
      const listener = structuredClone(shipped);
      Object.assign(listener, { name });
      listener.address.socket_address.port_value = ports[index];
      const { http_filters: filters } = listener.filter_chains[0].filters[0].typed_config;
      place(filters);
      config.static_resources.listeners.push(listener);
    }
    return stringify(config, { aliasDuplicateObjects: false });
  });
  const apis = ports.map((port) => `http://127.0.0.1:${port}`);
  const { status, printed } = await probe({ origin: stack.origin, apis, tokens: await credentials(stack.origin) });
  assert.equal(status, 0, printed);
});

/** Returns a function that replaces the guard in a list of filters by that of the sidecar. */
function istioGuard() {
  const find = finder(read('istio'));
  const { spec } = find('EnvoyFilter', 'impersonation-guard');
  const values = (applyTo) => spec.configPatches.filter((patch) => patch.applyTo === applyTo).map(({ patch }) => patch.value);
  const [extension] = values('EXTENSION_CONFIG');
  const [removed, kept, guard] = values('HTTP_FILTER');
  const action = actionOf(guard.typed_config);
  action.typed_config = { name: 'guard', typed_config: extension.typed_config };
  delete action.dynamic_config;
  const [{ outputClaimToHeaders }] = find('RequestAuthentication', 'orders').spec.jwtRules;
  const claims = outputClaimToHeaders.map(({ header, claim }) => ({ header_name: header, claim_name: claim }));
  return (filters) => {
    replaceGuard(filters, guard, { payload_in_metadata: 'payload', claim_to_headers: claims });
    filters.splice(filters.findIndex(({ name }) => name === 'envoy.filters.http.header_mutation'), 1);
    filters.splice(filters.findIndex(({ name }) => name === 'envoy.filters.http.header_to_metadata'), 1);
    filters.splice(filters.findIndex(({ name }) => name === 'envoy.filters.http.jwt_authn'), 0, removed, kept);
  };
}

/**
 * Does the same with the guard of Envoy Gateway, which removes header fields before all filters.
 */
function envoyGatewayGuard() {
  const all = read('envoy-gateway');
  const [{ operation: { value } }] = patchesOf(all, finder(all)('EnvoyExtensionPolicy', 'orders'));
  const [{ path: [{ key: payload }] }] = inputsOf(value);
  return (filters) => replaceGuard(filters, { name: 'impersonation-guard', typed_config: value }, { payload_in_metadata: payload });
}

/** The guard gets the module and the issuer of envoy.yaml, and shared data in place of etcd. */
function replaceGuard(filters, guard, provider) {
  const index = filters.findIndex(({ name }) => name === 'impersonation-guard');
  const shipped = actionOf(filters[index].typed_config).typed_config.typed_config.config;
  const plugin = actionOf(guard.typed_config).typed_config.typed_config.config;
  plugin.vm_config = shipped.vm_config;
  plugin.configuration.value.issuer = shipped.configuration.value.issuer;
  delete plugin.configuration.value.store;
  filters[index] = guard;
  const { providers } = filters.find(({ name }) => name === 'envoy.filters.http.jwt_authn').typed_config;
  for (const each of Object.values(providers)) Object.assign(each, provider);
}

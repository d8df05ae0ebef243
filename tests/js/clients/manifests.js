// Judges manifests for Istio and Envoy Gateway: those in deploy/, and those that the chart makes.
// Envoy and the filter must accept the plugins' configurations. Fetching the modules and the
// clusters are left to the platform, and left out here.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { CONFIG, validate } from '../stack/envoy.js';

/** Reads all manifests of a text. */
export function manifests(text) {
  return parseAllDocuments(text).map((document) => document.toJS()).filter((manifest) => manifest !== null);
}

/** Registers the tests of manifests for Istio. */
export function judgeIstio(whose, all) {
  const find = finder(all);

  test(`${whose}, Istio: the EnvoyFilter`, () => {
    const { spec } = find('EnvoyFilter', 'impersonation');
    const [extension, filter, route] = spec.configPatches.map(({ patch }) => patch.value);
    const { patch: { value: cluster } } = spec.configPatches.find(({ applyTo }) => applyTo === 'CLUSTER');
    accepted(extension.typed_config.config, cluster);
    // The three places use one name.
    assert.equal(filter.name, extension.name);
    assert.deepEqual(Object.keys(route.typed_per_filter_config), [extension.name]);
  });

  test(`${whose}, Istio: the guard in a sidecar, entered by a header that no caller can make`, () => {
    const { metadata: { namespace }, spec } = find('EnvoyFilter', 'impersonation-guard');
    const values = (applyTo) => spec.configPatches.filter((patch) => patch.applyTo === applyTo).map(({ patch }) => patch.value);
    const extension = loadedGuard(all, namespace, values('EXTENSION_CONFIG'));
    const [removed, kept, ...entries] = values('HTTP_FILTER');
    // Each entry is for one of the names that versions of Istio give to the guard.
    assert.deepEqual(entries.map(({ typed_config: entry }) => actionOf(entry).dynamic_config.name), extension.names);
    const [guard] = entries;
    for (const entry of entries) {
      const action = actionOf(entry.typed_config);
      action.typed_config = { name: 'guard', typed_config: extension.typed_config };
      delete action.dynamic_config;
      assert.deepEqual(entry, guard);
    }
    // jwt_authn makes the header fields by which requests enter the guard. A caller's own are
    // removed before.
    const [{ header_name: header }, { header_name: bound }] = inputsOf(guard.typed_config);
    const [rule] = find('RequestAuthentication', 'orders').spec.jwtRules;
    assert.deepEqual(rule.outputClaimToHeaders, [{ header, claim: 'txn' }, { header: bound, claim: 'cnf' }]);
    const { headers, payload_in_metadata: payload } = extension.typed_config.config.configuration.value;
    const mutations = removed.typed_config.mutations.request_mutations;
    assert.deepEqual(sorted(mutations.flatMap(({ remove }) => remove ?? [])), sorted(Object.values(headers)));
    assertWithoutOddNames(mutations);
    assert.ok(Object.values(headers).includes(header));
    assert.equal(payload, 'payload');
    assert.deepEqual(find('RequestAuthentication', 'orders').spec.jwtRules[0].fromHeaders.map(({ prefix }) => prefix), SCHEMES);
    guardAccepted(guard.typed_config, values('CLUSTER')[0], [removed, kept], filterOfIstio(all));
  });

  test(`${whose}, Istio: a support client in the browser may do the same as in envoy.yaml`, () => {
    const policies = ['identity-gateway', 'orders'].flatMap((name) => find('VirtualService', name).spec.http)
      .filter(({ corsPolicy }) => corsPolicy)
      .flatMap(({ match, corsPolicy }) => match.map(({ uri }) => [uri.exact ?? uri.prefix, cors(corsPolicy)]));
    assert.deepEqual(Object.fromEntries(policies), shippedCors());
  });
}

/** Registers the tests of manifests for Envoy Gateway. */
export function judgeEnvoyGateway(whose, all) {
  const find = finder(all);
  const { jsonPatches } = find('EnvoyPatchPolicy', 'impersonation').spec;
  const { operation: { value: etcd } } = jsonPatches.find(({ type }) => type.endsWith('Cluster'));

  test(`${whose}, Envoy Gateway: the EnvoyExtensionPolicy with what the EnvoyPatchPolicy adds`, () => {
    const policy = find('EnvoyExtensionPolicy', 'impersonation');
    const [wasm] = policy.spec.wasm;
    const plugin = {
      name: wasm.name,
      vm_config: { runtime: 'envoy.wasm.runtime.v8', environment_variables: { host_env_keys: wasm.env.hostKeys } },
      configuration: {
        '@type': 'type.googleapis.com/google.protobuf.StringValue',
        value: JSON.stringify(wasm.config),
      },
    };
    for (const { operation } of patchesOf(all, policy)) plugin[operation.path] = operation.value;
    accepted(plugin, etcd);
  });

  test(`${whose}, Envoy Gateway: the guard that the EnvoyPatchPolicy wraps`, () => {
    const policy = find('EnvoyExtensionPolicy', 'orders');
    assert.equal(policy.spec.wasm.length, 1);
    const [{ operation, ...others }, ...more] = patchesOf(all, policy);
    assert.deepEqual([operation.op, operation.path, more], ['replace', 'typed_config', []], others);
    // Envoy Gateway keeps a token's claims under the name of the provider.
    const [provider] = find('SecurityPolicy', 'orders').spec.jwt.providers;
    const paths = inputsOf(operation.value).map(({ path }) => path.map(({ key }) => key));
    const { value } = actionOf(operation.value).typed_config.typed_config.config.configuration;
    assert.deepEqual(paths, [[provider.name, 'txn'], [provider.name, 'cnf']]);
    assert.equal(value.payload_in_metadata, provider.name);
    assert.deepEqual(provider.extractFrom.headers.map(({ valuePrefix }) => valuePrefix), SCHEMES);
    // Scheme and token are kept before all other filters, and odd names are removed.
    const kept = jsonPatches.filter((patch) => patch.operation.jsonPath === '..http_filters').map((patch) => patch.operation);
    assert.deepEqual(kept.map(({ op, path }) => [op, path]), [['add', '0'], ['add', '0']]);
    assertWithoutOddNames(kept[1].value.typed_config.mutations.request_mutations);
    const { remove } = find('ClientTrafficPolicy', 'impersonation').spec.headers.earlyRequestHeaders;
    assert.deepEqual(sorted(remove), sorted(Object.values(value.headers)));
    guardAccepted(operation.value, etcd, kept.map((patch) => patch.value), find('EnvoyExtensionPolicy', 'impersonation').spec.wasm[0].config);
  });

  test(`${whose}, Envoy Gateway: a response of an API may take any time as long as it moves`, () => {
    const { rules } = find('HTTPRoute', 'orders').spec;
    assert.deepEqual(rules.map(({ timeouts }) => timeouts), [{ request: '0s' }]);
    assert.equal(find('ClientTrafficPolicy', 'impersonation').spec.timeout.http.streamIdleTimeout, '60s');
  });

  test(`${whose}, Envoy Gateway: a support client in the browser may do the same as in envoy.yaml`, () => {
    const policies = all.filter(({ kind, spec }) => kind === 'SecurityPolicy' && spec.cors).flatMap(({ spec }) => (
      spec.targetRefs.flatMap(({ name }) => find('HTTPRoute', name).spec.rules.flatMap(({ matches }) => (
        matches.map(({ path }) => [path.value, cors(spec.cors)])
      )))
    ));
    assert.deepEqual(Object.fromEntries(policies), shippedCors());
  });
}

/** Returns the paths for which Istio turns the filter on. */
export function pathsOfIstio(all) {
  const routes = finder(all)('VirtualService', 'identity-gateway').spec.http.filter(({ name }) => name === 'impersonation');
  return sorted(routes.flatMap(({ match }) => match.map(({ uri }) => uri.exact ?? uri.regex)));
}

/** Returns the paths for which Envoy Gateway turns the filter on. */
export function pathsOfEnvoyGateway(all) {
  const find = finder(all);
  const routes = find('EnvoyExtensionPolicy', 'impersonation').spec.targetRefs.flatMap(({ name }) => find('HTTPRoute', name).spec.rules);
  return sorted(routes.flatMap(({ matches }) => matches.map(({ path }) => path.value)));
}

/** Returns the patches to the filter that Envoy Gateway makes of a policy. */
export function patchesOf(all, { metadata: { namespace, name } }) {
  const { jsonPatches } = finder(all)('EnvoyPatchPolicy', 'impersonation').spec;
  const filter = `'envoy.filters.http.wasm/envoyextensionpolicy/${namespace}/${name}/wasm/0'`;
  return jsonPatches.filter((patch) => patch.type.endsWith('Listener') && patch.operation.jsonPath.includes(filter));
}

/** Returns a function that finds a manifest by kind and name. */
export function finder(all) {
  return (kind, name) => structuredClone(all.find((manifest) => manifest.kind === kind && manifest.metadata.name === name));
}

/** Tokens that are bound to a key, and others. */
const SCHEMES = ['DPoP ', 'Bearer '];

const sorted = (list) => [...list].sort();
const cors = ({ allowMethods: methods, allowHeaders: headers, exposeHeaders: exposed, maxAge: age }) => ({ methods, headers, exposed, age });

/** Returns what envoy.yaml allows a page on the paths that the manifests have. */
function shippedCors() {
  const list = (text) => text.split(/, */);
  const { static_resources: { listeners } } = parse(readFileSync(CONFIG, 'utf8'));
  const { virtual_hosts: hosts } = listeners[0].filter_chains[0].filters[0].typed_config.route_config;
  const { routes } = hosts.find(({ name }) => name === 'public');
  const shipped = Object.fromEntries(routes.map(({ match, typed_per_filter_config: config }) => {
    const policy = config?.['envoy.filters.http.cors'];
    return [match.path ?? match.path_separated_prefix, policy && {
      methods: list(policy.allow_methods), headers: list(policy.allow_headers), exposed: list(policy.expose_headers), age: `${policy.max_age}s`,
    }];
  }));
  return Object.fromEntries(['/oidc/token', '/oidc/token/revocation', '/orders'].map((path) => [path, shipped[path]]));
}

const filterOfIstio = (all) => (
  finder(all)('EnvoyFilter', 'impersonation').spec.configPatches[0].patch.value.typed_config.config.configuration.value
);

/**
 * Returns the guard as Istio loads it, with the names that it can have: from a patch of the
 * EnvoyFilter, or from a resource of its own.
 */
function loadedGuard(all, namespace, [extension]) {
  if (extension !== undefined) {
    assert.equal(extension.name, `${namespace}.impersonation-guard`);
    return { names: [extension.name], typed_config: extension.typed_config };
  }
  const { kind, spec } = all.find(({ apiVersion }) => apiVersion === 'extensions.istio.io/v1alpha1');
  assert.deepEqual([spec.phase, spec.match], ['AUTHZ', [{ mode: 'SERVER' }]]);
  const wasm = kind === 'TrafficExtension' ? spec.wasm : spec;
  const name = `extensions.istio.io/trafficextension/${namespace}.impersonation-guard`;
  return {
    names: kind === 'TrafficExtension'
      ? [name]
      : [`${name}~istio-translated-wasmplugin`, `extensions.istio.io/wasmplugin/${namespace}.impersonation-guard`],
    typed_config: {
      '@type': 'type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm',
      config: {
        name: `${namespace}.impersonation-guard`,
        failure_policy: wasm.failStrategy,
        vm_config: { runtime: 'envoy.wasm.runtime.v8' },
        configuration: { '@type': 'type.googleapis.com/google.protobuf.Struct', value: wasm.pluginConfig },
      },
    },
  };
}

/** Returns what the matcher of the guard looks at: one of these must be there. */
export const inputsOf = (guard) => {
  const [{ predicate }] = guard.xds_matcher.matcher_list.matchers;
  return predicate.or_matcher.predicate.map(({ single_predicate: single }) => single.input.typed_config);
};

/** Names that a server may take for others are removed by the rule of envoy.yaml. */
function assertWithoutOddNames(mutations) {
  const rules = mutations.flatMap((mutation) => mutation.remove_on_match?.key_matcher.safe_regex.regex ?? []);
  assert.ok(rules.length === 1 && readFileSync(CONFIG, 'utf8').includes(`regex: '${rules[0]}'`), rules);
}

/** Returns the action that enters the guard. */
export const actionOf = (guard) => guard.xds_matcher.matcher_list.matchers[0].on_match.action.typed_config;

/**
 * Puts the plugin into envoy.yaml, adds etcd's cluster, and checks that Envoy and the filter accept
 * it.
 */
function accepted(plugin, cluster) {
  assert.equal(plugin.allow_on_headers_stop_iteration, true);
  assert.equal(plugin.failure_policy, 'FAIL_RELOAD');
  const { store, impersonations } = plugin.configuration.value.store ? plugin.configuration.value : JSON.parse(plugin.configuration.value);
  assert.equal(cluster.name, store.etcd.cluster);
  // Operators can end impersonations by default, and so can people at the page.
  assert.deepEqual(impersonations.authentication.jwt.map((entry) => entry.client_ids), [['operations', 'oncall']]);
  judged(cluster, (filters) => {
    const wasm = filters.find(({ name }) => name === 'envoy.filters.http.wasm');
    const { code } = wasm.typed_config.config.vm_config;
    wasm.typed_config.config = { ...plugin, vm_config: { ...plugin.vm_config, code } };
  });
}

/**
 * Does the same for the guard. The filters that must be before jwt_authn are put before all others.
 */
function guardAccepted(guard, cluster, before, { store, issuer }) {
  const plugin = actionOf(guard).typed_config.typed_config.config;
  assert.equal(plugin.failure_policy, 'FAIL_RELOAD');
  // The guard has the filter's store and issuer.
  assert.deepEqual([plugin.configuration.value.store, plugin.configuration.value.issuer], [store, issuer]);
  assert.equal(cluster.name, store.etcd.cluster);
  // The guard sees scheme and token of a request.
  const keeps = before.find(({ typed_config: { '@type': type } }) => type.endsWith('.header_to_metadata.v3.Config'));
  assert.deepEqual(keeps.typed_config.request_rules, [
    { header: 'authorization', on_header_present: { metadata_namespace: 'impersonation', key: 'authorization', type: 'STRING' } },
  ]);
  assert.match(plugin.configuration.value.public_origin, /^https:/);
  judged(cluster, (filters) => {
    const index = filters.findIndex(({ name }) => name === 'impersonation-guard');
    plugin.vm_config.code = actionOf(filters[index].typed_config).typed_config.typed_config.config.vm_config.code;
    filters.splice(index, 1, { name: 'impersonation-guard', disabled: true, typed_config: guard });
    filters.unshift(...before);
  });
}

function judged(cluster, edit) {
  const config = parse(readFileSync(CONFIG, 'utf8'));
  const [{ filters: [{ typed_config: manager }] }] = config.static_resources.listeners[0].filter_chains;
  edit(manager.http_filters);
  // The manifest says where certificates are mounted; this machine has none.
  cluster = structuredClone(cluster);
  for (const name of ['tls_certificates', 'validation_context']) delete cluster.transport_socket.typed_config.common_tls_context[name];
  config.static_resources.clusters.push(cluster);

  const folder = mkdtempSync(join(tmpdir(), 'deploy-'));
  try {
    const file = join(folder, 'envoy.yaml');
    writeFileSync(file, stringify(config));
    validate('-c', file);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

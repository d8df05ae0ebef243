// Envoy and the filter accept the plugin configurations of the manifests in deploy/. Fetching the
// module and the clusters are left to the platform, and left out here.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { newSigningKey } from '../../stack/signing-key.js';
import { CONFIG, ROOT } from '../../stack/envoy.js';

test('Istio: the EnvoyFilter', () => {
  const { spec } = manifest('istio', 'EnvoyFilter', 'impersonation');
  const [extension, filter, route] = spec.configPatches.map(({ patch }) => patch.value);
  const { patch: { value: cluster } } = spec.configPatches.find(({ applyTo }) => applyTo === 'CLUSTER');
  accepted(extension.typed_config.config, cluster);
  // The three places use one name.
  assert.equal(filter.name, extension.name);
  assert.deepEqual(Object.keys(route.typed_per_filter_config), [extension.name]);
});

test('Envoy Gateway: the EnvoyExtensionPolicy with what the EnvoyPatchPolicy adds', () => {
  const policy = manifest('envoy-gateway', 'EnvoyExtensionPolicy', 'impersonation');
  const [wasm] = policy.spec.wasm;
  const { namespace, name } = policy.metadata;
  const plugin = {
    name: wasm.name,
    vm_config: { runtime: 'envoy.wasm.runtime.v8', environment_variables: { host_env_keys: wasm.env.hostKeys } },
    configuration: {
      '@type': 'type.googleapis.com/google.protobuf.StringValue',
      value: JSON.stringify(wasm.config),
    },
  };
  for (const { operation } of patched('Listener', namespace, name)) plugin[operation.path] = operation.value;
  accepted(plugin, etcdOfEnvoyGateway());
});

test('Istio: the guard in a sidecar, entered by a header that no caller can make', () => {
  const { metadata: { namespace }, spec } = manifest('istio', 'EnvoyFilter', 'impersonation-guard');
  const values = (applyTo) => spec.configPatches.filter((patch) => patch.applyTo === applyTo).map(({ patch }) => patch.value);
  const [extension] = values('EXTENSION_CONFIG');
  const [removed, guard] = values('HTTP_FILTER');
  const action = actionOf(guard.typed_config);
  assert.equal(action.dynamic_config.name, extension.name);
  assert.ok(extension.name.startsWith(`${namespace}.`));
  action.typed_config = { name: 'guard', typed_config: extension.typed_config };
  delete action.dynamic_config;
  // jwt_authn makes the header field by which requests enter the guard. A caller's own is removed
  // before.
  const [{ predicate }] = guard.typed_config.xds_matcher.matcher_list.matchers;
  const { header_name: header } = predicate.single_predicate.input.typed_config;
  const [rule] = manifest('istio', 'RequestAuthentication', 'orders').spec.jwtRules;
  assert.deepEqual(rule.outputClaimToHeaders, [{ header, claim: 'txn' }]);
  const { headers, payload_in_metadata: payload } = extension.typed_config.config.configuration.value;
  const mutations = removed.typed_config.mutations.request_mutations;
  assert.deepEqual(mutations.flatMap(({ remove }) => remove ?? []), Object.values(headers));
  // Other spellings that some servers take for these header fields are removed, too.
  const [spelling] = mutations.flatMap((mutation) => mutation.remove_on_match?.key_matcher.safe_regex.regex ?? []);
  for (const name of Object.values(headers)) assert.match(name.replaceAll('-', '_'), new RegExp(`^${spelling}$`));
  assert.ok(Object.values(headers).includes(header));
  assert.equal(payload, 'payload');
  guardAccepted(guard.typed_config, values('CLUSTER')[0], [removed]);
});

test('Envoy Gateway: the guard that the EnvoyPatchPolicy wraps', () => {
  const { metadata: { namespace, name }, spec } = manifest('envoy-gateway', 'EnvoyExtensionPolicy', 'orders');
  assert.equal(spec.wasm.length, 1);
  const [{ operation, ...others }, ...more] = patched('Listener', namespace, name);
  assert.deepEqual([operation.op, operation.path, more], ['replace', 'typed_config', []], others);
  const [{ predicate }] = operation.value.xds_matcher.matcher_list.matchers;
  const [{ key: payload }, { key: claim }] = predicate.single_predicate.input.typed_config.path;
  const [provider] = manifest('envoy-gateway', 'SecurityPolicy', 'orders').spec.jwt.providers;
  const { value } = actionOf(operation.value).typed_config.typed_config.config.configuration;
  assert.deepEqual([payload, claim, value.payload_in_metadata], [provider.name, 'txn', provider.name]);
  const { remove } = manifest('envoy-gateway', 'ClientTrafficPolicy', 'impersonation').spec.headers.earlyRequestHeaders;
  assert.deepEqual(remove, Object.values(value.headers));
  guardAccepted(operation.value, etcdOfEnvoyGateway(), []);
});

test('each manifest allows a support client in the browser the same as envoy.yaml', () => {
  const sorted = (list) => [...list].sort();
  const list = (text) => text.split(/, */);
  const { static_resources: { listeners } } = parse(readFileSync(CONFIG, 'utf8'));
  const [{ routes }] = listeners[0].filter_chains[0].filters[0].typed_config.route_config.virtual_hosts;
  const shipped = Object.fromEntries(routes.map(({ match, typed_per_filter_config: config }) => {
    const policy = config?.['envoy.filters.http.cors'];
    return [match.path ?? match.path_separated_prefix, policy && {
      methods: list(policy.allow_methods), headers: list(policy.allow_headers), exposed: list(policy.expose_headers), age: `${policy.max_age}s`,
    }];
  }).filter(([, policy]) => policy));
  const read = ({ allowMethods: methods, allowHeaders: headers, exposeHeaders: exposed, maxAge: age }) => ({ methods, headers, exposed, age });
  const expected = { '/oidc/token': shipped['/oidc/token'], '/oidc/token/revocation': shipped['/oidc/token/revocation'], '/orders': shipped['/orders'] };

  const istio = ['identity-gateway', 'orders'].flatMap((name) => manifest('istio', 'VirtualService', name).spec.http)
    .filter(({ corsPolicy }) => corsPolicy)
    .flatMap(({ match, corsPolicy }) => match.map(({ uri }) => [uri.exact ?? uri.prefix, read(corsPolicy)]));
  assert.deepEqual(Object.fromEntries(istio), expected);

  const envoyGateway = all('envoy-gateway').filter(({ kind, spec }) => kind === 'SecurityPolicy' && spec.cors).flatMap(({ spec }) => (
    spec.targetRefs.flatMap(({ name }) => manifest('envoy-gateway', 'HTTPRoute', name).spec.rules.flatMap(({ matches }) => (
      matches.map(({ path }) => [path.value, read(spec.cors)])
    )))
  ));
  assert.deepEqual(Object.fromEntries(envoyGateway), expected);

  // Both manifests turn the filter on for all of its paths, in any of their routes.
  const on = manifest('istio', 'VirtualService', 'identity-gateway').spec.http.filter(({ name }) => name === 'impersonation');
  const { targetRefs } = manifest('envoy-gateway', 'EnvoyExtensionPolicy', 'impersonation').spec;
  const onThere = targetRefs.flatMap(({ name }) => manifest('envoy-gateway', 'HTTPRoute', name).spec.rules);
  assert.deepEqual(
    sorted(on.flatMap(({ match }) => match.map(({ uri }) => uri.exact ?? uri.regex))),
    sorted(onThere.flatMap(({ matches }) => matches.map(({ path }) => path.value))),
  );
});

const all = (folder) => parseAllDocuments(readFileSync(`${ROOT}deploy/${folder}/impersonation.yaml`, 'utf8')).map((document) => document.toJS());

function manifest(folder, kind, name) {
  return all(folder).find((it) => it.kind === kind && it.metadata.name === name);
}

/** Returns the patches to the filter that Envoy Gateway makes of a policy. */
function patched(type, namespace, name) {
  const { jsonPatches } = manifest('envoy-gateway', 'EnvoyPatchPolicy', 'impersonation').spec;
  const filter = `'envoy.filters.http.wasm/envoyextensionpolicy/${namespace}/${name}/wasm/0'`;
  return jsonPatches.filter((patch) => patch.type.endsWith(type) && patch.operation.jsonPath.includes(filter));
}

function etcdOfEnvoyGateway() {
  const { jsonPatches } = manifest('envoy-gateway', 'EnvoyPatchPolicy', 'impersonation').spec;
  return jsonPatches.find(({ type }) => type.endsWith('Cluster')).operation.value;
}

const actionOf = (guard) => guard.xds_matcher.matcher_list.matchers[0].on_match.action.typed_config;

/**
 * Puts the plugin into envoy.yaml, adds etcd's cluster, and checks that Envoy and the filter accept
 * it.
 */
function accepted(plugin, cluster) {
  assert.equal(plugin.allow_on_headers_stop_iteration, true);
  assert.equal(plugin.failure_policy, 'FAIL_RELOAD');
  const { store, impersonations } = plugin.configuration.value.store ? plugin.configuration.value : JSON.parse(plugin.configuration.value);
  assert.equal(cluster.name, store.etcd.cluster);
  // Operators can end impersonations by default.
  assert.deepEqual(impersonations.authentication.jwt.map((entry) => entry.client_ids), [['operations']]);
  judged(cluster, (filters) => {
    const wasm = filters.find(({ name }) => name === 'envoy.filters.http.wasm');
    const { code } = wasm.typed_config.config.vm_config;
    wasm.typed_config.config = { ...plugin, vm_config: { ...plugin.vm_config, code } };
  });
}

/** Does the same for the guard, and the filters before it. */
function guardAccepted(guard, cluster, before) {
  const plugin = actionOf(guard).typed_config.typed_config.config;
  assert.equal(plugin.failure_policy, 'FAIL_RELOAD');
  // The guard has the filter's store and issuer.
  const { store, issuer } = manifest('istio', 'EnvoyFilter', 'impersonation').spec.configPatches[0].patch.value.typed_config.config.configuration.value;
  assert.deepEqual([plugin.configuration.value.store, plugin.configuration.value.issuer], [store, issuer]);
  assert.equal(cluster.name, store.etcd.cluster);
  judged(cluster, (filters) => {
    const index = filters.findIndex(({ name }) => name === 'impersonation-guard');
    plugin.vm_config.code = actionOf(filters[index].typed_config).typed_config.typed_config.config.vm_config.code;
    filters.splice(index, 1, ...before, { name: 'impersonation-guard', disabled: true, typed_config: guard });
  });
}

function judged(cluster, edit) {
  const config = parse(readFileSync(CONFIG, 'utf8'));
  const [{ filters: [{ typed_config: manager }] }] = config.static_resources.listeners[0].filter_chains;
  edit(manager.http_filters);
  // The manifest says where certificates are mounted; this machine has none.
  for (const name of ['tls_certificates', 'validation_context']) delete cluster.transport_socket.typed_config.common_tls_context[name];
  config.static_resources.clusters.push(cluster);

  const folder = mkdtempSync(join(tmpdir(), 'deploy-'));
  try {
    const file = join(folder, 'envoy.yaml');
    writeFileSync(file, stringify(config));
    execFileSync(`${ROOT}scripts/envoy`, ['--mode', 'validate', '-c', file], {
      cwd: ROOT,
      env: {
        ...process.env,
        IMPERSONATION_SIGNING_KEY: JSON.stringify(newSigningKey()),
        INTROSPECTION_SECRET: 'a-secret',
      },
      stdio: 'pipe',
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

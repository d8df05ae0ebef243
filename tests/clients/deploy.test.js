// The manifests of deploy/: what they make of the plugin is a configuration that Envoy and the filter
// accept. Fetching the module and the clusters are the platform's part, and left out.
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
  const { spec } = manifest('istio', 'EnvoyFilter');
  const [extension, filter, route] = spec.configPatches.map(({ patch }) => patch.value);
  const { patch: { value: cluster } } = spec.configPatches.find(({ applyTo }) => applyTo === 'CLUSTER');
  accepted(extension.typed_config.config, cluster);
  // One name in three places.
  assert.equal(filter.name, extension.name);
  assert.deepEqual(Object.keys(route.typed_per_filter_config), [extension.name]);
});

test('Envoy Gateway: the EnvoyExtensionPolicy with what the EnvoyPatchPolicy adds', () => {
  const policy = manifest('envoy-gateway', 'EnvoyExtensionPolicy');
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
  const patches = manifest('envoy-gateway', 'EnvoyPatchPolicy').spec.jsonPatches;
  const ofType = (name) => patches.filter(({ type }) => type.endsWith(name)).map(({ operation }) => operation);
  for (const operation of ofType('Listener')) {
    assert.ok(operation.jsonPath.includes(`'envoy.filters.http.wasm/envoyextensionpolicy/${namespace}/${name}/wasm/0'`));
    plugin[operation.path] = operation.value;
  }
  const [cluster] = ofType('Cluster');
  accepted(plugin, cluster.value);
});

function manifest(folder, kind) {
  const documents = parseAllDocuments(readFileSync(`${ROOT}deploy/${folder}/impersonation.yaml`, 'utf8'));
  return documents.map((document) => document.toJS()).find((it) => it.kind === kind);
}

/** Puts the plugin in the place of envoy.yaml's, adds etcd's cluster, and lets Envoy and the filter judge. */
function accepted(plugin, cluster) {
  assert.equal(plugin.allow_on_headers_stop_iteration, true);
  assert.equal(plugin.failure_policy, 'FAIL_RELOAD');
  const config = parse(readFileSync(CONFIG, 'utf8'));
  const [{ filters: [{ typed_config: manager }] }] = config.static_resources.listeners[0].filter_chains;
  const wasm = manager.http_filters.find(({ name }) => name === 'envoy.filters.http.wasm');
  const { code } = wasm.typed_config.config.vm_config;
  wasm.typed_config.config = { ...plugin, vm_config: { ...plugin.vm_config, code } };

  assert.equal(cluster.name, (plugin.configuration.value.store ?? JSON.parse(plugin.configuration.value).store).etcd.cluster);
  // Certificates are mounted where the manifest says.
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

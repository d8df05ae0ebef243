// Istio's own generators read deploy/istio/impersonation.yaml, and two Envoys run what they make of
// it: an ingress gateway with the filter, and the sidecar of an API with the guard. The agent's own
// fetcher loads the modules from a registry.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { freePorts, stopAll } from '../stack/process.js';
import * as flow from './flow.js';
import { bootstrap, manifest, moved, run, startSurroundings, translate } from './mesh.js';

// The first is what the manifest's comment on look-alikes asks for. There is no authority here that
// would give each Envoy a certificate for mTLS.
const MESH = '{pathNormalization: {normalization: DECODE_AND_MERGE_SLASHES}, enableAutoMtls: false}';
const GATEWAY = { type: 'router', namespace: 'istio-ingress', labels: { istio: 'ingressgateway' }, mesh: MESH };
const SIDECAR = { type: 'sidecar', namespace: 'orders', labels: { app: 'orders' }, mesh: MESH };

/**
 * What a cluster already has: the Gateway, and the two services. The sidecar listens on a port of
 * its own because there is no iptables here that would lead requests to it.
 */
function mesh({ ports, sidecar }) {
  const service = (host, namespace, port) => `
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ${host.split('.')[0]}, namespace: ${namespace}}
spec:
  hosts: [${host}]
  ports: [{number: 80, name: http, protocol: HTTP}]
  location: MESH_INTERNAL
  resolution: DNS
  endpoints: [{address: 127.0.0.1, ports: {http: ${port}}}]`;
  return `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: istio-ingress}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: ${ports.public}, name: http, protocol: HTTP}
    hosts: ["*/*"]
${service('identity-gateway.auth.svc.cluster.local', 'auth', ports.gateway)}
${service('orders.orders.svc.cluster.local', 'orders', sidecar)}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: orders, namespace: orders}
spec:
  workloadSelector: {labels: {app: orders}}
  ingress:
  - port: {number: ${sidecar}, protocol: HTTP, name: http}
    bind: 127.0.0.1
    captureMode: NONE
    defaultEndpoint: 127.0.0.1:${ports.gateway}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: orders, namespace: orders}
spec: {mtls: {mode: DISABLE}}
---
`;
}

/**
 * The types of filters that only Istio's own build of Envoy has: telemetry, and mTLS among peers.
 */
const ISTIOS = /\/(istio\.|envoy\.tcp\.metadataexchange\.|stats\.PluginConfig|io\.istio\.)/;

/** Leaves out the filters of these types. */
function withoutIstios({ listeners, clusters, ...rest }) {
  const left = new Set();
  const kept = (value) => {
    if (Array.isArray(value)) {
      return value.filter((item) => {
        const { '@type': type = '', type_url: inner = '' } = item?.typed_config ?? {};
        const istios = ISTIOS.test(type) || ISTIOS.test(inner);
        if (istios) left.add(item.name);
        return !istios;
      }).map(kept);
    }
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, kept(member)]));
  };
  return { left, config: { listeners: kept(listeners), clusters: kept(clusters), ...rest } };
}

const removed = new Set();

/** Runs what the translator has made for one proxy, with listeners on one port only. */
async function runProxy(translated, folder, port) {
  const { left, config } = withoutIstios(translated);
  for (const name of left) removed.add(name);
  config.listeners = config.listeners.filter(({ address }) => address.socket_address?.port_value === port);
  assert.equal(config.listeners.length, 1);
  const [admin] = await freePorts(1);
  return run(bootstrap(config, folder, admin), folder, admin);
}

let surroundings;
let around;
let gateway;
let at;

const forProxy = (proxy, text) => translate('istio', [surroundings.folder, JSON.stringify(proxy)], moved(around + text, surroundings));

before(async () => {
  surroundings = await startSurroundings('istio');
  const { folder, origin, ports } = surroundings;
  const [sidecar] = await freePorts(1);
  around = mesh({ ports, sidecar });
  gateway = await forProxy(GATEWAY, manifest('istio/impersonation.yaml'));
  await runProxy(gateway, folder, ports.public);
  at = { origin, gateway: ports.public, ports, sidecar };
  // The pilot fetches the key set while it translates, and the merged one needs the filter.
  await flow.documentsAreMerged(at);
});

after(stopAll);

/** Returns what Istio says of the manifests, without what it says of every EnvoyFilter. */
const remarks = ({ warnings }) => warnings.filter((text) => !text.includes('EnvoyFilter exposes internal implementation details'));

test('Istio accepts each manifest', () => assert.deepEqual(remarks(gateway), []));
test('a subject token is spent once', () => flow.spentOnce(at));
test('look-alike paths are refused', () => flow.lookAlikesAreRefused(at));
test('the filter reads bodies of up to 64 KiB', () => flow.longBodiesArrive(at));

for (const [form, text] of [
  ['an EnvoyFilter', () => manifest('istio/impersonation.yaml')],
  ['a TrafficExtension', withTrafficExtension],
]) {
  test(`the guard as ${form}`, async (t) => {
    const translated = await forProxy(SIDECAR, text());
    assert.deepEqual(remarks(translated), []);
    const envoy = await runProxy(translated, surroundings.folder, at.sidecar);
    // The gateway forwards the API's requests to its sidecar.
    const both = { ...at, api: at.gateway };
    await t.test('an impersonation reads, and cannot write; an ordinary user does both', async () => flow.guardHolds(both, await flow.begin(both)));
    await t.test('no caller can forge the header fields of the guard', async () => flow.headersCannotBeForged(both, await flow.begin(both)));
    await t.test('an operator ends impersonations', async () => flow.killEnds(both, await flow.begin(both)));
    await t.test('a page may exchange and read, and not mint', () => flow.pagesMay(both));
    await envoy.stop();
  });
}

/** The manifests with the guard as a TrafficExtension instead of an EnvoyFilter. */
function withTrafficExtension() {
  const documents = manifest('istio/impersonation.yaml').split('\n---\n');
  const rest = documents.filter((text) => !text.includes('name: impersonation-guard\n  namespace'));
  assert.equal(rest.length, documents.length - 1);
  return [...rest, manifest('istio/traffic-extension.yaml')].join('\n---\n');
}

test('Istio makes the same plugin of a WasmPlugin and of a TrafficExtension, which cannot set allow_on_headers_stop_iteration', async () => {
  const plugin = async (text) => {
    const { sent } = await forProxy(SIDECAR, text);
    assert.equal(sent.length, 1);
    const { config } = sent[0].typed_config;
    const { name: _, vm_config: { environment_variables: _variables, ...vm }, ...others } = config;
    // The port of the registry is another each time.
    return JSON.parse(JSON.stringify({ ...others, vm }).replace(/127\.0\.0\.1:\d+\/impersonation-guard/, 'impersonation-guard'));
  };
  const spec = `
  selector: {matchLabels: {app: orders}}
  phase: AUTHZ
  match: [{mode: SERVER}]`;
  const wasm = (indent) => ['url: oci://registry.example.com/impersonation-guard:0.1.0', 'failStrategy: FAIL_RELOAD', 'pluginConfig: {issuer: https://auth.example.com/oidc}']
    .map((line) => `\n${indent}${line}`).join('');
  const head = (kind) => `\napiVersion: extensions.istio.io/v1alpha1\nkind: ${kind}\nmetadata: {name: guard, namespace: orders}\nspec:${spec}`;
  const made = await plugin(`${head('WasmPlugin')}${wasm('  ')}\n`);
  assert.deepEqual(made, await plugin(`${head('TrafficExtension')}\n  wasm:${wasm('    ')}\n`));
  assert.equal(made.failure_policy, 'FAIL_RELOAD');
  // Once Istio has the field, the filter can be a TrafficExtension, too.
  assert.equal('allow_on_headers_stop_iteration' in made, false);
});

test('nothing but two filters that only Istio\'s Envoy has was left out', () => {
  assert.deepEqual([...removed].sort(), ['istio.alpn', 'istio.metadata_exchange']);
});

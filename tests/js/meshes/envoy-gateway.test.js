// Envoy Gateway's own translators read deploy/envoy-gateway/impersonation.yaml, and Envoy runs what
// they make of it. Its own fetcher loads both modules from a registry.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { after, before, test } from 'node:test';
import { freePorts, stopAll } from '../stack/process.js';
import * as flow from './flow.js';
import { bootstrap, manifest, moved, run, startSurroundings, translate } from './mesh.js';

/**
 * What a cluster already has: the Gateway, the Services, the route for everything else, and the
 * certificate with which Envoy calls Envoy Gateway.
 */
function cluster({ folder, ports }) {
  const file = (name) => readFileSync(`${folder}/${name}`, 'base64');
  const service = (name, port) => `
---
apiVersion: v1
kind: Service
metadata: {name: ${name}, namespace: auth}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80, targetPort: ${port}, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ${name}, namespace: auth, labels: {kubernetes.io/service-name: ${name}}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]
ports: [{name: http, port: ${port}, protocol: TCP}]`;
  return `
apiVersion: v1
kind: Secret
metadata: {name: envoy, namespace: envoy-gateway-system}
type: kubernetes.io/tls
data: {ca.crt: ${file('ca.crt')}, tls.crt: ${file('tls.crt')}, tls.key: ${file('tls.key')}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: envoy-gateway}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: auth}
spec:
  gatewayClassName: envoy-gateway
  infrastructure: {parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: impersonation}}
  listeners:
  - {name: https, port: ${ports.public}, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: everything-else, namespace: auth}
spec:
  parentRefs: [{name: public}]
  hostnames: [auth.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{name: identity-gateway, port: 80}]
${service('identity-gateway', ports.gateway)}
${service('orders', ports.gateway)}
---
`;
}

let surroundings;
let translated;
let at;

before(async () => {
  surroundings = await startSurroundings('envoy-gateway');
  const { folder, origin, ports } = surroundings;
  const manifests = moved(cluster(surroundings) + manifest('envoy-gateway/impersonation.yaml'), surroundings);
  translated = await translate('envoy-gateway', [folder], manifests);
  const [admin] = await freePorts(1);
  await run(bootstrap(runnable(translated, folder), folder, admin), folder, admin);
  at = { origin, gateway: ports.public, api: ports.public, ports };
});

after(stopAll);

/**
 * Envoy reads the modules that Envoy Gateway has fetched from files, and not from its server. The
 * listener that tells Kubernetes whether Envoy is ready has a fixed port, so it is left out.
 */
function runnable(translated, folder) {
  const listeners = translated.listeners.filter(({ name }) => name === 'auth/public/https');
  const clusters = translated.clusters.filter(({ name }) => name !== 'wasm_cluster');
  const text = JSON.stringify({ ...translated, listeners, clusters }).replaceAll('/dev/stdout', `${folder}/access.log`);
  return JSON.parse(text, (_, value) => {
    const uri = value?.remote?.http_uri?.uri;
    return uri === undefined ? value : { local: { filename: `${folder}/${basename(uri)}` } };
  });
}

test('Envoy Gateway accepts each policy and each route', () => {
  const faults = [];
  const judge = (name, conditions = []) => {
    if (conditions.length === 0) faults.push(`${name}: nothing`);
    for (const { type, status, reason, message } of conditions) {
      if (status !== 'True' || /Deprecated|Warning/.test(type)) faults.push(`${name}: ${type} ${reason} ${message}`);
    }
  };
  const { resources, patches } = translated;
  for (const kind of ['httpRoutes', 'envoyExtensionPolicies', 'securityPolicies', 'clientTrafficPolicies']) {
    for (const { metadata: { name }, status } of resources[kind] ?? []) {
      const parents = status?.parents ?? status?.ancestors ?? [];
      judge(`${kind} ${name}`, parents.flatMap(({ conditions }) => conditions));
    }
  }
  for (const patch of patches) judge('EnvoyPatchPolicy', patch.status?.ancestors?.flatMap(({ conditions }) => conditions));
  assert.deepEqual(faults, []);
});

test('the key set and the discovery document are merged', () => flow.documentsAreMerged(at));
test('an impersonation reads, and cannot write; an ordinary user does both', async () => flow.guardHolds(at, await flow.begin(at)));
test('no caller can forge the header fields of the guard', async () => flow.headersCannotBeForged(at, await flow.begin(at)));
test('a subject token is spent once', () => flow.spentOnce(at));
test('an operator ends impersonations', async () => flow.killEnds(at, await flow.begin(at)));
test('look-alike paths are refused', () => flow.lookAlikesAreRefused(at));
test('a page may exchange and read, and not mint', () => flow.pagesMay(at));
test('the filter reads bodies of up to 64 KiB', () => flow.longBodiesArrive(at));

// A mesh's own translator makes Envoy's configuration of a manifest in deploy/, and Envoy runs it:
// before a real identity gateway, with a real etcd behind TLS. Addresses are moved to loopback by
// changing the manifest, like every line there that is marked with "Yours".
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { promisify } from 'node:util';
import { ROOT, startEnvoy } from '../stack/envoy.js';
import { startGateway } from '../stack/gateway.js';
import { ask } from '../stack/http.js';
import { freePorts, start } from '../stack/process.js';

const PROGRAMS = `${ROOT}target/meshes`;
const FILES = `${PROGRAMS}/runs`;
const GUARD = `${ROOT}target/wasm32-wasip1/release/impersonation_guard.wasm`;
/**
 * The images of the modules, as OCI layouts, which `make mesh-images` has made as a release does.
 */
const IMAGES = {
  'impersonation-filter:0.1.0': `${PROGRAMS}/oci/impersonation-filter`,
  'impersonation-guard:0.1.0': `${PROGRAMS}/oci/impersonation-guard`,
};

/** The host of the API, as in the manifests. */
export const API = 'api.example.com';

/** Starts the services around Envoy, and writes the files that a pod would mount. */
export async function startSurroundings(name) {
  mkdirSync(FILES, { recursive: true });
  const folder = mkdtempSync(`${FILES}/${name}-`);
  // What a failed test leaves behind says why.
  process.once('exit', (status) => status === 0 && rmSync(folder, { recursive: true, force: true }));
  const [port, clients, peers, health] = await freePorts(4);
  const origin = `http://127.0.0.1:${port}`;
  execFileSync(`${PROGRAMS}/certificates`, [folder]);
  const binaries = execFileSync(`${ROOT}scripts/etcd`, { encoding: 'utf8' }).trim();
  const [ofClients, ofPeers] = [`https://127.0.0.1:${clients}`, `http://127.0.0.1:${peers}`];
  const [gateway] = await Promise.all([
    startGateway({ port: 0, origin }),
    start('etcd', `${binaries}/etcd`, [
      '--name', 'etcd', '--data-dir', `${folder}/etcd`, '--logger', 'zap', '--unsafe-no-fsync',
      '--listen-client-urls', ofClients, '--advertise-client-urls', ofClients,
      '--listen-metrics-urls', `http://127.0.0.1:${health}`,
      '--listen-peer-urls', ofPeers, '--initial-advertise-peer-urls', ofPeers, '--initial-cluster', `etcd=${ofPeers}`,
      '--client-cert-auth', '--trusted-ca-file', `${folder}/ca.crt`, '--cert-file', `${folder}/server.crt`, '--key-file', `${folder}/server.key`,
    ], { ready: /ready to serve client requests|serving client/i, log: `${folder}/etcd.log` }),
  ]);
  const [, listening] = /(\d+)$/.exec(await gateway.printed(/^ready on \d+$/));
  return { folder, origin, ports: { public: port, gateway: Number(listening), etcd: clients, health } };
}

/** Returns manifests with the addresses of these surroundings. */
export function moved(manifests, { folder, origin, ports }) {
  return manifests
    .replaceAll('https://auth.example.com', origin)
    .replaceAll('auth.example.com', '127.0.0.1')
    .replaceAll(`https://${API}`, origin)
    .replaceAll(/address: etcd-\d[\w.-]+, port_value: 2379/g, `address: 127.0.0.1, port_value: ${ports.etcd}`)
    .replaceAll('port_value: 2381', `port_value: ${ports.health}`)
    .replaceAll('/etc/envoy/etcd/', `${folder}/`)
    .replaceAll('/etc/envoy/guard/plugin.wasm', GUARD)
    // On a busy machine the gateway is slow, and that is not what a test is about.
    .replaceAll('timeout: 2s', 'timeout: 30s');
}

export const manifest = (path) => readFileSync(`${ROOT}deploy/${path}`, 'utf8');

/** Runs a translator with manifests on its standard input, and returns what it prints. */
export async function translate(program, args, manifests) {
  const images = Object.entries(IMAGES).map(([image, layout]) => `${image}=${layout}`);
  const running = promisify(execFile)(`${PROGRAMS}/${program}`, [...args, ...images], { maxBuffer: 1 << 28 });
  running.child.stdin.end(manifests);
  const { stdout } = await running;
  return JSON.parse(stdout);
}

/**
 * Returns a bootstrap with what a translator has made. Without the mesh's xDS server, each resource
 * that the configuration fetches by ADS is a file of its own.
 */
export function bootstrap({ listeners, clusters, routes = [], endpoints = [], extensions = [] }, folder, admin) {
  let files = 0;
  const source = (resources, name, key = 'name') => {
    const found = resources.find((resource) => (resource[key] ?? resource.value?.[key]) === name);
    if (found === undefined) throw new Error(`nothing was translated with the name ${name}`);
    const path = `${folder}/resource-${admin}-${files += 1}.json`;
    writeFileSync(path, JSON.stringify({ version_info: '1', resources: [found] }));
    return { path_config_source: { path }, resource_api_version: 'V3' };
  };
  const typed = (type, resources) => resources.map((resource) => ({ '@type': `type.googleapis.com/${type}`, ...resource }));
  const ofRoutes = typed('envoy.config.route.v3.RouteConfiguration', routes);
  const ofEndpoints = typed('envoy.config.endpoint.v3.ClusterLoadAssignment', endpoints);
  const local = (value) => {
    if (Array.isArray(value)) return value.map(local);
    if (value === null || typeof value !== 'object') return value;
    const copy = Object.fromEntries(Object.entries(value).map(([name, member]) => [name, local(member)]));
    if (copy.rds) copy.rds.config_source = source(ofRoutes, copy.rds.route_config_name);
    if (copy.eds_cluster_config) {
      const { service_name: name = copy.name } = copy.eds_cluster_config;
      copy.eds_cluster_config.eds_config = source(ofEndpoints, name, 'cluster_name');
    }
    if (copy.config_discovery) copy.config_discovery.config_source = source(extensions, copy.name);
    return copy;
  };
  return {
    node: { id: 'test', cluster: 'test' },
    admin: { address: { socket_address: { address: '127.0.0.1', port_value: admin } } },
    static_resources: { listeners: local(listeners), clusters: local(clusters) },
  };
}

/** Starts Envoy with this configuration. */
export async function run(config, folder, admin) {
  const file = `${folder}/envoy-${admin}.json`;
  writeFileSync(file, JSON.stringify(config, null, 1));
  return startEnvoy({ config: file, log: `${folder}/envoy-${admin}.log`, admin });
}

/** Sends a request to a port on loopback, over a connection of its own. */
export const send = (port, path, asked = {}) => ask({ port, path, agent: false, ...asked });

/** Sends a target as it is, and returns the status: a client library would normalise it. */
export async function statusOf(port, target, host) {
  const socket = connect(port, '127.0.0.1');
  socket.write(`POST ${target} HTTP/1.1\r\nhost: ${host}\r\ncontent-length: 0\r\n\r\n`);
  const [answer] = await once(socket, 'data');
  socket.destroy();
  return Number(/^HTTP\/1.1 (\d+)/.exec(answer)?.[1]);
}

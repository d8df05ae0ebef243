// Two Envoys with the repository's envoy.yaml, which share their subject tokens in etcd.
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { configOn, environment, ROOT, startEnvoy } from './envoy.js';
import { startEtcd } from './etcd.js';
import { startGateway } from './gateway.js';
import { freePorts } from './process.js';

const ENVOYS = ['first', 'second'];

/**
 * Starts `nodes` nodes of etcd, the gateway, and both Envoys on free ports. `edit` changes the
 * configuration of both. `origin` is the address of the first Envoy: the one that tokens and
 * clients use.
 */
export async function startCluster({ nodes = 3, logs, edit = (yaml) => yaml }) {
  mkdirSync(logs, { recursive: true });
  const etcd = await startEtcd(nodes, { logs });
  const [gateway, ...others] = await freePorts(1 + 3 * ENVOYS.length);
  const ports = ENVOYS.map((name, index) => {
    const [public_, admin, metrics] = others.slice(3 * index, 3 * index + 3);
    return { name, public: public_, admin, metrics, gateway };
  });
  const origins = ports.map((each) => `http://127.0.0.1:${each.public}`);
  const [origin] = origins;
  await startGateway({ port: gateway, origin, log: `${logs}/gateway.log` });
  const yaml = execFileSync(`${ROOT}scripts/envoy-in-cluster`, etcd.addresses, { encoding: 'utf8' });
  const env = environment(); // They have one key, as they have one address.
  for (const each of ports) {
    const config = `${logs}/envoy-${each.name}.yaml`;
    writeFileSync(config, edit(configOn({ ...each, public: ports[0].public, listener: each.public }, yaml)));
    await startEnvoy({ config, log: `${logs}/envoy-${each.name}.log`, admin: each.admin, env });
  }
  return { etcd, ports, origin, origins };
}

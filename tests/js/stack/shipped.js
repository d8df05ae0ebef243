// A gateway and an Envoy in front of it, with the repository's envoy.yaml moved to free ports.
import { mkdirSync, writeFileSync } from 'node:fs';
import { configOn, ROOT, startEnvoy } from './envoy.js';
import { startGateway } from './gateway.js';
import { freePorts } from './process.js';

const FILES = `${ROOT}target/stack`;

/**
 * Starts Envoy on these ports, before the server at `ports.gateway`, with the configuration `yaml`
 * or else the shipped one. `edit` changes it. `config` and `log` are its files, which are kept.
 */
export async function startEnvoyOn(ports, edit = (text) => text, yaml = undefined) {
  mkdirSync(FILES, { recursive: true });
  const port = ports.listener ?? ports.public;
  const config = `${FILES}/envoy-${port}.yaml`;
  const log = `${FILES}/envoy-${port}.log`;
  writeFileSync(config, edit(configOn(ports, yaml)));
  const envoy = await startEnvoy({ config, log, admin: ports.admin });
  return { envoy, config, log, ports, origin: `http://127.0.0.1:${port}` };
}

export async function newPorts() {
  const [public_, admin, gateway] = await freePorts(3);
  return { public: public_, admin, gateway };
}

/**
 * Starts gateway and Envoy. `origin` is the public address, `behind` is the gateway without Envoy.
 * `edit` changes Envoy's configuration. The APIs are at an address of their own, as `check` wants
 * it.
 */
export async function startStack(edit) {
  const [apis] = await freePorts(1);
  const ports = { ...(await newPorts()), apis };
  const origin = `http://127.0.0.1:${ports.public}`;
  const behind = () => startGateway({ port: ports.gateway, apis, origin });
  const gateway = await behind();
  return {
    ...(await startEnvoyOn(ports, edit)),
    gateway,
    restartGateway: behind,
    behind: `http://127.0.0.1:${ports.gateway}`,
  };
}

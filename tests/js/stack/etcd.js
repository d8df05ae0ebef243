// etcd on loopback: any number of nodes, which can be killed one by one. Their data ends with this
// program.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { poll, ROOT } from './envoy.js';
import { freePorts, start } from './process.js';

/** Starts `count` nodes and waits until they have a leader. Their logs go below `logs`. */
export async function startEtcd(count, { logs }) {
  const binaries = execFileSync(`${ROOT}scripts/etcd`, { encoding: 'utf8' }).trim();
  const data = mkdtempSync(join(tmpdir(), 'etcd-'));
  process.once('exit', () => rmSync(data, { recursive: true, force: true }));
  const ports = await freePorts(3 * count);
  const nodes = Array.from({ length: count }, (_, index) => {
    const [clients, peers, health] = ports.slice(3 * index, 3 * index + 3);
    return { name: `etcd-${index + 1}`, clients, peers, health };
  });
  const members = nodes.map(({ name, peers }) => `${name}=http://127.0.0.1:${peers}`).join(',');
  const run = async (node) => {
    const [clients, peers, health] = [node.clients, node.peers, node.health].map((port) => `http://127.0.0.1:${port}`);
    node.service = await start(node.name, `${binaries}/etcd`, [
      '--name', node.name, '--data-dir', join(data, node.name), '--logger', 'zap', '--log-level', 'info', '--pre-vote=true',
      '--listen-client-urls', clients, '--advertise-client-urls', clients, '--listen-metrics-urls', health,
      '--listen-peer-urls', peers, '--initial-advertise-peer-urls', peers, '--initial-cluster', members,
      // Data that a failing machine would lose does not matter here.
      '--unsafe-no-fsync',
    ], { ready: /ready to serve client requests|serving (insecure )?client/i, log: `${logs}/${node.name}.log` });
  };
  await Promise.all(nodes.map(run));
  const statuses = () => {
    const endpoints = nodes.filter(({ service }) => service).map(({ clients }) => `127.0.0.1:${clients}`).join(',');
    const options = { encoding: 'utf8', env: { ...process.env, ETCDCTL_API: '3' }, stdio: ['ignore', 'pipe', 'ignore'] };
    const status = execFileSync(`${binaries}/etcdctl`, ['--endpoints', endpoints, 'endpoint', 'status', '--write-out', 'json'], options);
    return JSON.parse(status).map(({ Status }) => Status);
  };
  return {
    nodes,
    /** host:port:health-port of each node, as scripts/envoy-in-cluster takes them. */
    addresses: nodes.map(({ clients, health }) => `127.0.0.1:${clients}:${health}`),
    /** Returns the node that leads, once one does. */
    async leader() {
      let leader;
      await poll(() => {
        const running = nodes.filter(({ service }) => service);
        leader = running[statuses().findIndex((status) => status.leader === status.header.member_id)];
        return leader !== undefined;
      });
      return leader;
    },
    /** Ends a node as a power failure would. */
    async kill(node) {
      process.kill(node.service.pid, 'SIGKILL');
      await node.service.closed;
      node.service = undefined;
    },
    /** Starts a killed node again with its data. */
    restart: run,
  };
}

// `impersonation-filter probe` on the hosts of browser sessions, with the shipped envoy.yaml: it
// passes there, and fails where the guard does not know that its hosts are those of sessions.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, test } from 'node:test';
import { credentials } from '../stack/client.js';
import { startGateway } from '../stack/gateway.js';
import { probe } from '../stack/probe.js';
import { freePorts, stopAll } from '../stack/process.js';
import { newPorts, startEnvoyOn } from '../stack/shipped.js';

const shop = createServer((request, response) => {
  request.resume();
  response.end('a page of the shop');
});

after(async () => {
  await stopAll();
  shop.close();
});

test('a probe passes on the hosts of sessions, and finds a guard that is not for sessions', async () => {
  const [apis, sessions, ofShop] = await freePorts(3);
  await new Promise((resolve) => { shop.listen(ofShop, '127.0.0.1', resolve); });
  const ports = { ...(await newPorts()), apis, sessions, shop: ofShop };
  const origin = `http://127.0.0.1:${ports.public}`;
  await startGateway({ port: ports.gateway, apis, origin });
  const domain = `http://as-user.localhost:${sessions}`;
  const settings = {
    session: domain,
    session_resource: `${domain}/`,
    session_scope: 'shop:use',
    session_origin: 'http://localhost:3000',
  };
  const probed = async () => {
    const { status, printed } = await probe({ origin, tokens: await credentials(origin), settings }, ['--json']);
    const { checks } = JSON.parse(printed);
    return { status, printed, failed: checks.filter(({ holds }) => holds === false).map(({ check }) => check) };
  };
  const { envoy } = await startEnvoyOn(ports);
  const shipped = await probed();
  assert.equal(shipped.status, 0, shipped.printed);
  await envoy.stop();

  const withoutSessions = (yaml) => yaml.replace(/\n *browser_session: \{.*/, '');
  await startEnvoyOn(ports, withoutSessions);
  const { status, failed, printed } = await probed();
  assert.equal(status, 1, printed);
  for (const check of ['a stranger\'s page frames nothing', 'another session\'s host refuses the cookie']) {
    assert.ok(failed.includes(check), printed);
  }
});

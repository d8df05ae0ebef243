// The shop and the support console of the demo. It needs no package.
//
// From the environment, all of it optional:
//   HOST               where to listen (127.0.0.1)
//   SHOP_PORT          the shop, behind Envoy (9002; port 0 picks one)
//   CONSOLE_PORT       the support console, which browsers open (3000)
//   CONSOLE_ORIGIN     the console's public address (http://localhost:<its port>)
//   GATEWAY_ORIGIN     Envoy before the identity gateway (http://127.0.0.1:10000)
//   SESSIONS_ORIGIN    the sessions' hosts without the label (http://as-user.localhost:10080)
//   SUPPORT_PORTAL_SECRET, INTEGRATOR_BACKEND_SECRET   the defaults are for trying things out
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createConsole } from './console.js';
import { createShop } from './shop.js';

const { env } = process;
const listen = async (port, answer) => {
  const server = createServer(answer);
  // Longer than Envoy keeps an idle connection (envoy.yaml), so that Envoy never uses a closed one.
  server.keepAliveTimeout = 75_000;
  server.listen(Number(port), env.HOST ?? '127.0.0.1');
  await once(server, 'listening');
  return server;
};

const shop = createShop();
const shopServer = await listen(env.SHOP_PORT ?? 9002, shop.answer);
shopServer.on('upgrade', shop.upgrade);

let support;
const consoleServer = await listen(env.CONSOLE_PORT ?? 3000, (request, response) => support(request, response));
support = createConsole({
  origin: env.CONSOLE_ORIGIN ?? `http://localhost:${consoleServer.address().port}`,
  gateway: env.GATEWAY_ORIGIN ?? 'http://127.0.0.1:10000',
  sessions: env.SESSIONS_ORIGIN ?? 'http://as-user.localhost:10080',
  portal: ['support-portal', env.SUPPORT_PORTAL_SECRET ?? 'demo-only-support-portal'],
  backend: ['integrator-backend', env.INTEGRATOR_BACKEND_SECRET ?? 'demo-only-integrator-backend'],
  client: 'support-console',
  scope: 'shop:use',
});
console.log(`ready on ${shopServer.address().port} and ${consoleServer.address().port}`);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(0));

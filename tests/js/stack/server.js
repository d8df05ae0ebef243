// Servers inside a test, in the place of a gateway, an API or a hook.
import { once } from 'node:events';
import { createServer } from 'node:http';

/**
 * Starts a server on a port of loopback, or on any free one. It does not keep the test running.
 */
export async function serve(answer, port = 0) {
  const server = createServer(answer);
  // Longer than Envoy keeps an idle connection (envoy.yaml), so that Envoy never uses a closed one.
  server.keepAliveTimeout = 75_000;
  server.listen(port, '127.0.0.1').unref();
  await once(server, 'listening');
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return { port: server.address().port, stop };
}

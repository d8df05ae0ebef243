// Stands between Envoy and Keycloak, passes everything on, and remembers what each side sent.
import { once } from 'node:events';
import { Agent, request as ask } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { serve } from '../stack/server.js';

/** Passes requests on to Keycloak's port. Returns its own port, and what has passed. */
export async function startRecorder(keycloak) {
  const agent = new Agent({ keepAlive: true });
  const passed = [];
  const { port } = await serve(async (request, response) => {
    try {
      const sent = await buffer(request);
      const { method, url: path, rawHeaders } = request;
      const asked = ask({ host: '127.0.0.1', port: keycloak, agent, method, path, headers: rawHeaders });
      asked.end(sent);
      const [answer] = await once(asked, 'response');
      const body = await buffer(answer);
      passed.push({ method, path, asked: request.headers, sent, status: answer.statusCode, headers: answer.headers, body });
      response.writeHead(answer.statusCode, answer.rawHeaders).end(body);
    } catch {
      response.destroy();
    }
  });
  return { port, passed };
}

// The flow by client libraries as their users find them: only settings that their documentation
// asks for. Each play reads discovery, exchanges, introspects the token, revokes it, and
// introspects it again.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { ROOT } from '../stack/envoy.js';
import { EXCHANGE } from '../stack/names.js';

const AUTHLIB = fileURLToPath(new URL('authlib-client.py', import.meta.url));

/** The results of the flow, the same for every library. */
export const FLOW = { scope: 'orders:read', type: 'bearer', live: true, ended: false };

/**
 * `client` is [id, secret], `exchange` makes the parameters of an exchange. Without
 * `authentication` the library chooses one.
 */
export async function playOpenidClient({ issuer, client: [id, secret], exchange }, authentication) {
  const config = await oidc.discovery(new URL(issuer), id, secret, authentication, {
    execute: [oidc.allowInsecureRequests],
  });
  const granted = await oidc.genericGrantRequest(config, EXCHANGE, await exchange());
  const { active: live } = await oidc.tokenIntrospection(config, granted.access_token);
  await oidc.tokenRevocation(config, granted.access_token);
  const { active: ended } = await oidc.tokenIntrospection(config, granted.access_token);
  return { scope: granted.scope, type: granted.token_type, live, ended };
}

/** A public client, which has no secret, may not introspect. */
export async function playOauth4webapi({ issuer, client: [id, secret], exchange }, authentication) {
  const options = { [oauth.allowInsecureRequests]: true };
  const url = new URL(issuer);
  const server = await oauth.processDiscoveryResponse(url, await oauth.discoveryRequest(url, options));
  const client = { client_id: id };
  const answer = await oauth.genericTokenEndpointRequest(server, client, authentication, EXCHANGE, await exchange(), options);
  const granted = await oauth.processGenericTokenEndpointResponse(server, client, answer);
  const isActive = async () => {
    if (!secret) return undefined;
    const asked = await oauth.introspectionRequest(server, client, authentication, granted.access_token, options);
    return (await oauth.processIntrospectionResponse(server, client, asked)).active;
  };
  const live = await isActive();
  await oauth.processRevocationResponse(await oauth.revocationRequest(server, client, authentication, granted.access_token, options));
  return { scope: granted.scope, type: granted.token_type, live, ended: await isActive() };
}

/** `method` is one of Authlib's names, or `default`. */
export async function playAuthlib({ issuer, client, exchange }, method) {
  const parameters = JSON.stringify({ issuer, client, method, exchange: await exchange() });
  const { stdout } = await promisify(execFile)(`${ROOT}scripts/authlib`, [AUTHLIB, parameters]);
  return JSON.parse(stdout);
}

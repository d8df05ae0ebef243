// APIs that verify access tokens by a library, with the one key set that discovery names.
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import express from 'express';
import { auth } from 'express-oauth2-jwt-bearer';
import { ROOT } from '../stack/envoy.js';

const AUTHLIB = fileURLToPath(new URL('authlib-api.py', import.meta.url));
const PYJWT = fileURLToPath(new URL('pyjwt-api.py', import.meta.url));

/**
 * Runs an API that verifies by express-oauth2-jwt-bearer, and passes `scenario` a function that
 * calls the API with a token. `strict` is by RFC 9068.
 */
export async function withExpressApi({ issuer, audience, strict }, scenario) {
  const app = express();
  app.use(auth({ issuerBaseURL: issuer, audience, strict }));
  app.get('/orders', (request, response) => response.json(request.auth.payload));
  app.use((error, _request, response, _next) => response.status(error.status).set(error.headers).end());
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    await scenario((token) => fetch(`http://127.0.0.1:${server.address().port}/orders`, {
      headers: { authorization: `Bearer ${token}` },
    }));
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Returns the claims that Authlib's validator finds in each of the tokens. */
export function verifiedByAuthlib({ issuer, audience, scope, tokens }) {
  return printed('authlib', AUTHLIB, { issuer, audience, scope, tokens });
}

/** Returns the claims that PyJWT finds in each of the tokens. */
export function verifiedByPyjwt({ issuer, audience, algorithms, tokens }) {
  return printed('pyjwt', PYJWT, { issuer, audience, algorithms, tokens });
}

async function printed(python, program, parameters) {
  const { stdout } = await promisify(execFile)(`${ROOT}scripts/${python}`, [program, JSON.stringify(parameters)]);
  return JSON.parse(stdout);
}

// The API and the application: it verifies each token itself, and knows when somebody is used.
import express from 'express';
import { auth, scopeIncludesAny } from 'express-oauth2-jwt-bearer';

const { ISSUER, API, APPLICATION, PAGE, PORT } = process.env;

/** The people of a verified token. Nothing here reads a header field that says who somebody is. */
function people({ sub: user, act, client_id: client, txn }) {
  return { user, actor: act?.sub ?? (txn && client), impersonation: txn };
}

/** `txn` marks an impersonation, also one without `act`. */
function notForSomebodyElse(request, response, next) {
  if (request.people.impersonation === undefined) return next();
  return response.status(403).json({ error: 'access_denied', error_description: 'only the user may do this' });
}

const app = express();
app.use(express.static(PAGE));
app.use(auth({ issuerBaseURL: ISSUER, audience: [API, APPLICATION], strict: true }));
app.use(scopeIncludesAny('orders:read shop:use'));
app.use((request, response, next) => {
  request.people = people(request.auth.payload);
  response.on('finish', () => console.log(JSON.stringify({
    ...request.people, method: request.method, path: request.path, status: response.statusCode,
  })));
  next();
});

app.get('/me', (request, response) => response.json(request.people));
app.post('/password', notForSomebodyElse, (request, response) => response.status(204).end());

// Longer than Envoy keeps an idle connection, so that Envoy never writes to a closed one.
app.listen(PORT, '127.0.0.1', () => console.log('ready')).keepAliveTimeout = 75_000;

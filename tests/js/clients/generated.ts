// Mints, lists and ends by a client that openapi-typescript has made from docs/openapi.yaml. It is
// compiled: a member that the description does not have is an error.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

declare const process: { argv: string[] };

const [origin, backend, operator] = process.argv.slice(2);
const as = (token: string) => createClient<paths>({ baseUrl: origin, headers: { authorization: `Bearer ${token}` } });

const minted = await as(backend).POST('/api/subject-tokens', { body: { userId: 'user-42', actorId: 'agent-7', context: { ticketId: 'T-1' } } });
if (!minted.data) throw new Error(minted.error.error);
const token: components['schemas']['MintResponse'] = minted.data;

const listed = await as(operator).GET('/api/impersonations', { params: { query: { actorId: 'agent-7' } } });
if (!listed.data) throw new Error(listed.error.error);
const complete: boolean = listed.data.complete;

const ended = await as(operator).POST('/api/impersonations/revocations', { body: { actorId: 'agent-7' } });
if (!ended.data) throw new Error(ended.error.error);
console.log(JSON.stringify({ token: token.subjectToken.slice(0, 4), complete, actors: listed.data.impersonations.map(({ actorId }) => actorId), ended: ended.data.ended }));

// Verifies tokens with npm `jose`, for comparison with the filter in tests/differential. Reads
// base64 lines, one token each, from standard input, and answers each with its claims as JSON, or
// null if it does not verify.
//
//   node verifies-jwts.js '{"keys": [...], "issuer": ..., "audiences": [...], "algorithms": [...]}'
import { createInterface } from 'node:readline';
import { createLocalJWKSet, flattenedVerify, generalVerify, jwtVerify } from 'jose';

const { keys, issuer, audiences, algorithms } = JSON.parse(process.argv[2]);
const keySet = createLocalJWKSet({ keys });

for await (const line of createInterface({ input: process.stdin })) {
  const token = Buffer.from(line, 'base64').toString();
  console.log(JSON.stringify(await compact(token) ?? await serialized(token) ?? null));
}

async function compact(token) {
  try {
    return (await jwtVerify(token, keySet, { issuer, audience: audiences, algorithms })).payload;
  } catch {
    return undefined;
  }
}

/** RFC 7515 §7.2: the token is not a JWT, but its signature is valid. */
async function serialized(token) {
  try {
    const jws = JSON.parse(token);
    const verify = 'signatures' in jws ? generalVerify : flattenedVerify;
    const { payload } = await verify(jws, keySet, { algorithms });
    return JSON.parse(new TextDecoder().decode(payload));
  } catch {
    return undefined;
  }
}

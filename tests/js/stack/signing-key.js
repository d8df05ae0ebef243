// A new key for IMPERSONATION_SIGNING_KEY, as a private JWK. The gateway of tests/js/gateway signs
// with ES256 (P-256), Keycloak with RS256, and an API should need one algorithm only. The key
// has no `kid`: the filter derives the thumbprint (RFC 7638). Run as a program, this file prints a
// key.
import { generateKeyPairSync } from 'node:crypto';
import { fileURLToPath } from 'node:url';

export function newSigningKey(alg = 'ES256') {
  const { privateKey } = alg === 'RS256'
    ? generateKeyPairSync('rsa', { modulusLength: 2048 })
    : generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig' };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(JSON.stringify(newSigningKey()));

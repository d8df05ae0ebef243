// A new key for IMPERSONATION_SIGNING_KEY: Ed25519, as a private JWK. Its `kid` is the thumbprint that
// the filter derives (RFC 7638), so none is given. Run as a program it prints one.
import { generateKeyPairSync } from 'node:crypto';
import { fileURLToPath } from 'node:url';

export function newSigningKey() {
  const { privateKey } = generateKeyPairSync('ed25519');
  return { ...privateKey.export({ format: 'jwk' }), alg: 'EdDSA', use: 'sig' };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(JSON.stringify(newSigningKey()));

// envoy.yaml, where the support console must bind its tokens to a key.
import { replacedOnce } from './envoy.js';

/** With `nonce`, the proofs of the exchange need nonces. */
export function withBinding(yaml, { nonce = false } = {}) {
  const bound = replacedOnce(yaml, /# (token_binding: dpop)/, '$1');
  return nonce ? replacedOnce(bound, /dpop: \{\}/, 'dpop: {nonce: required}') : bound;
}

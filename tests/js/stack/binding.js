// envoy.yaml, where the support console must bind its tokens to a key. Tokens of browser sessions
// cannot be bound, so the console names its APIs.
import { replacedOnce } from './envoy.js';

/** With `nonce`, the proofs of the exchange need nonces. */
export function withBinding(yaml, { nonce = false } = {}) {
  const apis = [...yaml.matchAll(/^ +- indicator: (\S+\/(?:orders|invoices))$/gm)].map(([, api]) => api);
  const bound = replacedOnce(yaml, /^( +)# (token_binding: dpop).*$/m, `$1$2\n$1resources: [${apis.join(', ')}]`);
  return nonce ? replacedOnce(bound, /dpop: \{\}/, 'dpop: {nonce: required}') : bound;
}

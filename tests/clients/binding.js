// envoy.yaml with the lines that it has for tokens that are bound to keys.
import { replacedOnce } from '../../stack/envoy.js';

export function withBinding(yaml, { nonce = false } = {}) {
  yaml = replacedOnce(yaml, /# (token_binding: dpop)/, '$1');
  yaml = replacedOnce(yaml, /# (public_origin: \S+)/, '$1');
  yaml = replacedOnce(yaml, /# (- \{name: Authorization, value_prefix: "DPoP "\})/, '$1');
  if (nonce) yaml = replacedOnce(yaml, /# (dpop: \{nonce: required\})/, '$1');
  return replacedOnce(yaml, /( +)# (- name: envoy.filters.http.header_to_metadata\n)((?: +# .*\n)+)/, (_, indent, first, rest) => (
    `${indent}${first}${rest.replaceAll(/^( +)# /gm, '$1')}`
  ));
}

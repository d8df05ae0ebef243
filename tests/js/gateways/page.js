// The pages of docs/gateways, as the tests use them. A page and its test cannot differ.
import { readFileSync } from 'node:fs';
import { ROOT } from '../stack/envoy.js';
import { namedBlocks } from '../stack/readme.js';

/** Returns the text of a page of docs/gateways. */
export function page(name) {
  return readFileSync(`${ROOT}docs/gateways/${name}`, 'utf8');
}

/** Returns a block of a page by the name in the comment before it. */
export function block(name, title) {
  const text = namedBlocks(`docs/gateways/${name}`)[title];
  if (text === undefined) throw new Error(`docs/gateways/${name} has no block ${title}`);
  return text;
}

// The files of a release, which `make release` has made.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { ROOT } from '../stack/envoy.js';

export const FILES = `${ROOT}target/release-files`;
export const LAYOUTS = `${ROOT}target/oci`;
export const IMAGES = {
  'impersonation-filter': ['plugin.wasm'],
  'impersonation-guard': ['plugin.wasm'],
  companion: ['LICENSE', 'impersonation-filter'],
};
export const MODULES = ['impersonation_filter', 'impersonation_guard'];
export const [, VERSION] = /^version = "(.*)"$/m.exec(readFileSync(`${ROOT}Cargo.toml`, 'utf8'));

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

/** Returns the SHA-256 of each file below a folder, by name. */
export function digests(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const names = files.map((entry) => `${entry.parentPath}/${entry.name}`).toSorted();
  return Object.fromEntries(names.map((name) => [name.slice(folder.length + 1), sha256(readFileSync(name))]));
}

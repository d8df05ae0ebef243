// envoy.yaml before a gateway with other paths, by the lines of docs/gateway.md, and the table of
// docs/gateways/README.md, which has the paths of known gateways.
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { COMPANION, CONFIG, ROOT } from '../stack/envoy.js';
import { namedBlocks } from '../stack/readme.js';
import { page } from './page.js';

/** The names that envoy.yaml has for what a gateway may lack. */
const DEFAULTS = { revocation: '/oidc/token/revocation', introspection: '/oidc/token/introspection', userinfo: '/oidc/me' };

/** The gateways of the table by name, each with the paths that the table has. */
export function knownGateways() {
  const [, table] = /<!-- The tests read this table\. -->\n([^]*?)<!-- end of the table -->/.exec(page('README.md'));
  const [head, , ...rows] = table.trim().split('\n').map((line) => line.split('|').slice(1, -1).map((cell) => cell.trim()));
  return Object.fromEntries(rows.map(([name, ...cells]) => [name, Object.fromEntries(cells.flatMap((cell, index) => {
    const [, member] = /^`?(\w+)`?$/.exec(head[index + 1]) ?? [];
    const [, path] = /^`(\/\S+)`$/.exec(cell) ?? [];
    return member && path ? [[member, path]] : [];
  }))]));
}

/**
 * Returns envoy.yaml after the lines, for these paths: without them, for those that the page has.
 */
export function moved(paths) {
  const [own, ...lines] = namedBlocks('docs/gateway.md').paths.split('\n\n');
  const folder = mkdtempSync(join(tmpdir(), 'moved-'));
  try {
    copyFileSync(CONFIG, join(folder, 'envoy.yaml'));
    execFileSync('sh', ['-euc', [paths ? assignments(paths) : own, ...lines].join('\n\n')], { cwd: folder });
    return readFileSync(join(folder, 'moved.yaml'), 'utf8');
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function assignments(paths) {
  const issuer = paths.discovery.replace('/.well-known/openid-configuration', '');
  const { token, jwks, discovery, revocation, introspection, userinfo } = { ...DEFAULTS, ...paths };
  const variables = { issuer, token, jwks, discovery, revocation, introspection, userinfo, logout: '/api/backchannel-logout' };
  return Object.entries(variables).map(([name, value]) => `${name}='${value}'`).join('\n');
}

/** Returns the companion's findings in a file. */
export function check(file) {
  return execFileSync(COMPANION, ['check', '--assume-environment', file], { cwd: ROOT, encoding: 'utf8' });
}

// Runs `impersonation-filter probe` against the stack of envoy.yaml, for its parties.
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { COMPANION } from './envoy.js';
import { SECRETS } from './names.js';

/**
 * Probes the `filters` and the `apis`. `origin` is the address that tokens name. `tokens` are those
 * of the caller, the actor and the operator. `settings` replace others. Returns the exit status and
 * everything that was printed.
 */
export async function probe({ origin, filters = [origin], apis = filters, tokens, settings = {} }, flags = []) {
  if (!existsSync(COMPANION)) throw new Error('the companion is missing: make companion');
  const folder = mkdtempSync(join(tmpdir(), 'probe-'));
  try {
    const file = (name, text) => {
      writeFileSync(join(folder, name), text, { mode: 0o600 });
      return join(folder, name);
    };
    const described = file('probe.json', JSON.stringify({
      filter: filters,
      api: apis,
      read: '/orders/1',
      write: '/orders',
      resource: `${origin}/orders`,
      scope: 'orders:read',
      user: 'user-42',
      context: { reason: 'a probe' },
      client_id: 'support-portal',
      client_secret_file: file('secret', SECRETS['support-portal']),
      caller_token_file: file('caller', tokens.caller),
      actor_token_file: file('actor', tokens.actor),
      operator_token_file: file('operator', tokens.operator),
      // The guard promises a second. The bound is wide, for a busy machine.
      ends_within: '30s',
      ...settings,
    }));
    return await new Promise((resolve) => {
      execFile(COMPANION, ['probe', '--settings', described, ...flags], (error, stdout, stderr) => {
        resolve({ status: error ? error.code : 0, printed: `${stdout}${stderr}` });
      });
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

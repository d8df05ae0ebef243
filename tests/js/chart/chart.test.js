// Packages the Helm chart, renders it with Helm, and judges the result as the manifests in deploy/
// are judged. Helm's schema must refuse wrong values.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { parse } from 'yaml';
import { COMPANION, ROOT } from '../stack/envoy.js';
import { judgeIstio, manifests } from '../clients/manifests.js';

// Digests that YAML would read as numbers.
const FILTER = `1e${'1'.repeat(62)}`;
const GUARD = '2'.repeat(64);
const DIGEST = /@sha256:[0-9a-f]{64}/g;

const folder = mkdtempSync(join(tmpdir(), 'chart-'));
after(() => rmSync(folder, { recursive: true }));
const packageInto = (name, options = {}) => (
  execFileSync(`${ROOT}scripts/chart`, ['0.1.0', `sha256:${FILTER}`, `sha256:${GUARD}`, join(folder, name)], { encoding: 'utf8', ...options }).trim()
);
const chart = packageInto('first');

const example = (name) => `${ROOT}deploy/helm/impersonation-filter/examples/${name}.yaml`;
const own = (name) => `${ROOT}tests/js/chart/values-${name}.yaml`;
const EXAMPLES = {
  istio: [example('configuration'), example('istio')],
  'envoy-gateway': [example('configuration'), example('envoy-gateway')],
};
const CASES = ['minimal', 'example', 'sessions', 'full'].flatMap((size) => [
  [size, 'istio', 'EnvoyFilter'],
  [size, 'istio', 'WasmPlugin'],
  [size, 'istio', 'TrafficExtension'],
  [size, 'envoy-gateway', 'EnvoyFilter'],
]);

function helm(...args) {
  const { status, stdout, stderr } = spawnSync(`${ROOT}scripts/helm`, args, { encoding: 'utf8' });
  return { status, stdout, stderr };
}

/** Returns the flags of Helm for one of CASES. */
function values(size, mesh, extension = 'EnvoyFilter') {
  const files = {
    minimal: [own('minimal')],
    example: EXAMPLES[mesh],
    sessions: [...EXAMPLES[mesh], example('sessions')],
    full: [...EXAMPLES[mesh], own('full')],
  }[size];
  return [...files.flatMap((file) => ['--values', file]), '--set', `mesh=${mesh},istio.extension=${extension}`];
}

/** Returns the manifests of one of CASES, as text. */
function render(...of) {
  const { status, stdout, stderr } = helm('template', 'impersonation', chart, ...values(...of));
  assert.equal(status, 0, stderr);
  return stdout;
}

test('two packages are byte for byte alike', () => {
  const env = { ...process.env, TZ: 'Asia/Tokyo', LC_ALL: 'C' };
  const second = execFileSync('bash', ['-c', 'umask 077 && exec "$@"', 'bash', `${ROOT}scripts/chart`, '0.1.0', `sha256:${FILTER}`, `sha256:${GUARD}`, join(folder, 'second')], { env, encoding: 'utf8' });
  assert.deepEqual(readFileSync(second.trim()), readFileSync(chart));
  const { version, appVersion } = parse(helm('show', 'chart', chart).stdout);
  assert.deepEqual([version, appVersion], ['0.1.0', '0.1.0']);
});

test('a package names the registry that it is made for', () => {
  const other = packageInto('other', { env: { ...process.env, IMAGE_REGISTRY: 'ghcr.io/example' } });
  const { images } = parse(helm('show', 'values', other).stdout);
  assert.deepEqual(images.filter, { repository: 'ghcr.io/example/impersonation-filter', tag: '0.1.0', digest: `sha256:${FILTER}` });
  assert.deepEqual(images.guard, { repository: 'ghcr.io/example/impersonation-guard', tag: '0.1.0', digest: `sha256:${GUARD}` });
});

for (const [size, mesh, extension] of CASES) {
  test(`${size} values, ${mesh}, ${extension}: Helm and check find nothing`, () => {
    const lint = helm('lint', '--strict', chart, ...values(size, mesh, extension));
    assert.equal(lint.status, 0, lint.stdout + lint.stderr);
    const file = join(folder, `${size}-${mesh}-${extension}.yaml`);
    writeFileSync(file, render(size, mesh, extension));
    const checked = spawnSync(COMPANION, ['check', '--assume-environment', file], { encoding: 'utf8' });
    const [summary, ...findings] = checked.stdout.trim().split('\n').reverse();
    assert.equal(checked.status, 0, checked.stdout + checked.stderr);
    assert.match(summary, /: valid[,;]/);
    // The least has no operators, who could end an impersonation, and no documents that stand in.
    const expected = size === 'minimal' ? [/impersonations: absent: nobody can list/, /identity_gateway\.cluster: absent/] : [];
    assert.equal(findings.length, expected.length, checked.stdout);
    expected.forEach((pattern, index) => assert.match(findings[index], pattern));
  });
}

for (const mesh of Object.keys(EXAMPLES)) {
  test(`${mesh}: the chart's example renders the manifests in deploy/, pinned by digest`, () => {
    const rendered = manifests(render('example', mesh));
    const shipped = manifests(readFileSync(`${ROOT}deploy/${mesh}/impersonation.yaml`, 'utf8'));
    assert.deepEqual(byName(rendered.map(withoutDigests)), byName(shipped));
  });
}

for (const mesh of Object.keys(EXAMPLES)) {
  test(`${mesh}: the chart's example with sessions renders sessions.yaml in deploy/ beside the rest`, () => {
    const [rendered, rest] = ['sessions', 'example'].map((size) => byName(manifests(render(size, mesh)).map(withoutDigests)));
    const shipped = byName(manifests(readFileSync(`${ROOT}deploy/${mesh}/sessions.yaml`, 'utf8')));
    const names = Object.keys(rendered).filter((name) => !(name in rest));
    assert.deepEqual(Object.fromEntries(names.map((name) => [name, rendered[name]])), shipped);
    // The filter of the other hosts knows of the sessions, too, and nothing else is different.
    const configurations = collect(Object.values(rendered), 'browser_sessions');
    assert.equal(configurations.length, 2);
    assert.deepEqual(configurations[0], configurations[1]);
    for (const name of Object.keys(rest).filter((name) => !collect(rest[name], 'signing_keys').length)) {
      assert.deepEqual(rendered[name], rest[name], name);
    }
  });
}

test('the guard of the sessions knows their domain, and no other guard does', () => {
  for (const mesh of Object.keys(EXAMPLES)) {
    const guards = manifests(render('sessions', mesh)).flatMap((manifest) => collect(manifest, 'browser_session').map((of) => [manifest.metadata.name, of]));
    assert.equal(guards.length, 1, mesh);
    assert.deepEqual(guards[0][1], { domain: 'shop-as-user.example' });
    assert.match(guards[0][0], /^impersonation-sessions/);
    // Tokens of sessions are bound to no key.
    const shipped = manifests(render('sessions', mesh)).find(({ metadata }) => metadata.name === guards[0][0]);
    assert.equal(collect(shipped, 'public_origin').length, 0);
  }
});

for (const extension of ['WasmPlugin', 'TrafficExtension']) {
  judgeIstio(`the chart's example with ${extension}`, manifests(render('example', 'istio', extension)));
}

test('a TrafficExtension has the same guard as a WasmPlugin', () => {
  const specs = (kind) => manifests(render('full', 'istio', kind)).filter((manifest) => manifest.kind === kind).map(({ spec }) => spec);
  const plugins = specs('WasmPlugin');
  assert.equal(plugins.length, 2);
  assert.deepEqual(specs('TrafficExtension'), plugins.map(({ selector, match, phase, ...wasm }) => ({ selector, match, phase, wasm })));
});

test('Envoy Gateway fetches both images with the secret for private ones', () => {
  const { status, stdout, stderr } = helm('template', 'impersonation', chart, ...values('full', 'envoy-gateway'), '--set', 'images.pullSecret=registry');
  assert.equal(status, 0, stderr);
  const all = manifests(stdout);
  const policies = all.filter(({ kind }) => kind === 'EnvoyExtensionPolicy');
  assert.equal(policies.length, 3);
  for (const { spec } of policies) assert.deepEqual(spec.wasm[0].code.image.pullSecretRef, { name: 'registry' });
  const { spec } = all.find(({ kind }) => kind === 'EnvoyProxy');
  assert.deepEqual(spec.provider.kubernetes.envoyDeployment.pod.imagePullSecrets, [{ name: 'registry' }]);
});

test('every image is named by its digest, in every form', () => {
  for (const [size, mesh, extension] of CASES) {
    const text = render(size, mesh, extension);
    for (const [image, name] of text.matchAll(/registry\.example\.com\/impersonation-(filter|guard)[^"\s,}]*/g)) {
      assert.equal(image, `registry.example.com/impersonation-${name}:0.1.0@sha256:${name === 'filter' ? FILTER : GUARD}`);
    }
    const sums = collect(manifests(text), 'sha256');
    assert.ok(sums.length > 0 && sums.every((sum) => [FILTER, GUARD].includes(sum)), `${size}, ${mesh}, ${extension}: ${sums}`);
  }
});

/** Returns the filter's configuration in the values of one size. */
function configurationOf(size) {
  const of = (file) => parse(readFileSync(file, 'utf8')).filter.configuration;
  if (size === 'minimal') return of(own('minimal'));
  const [basis, more] = [of(example('configuration')), of(own('full'))];
  return { ...basis, ...more, impersonations: { ...basis.impersonations, ...more.impersonations } };
}

test('the filter gets its configuration as it is, with the cluster of the mesh', () => {
  for (const [mesh, cluster] of [
    ['istio', 'outbound|8080||identity-gateway.auth.svc.cluster.local'],
    ['envoy-gateway', 'httproute/auth/impersonation/rule/0'],
  ]) {
    const all = manifests(render('full', mesh));
    const rendered = mesh === 'istio'
      ? all.find(({ kind }) => kind === 'EnvoyFilter').spec.configPatches[0].patch.value.typed_config.config.configuration.value
      : all.find(({ kind, metadata }) => kind === 'EnvoyExtensionPolicy' && metadata.name === 'impersonation').spec.wasm[0].config;
    const expected = JSON.parse(JSON.stringify(configurationOf('full')), (key, value) => (
      key === 'cluster' && value === 'identity-gateway' ? cluster : value
    ));
    assert.deepEqual(rendered, expected, mesh);
  }
});

test('the routes follow the paths of the configuration, and so do their look-alikes', () => {
  const { properties } = JSON.parse(readFileSync(`${ROOT}docs/configuration.schema.json`, 'utf8')).properties.paths;
  const defaults = Object.fromEntries(Object.entries(properties).map(([name, { default: path }]) => [name, path]).filter(([, path]) => path));
  for (const size of ['minimal', 'full']) {
    const { base_path: base = '', paths, impersonations = {}, ...others } = configurationOf(size);
    // Without a sender, the path of an event is the gateway's, and so are those of the page without
    // `console`, and of approvals without `approvals`.
    const configured = { ...impersonations, ...others };
    const isTheFilters = (name) => name in configured || !['back_channel_logout', 'security_events', 'console', 'approvals'].includes(name);
    const expected = Object.entries({ ...defaults, ...paths }).filter(([name]) => isTheFilters(name)).map(([, path]) => base + path);
    const istio = manifests(render(size, 'istio')).find(({ kind }) => kind === 'VirtualService').spec.http;
    const uris = (name) => istio.filter((route) => route.name === name).flatMap(({ match }) => match.map(({ uri }) => uri));
    const exact = uris('impersonation').flatMap(({ exact: path }) => path ?? []);
    const [revocations] = exact.filter((path) => path.endsWith('/impersonations/revocations'));
    assert.deepEqual([...exact].sort(), [...expected, revocations].sort(), size);
    const alike = uris('look-alikes').map(({ regex }) => new RegExp(`^(?:${regex.replace('(?i)', '')})$`, 'i'));
    for (const path of exact) {
      const parent = path.split('/')[1];
      for (const other of [path.toUpperCase(), `${path}/`, `${path};x`, `${path}%3Bx/y`, path.replace(parent, `${parent};x`), path.replace(parent, `;/${parent}`)]) {
        assert.ok(alike.some((regex) => regex.test(other)), `${size}: ${other}`);
      }
    }
    assert.ok(!alike.some((regex) => regex.test('/orders/1') || regex.test(`${exact[0]}s`)), size);

    const routes = manifests(render(size, 'envoy-gateway')).filter(({ kind }) => kind === 'HTTPRoute');
    const matched = (type, ...names) => routes.filter(({ metadata }) => names.includes(metadata.name))
      .flatMap(({ spec }) => spec.rules.flatMap(({ matches }) => matches.map(({ path }) => path)))
      .filter((path) => path.type === type).map(({ value }) => value);
    assert.deepEqual(matched('Exact', 'impersonation', 'impersonation-from-pages'), exact, size);
    assert.deepEqual(matched('RegularExpression', 'impersonation-look-alikes'), uris('look-alikes').map(({ regex }) => regex), size);
  }
});

test('an API has its own rules, and the guard has the filter’s issuer, base path and store', () => {
  const all = manifests(render('full', 'istio'));
  const guards = all.filter(({ kind, metadata }) => kind === 'EnvoyFilter' && metadata.name === 'impersonation-guard');
  const configurations = Object.fromEntries(guards.map(({ metadata: { namespace }, spec }) => (
    [namespace, spec.configPatches[0].patch.value.typed_config.config.configuration.value]
  )));
  const common = {
    issuer: 'https://auth.example.com/oidc',
    base_path: '/tenant-a',
    payload_in_metadata: 'payload',
    store: { etcd: { cluster: 'etcd', prefix: '/impersonation/' } },
    default: 'read_only',
    max_staleness: '20s',
    headers: { id: 'x-imp-id', actor: 'x-imp-actor' },
    public_origin: 'https://api.example.com',
  };
  assert.deepEqual(configurations, {
    'istio-ingress': { ...common, default: 'deny', rules: [{ path: '/orders/search', methods: ['POST'], action: 'allow' }] },
    billing: common,
  });
});

test('logs.format adds the access log in ECS to each API, and nothing to others', () => {
  const entries = (payload) => parse(readFileSync(`${ROOT}deploy/siem/envoy-access-log.yaml`, 'utf8').replaceAll('access_token', payload));
  for (const mesh of ['istio', 'envoy-gateway']) {
    const ecs = [...values('full', mesh), '--set', 'logs.format=ecs'];
    const { status, stdout, stderr } = helm('template', 'impersonation', chart, ...ecs);
    assert.equal(status, 0, stderr);
    const file = join(folder, `ecs-${mesh}.yaml`);
    writeFileSync(file, stdout);
    const checked = spawnSync(COMPANION, ['check', '--assume-environment', file], { encoding: 'utf8' });
    assert.equal(checked.status, 0, checked.stdout + checked.stderr);
    const apis = parse(readFileSync(own('full'), 'utf8')).apis ?? [];
    const rendered = manifests(stdout);
    const added = mesh === 'istio'
      ? collect(rendered, 'access_log')
      : rendered.flatMap(({ spec }) => spec?.jsonPatches ?? []).map(({ operation }) => operation).filter(({ jsonPath }) => jsonPath?.endsWith('.access_log')).map(({ value }) => value);
    const expected = apis.map(({ name }) => entries(mesh === 'istio' ? 'payload' : name));
    assert.ok(apis.length > 0);
    assert.deepEqual(added, mesh === 'istio' ? expected : expected.flat());
  }
  assert.doesNotMatch(render('full', 'istio') + render('full', 'envoy-gateway'), /access_loggers/);
});

test('the notes have the values for the chart istio/gateway', () => {
  const { stdout, stderr } = helm('install', 'impersonation', chart, '--dry-run=client', ...values('example', 'istio'));
  const [, notes] = /<<END\n(.*?)\n *END\n/s.exec(stdout) ?? assert.fail(stdout + stderr);
  assert.deepEqual(parse(notes), parse(readFileSync(`${ROOT}deploy/istio/gateway-values.yaml`, 'utf8')));
});

test('wrong values are refused, with the member at fault', () => {
  const cases = [
    ['images.filter.digest=latest', "at '/images/filter/digest': 'latest' does not match pattern '^sha256:[0-9a-f]{64}$'"],
    ['images.guard.digest=', "at '/images/guard/digest': '' does not match pattern"],
    ['mesh=linkerd', "at '/mesh': value must be one of 'istio', 'envoy-gateway'"],
    ['istio.extension=Lua', "at '/istio/extension': value must be one of 'EnvoyFilter', 'WasmPlugin', 'TrafficExtension'"],
    ['gatway.name=public', "at '': additional properties 'gatway' not allowed"],
    ['filter.configuration.signing_key=x', "at '/filter/configuration': additional properties 'signing_key' not allowed"],
    ['filter.configuration.clients[0].type=page', "at '/filter/configuration/clients/0/type': value must be one of"],
    ['filter.configuration.subject_tokens.lifetime=600', "at '/filter/configuration/subject_tokens/lifetime': got number, want string"],
    ['filter.configuration.paths.token=oidc/token', "at '/filter/configuration/paths/token': 'oidc/token' does not match pattern"],
    ['guard.configuration.default=all', "at '/guard/configuration/default': value must be one of 'read_only', 'allow', 'deny'"],
    ['guard.configuration.issuer=https://other.example.com', "at '/guard/configuration': additional properties 'issuer' not allowed"],
    ['apis[0].guard.store.shared_data.x=1', "at '/apis/0/guard': additional properties 'store' not allowed"],
    ['cors.origins[0]=*', "at '/cors/origins/0': '*' does not match pattern"],
    ['apis[1].name=a', "at '/apis/1': missing property 'audiences'"],
    ['apis[1].name=a,apis[1].audiences[0]=b', 'apis[1].selector: is required with mesh istio'],
    ['apis[0].hostnames[0]=c,apis[0].pathPrefix=', "at '/apis/0/pathPrefix': '' does not match pattern"],
    ['apis[1].name=a,apis[1].audiences[0]=b,apis[1].selector.a=b,apis[1].hostnames[0]=c', 'apis[1].pathPrefix: is required with hostnames'],
    ['etcd.members=null', 'etcd.members: is required with filter.configuration.store.etcd'],
    ['guard.configuration.headers.id=null', 'guard.configuration.headers.id: is required'],
    ['sessions.gateway.name=sessions', 'sessions.gateway: needs filter.configuration.browser_sessions'],
    ['images.pullSecret=registry', "images.pullSecret: Istio's EnvoyFilter has no field for it"],
  ];
  for (const [set, message] of cases) {
    const { status, stderr } = helm('template', 'impersonation', chart, ...values('example', 'istio'), '--set', set);
    assert.equal(status, 1, set);
    assert.ok(stderr.includes(message), `${set}: ${stderr}`);
  }
  for (const [set, message] of [
    ['sessions.gateway.name=', 'sessions.gateway.name: is required with filter.configuration.browser_sessions'],
    ['sessions.gateway.name=public', 'sessions.gateway: is the gateway of other hosts, too'],
    ['sessions.gateway.selector.istio=ingressgateway', 'sessions.gateway.selector: selects the pods of other hosts, too'],
    ['sessions.service=', 'sessions.service: is required with sessions.gateway.name'],
    ['sessions.guard.browser_session.domain=x', "at '/sessions/guard': additional properties 'browser_session' not allowed"],
  ]) {
    const { status, stderr } = helm('template', 'impersonation', chart, ...values('sessions', 'istio'), '--set', set);
    assert.equal(status, 1, set);
    assert.ok(stderr.includes(message), `${set}: ${stderr}`);
  }
  const inMemory = helm('template', 'impersonation', chart, ...values('minimal', 'istio'), '--values', example('sessions'));
  assert.match(inMemory.stderr, /sessions\.gateway: has a filter and a guard of its own, and needs filter\.configuration\.store\.etcd/);
  const nothing = helm('template', 'impersonation', chart);
  assert.match(nothing.stderr, /at '\/filter\/configuration': missing properties 'issuer', 'signing_keys', 'subject_tokens', 'clients', 'resources'/);
  const withoutStore = helm('template', 'impersonation', chart, ...values('minimal', 'istio'), '--set', 'apis[0].name=a,apis[0].audiences[0]=b');
  assert.match(withoutStore.stderr, /apis: the guard is in another VM or Envoy than the filter, and needs filter\.configuration\.store\.etcd/);
});

const byName = (all) => Object.fromEntries(all.map((manifest) => [`${manifest.kind} ${manifest.metadata.namespace}/${manifest.metadata.name}`, manifest]));

/** Removes the digests, which the manifests in deploy/ cannot know. */
function withoutDigests(manifest) {
  return JSON.parse(JSON.stringify(manifest), (key, value) => {
    if (key === 'sha256') return undefined;
    return typeof value === 'string' ? value.replace(DIGEST, '') : value;
  });
}

/** Returns the values of all members of this name, at any depth. */
function collect(value, name) {
  if (value === null || typeof value !== 'object') return [];
  return Object.entries(value).flatMap(([key, member]) => (key === name ? [member] : collect(member, name)));
}

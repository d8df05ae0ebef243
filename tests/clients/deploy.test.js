// Judges the manifests in deploy/.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ROOT } from '../../stack/envoy.js';
import { judgeEnvoyGateway, judgeIstio, manifests, pathsOfEnvoyGateway, pathsOfIstio } from './manifests.js';

const read = (mesh) => manifests(readFileSync(`${ROOT}deploy/${mesh}/impersonation.yaml`, 'utf8'));

judgeIstio('deploy', read('istio'));
judgeEnvoyGateway('deploy', read('envoy-gateway'));

test('both manifests turn the filter on for all of its paths', () => {
  assert.deepEqual(pathsOfIstio(read('istio')), pathsOfEnvoyGateway(read('envoy-gateway')));
});

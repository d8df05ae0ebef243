// envoy.yaml in front of a real Keycloak, both as docs/gateways/keycloak.md says. Keycloak starts
// once for all tests.
import { after } from 'node:test';
import { stopAll } from '../stack/process.js';
import './page.js';
import './flow.js';
import './documents.js';
import './endpoints.js';
import './apis.js';
import './clients.js';
import './grants.js';
import './logout.js';

after(stopAll);

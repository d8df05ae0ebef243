// The place for what waits for approval. The page shows it if the filter's configuration has the
// path of that list.
import { html } from './html.js';

export function Approvals() {
  return html`
    <section class="card" aria-labelledby="approvals-heading">
      <h2 id="approvals-heading">Waiting for approval</h2>
      <p class="muted">This release cannot show approvals.</p>
    </section>`;
}

// A row of what waits for approval, and the words for it.
import { html } from './html.js';
import { textOf } from './live.js';
import { count, since } from './words.js';

/** A row of what waits. Decisions change it, so it is always made anew. */
export function waitingRowOf(entry) {
  return {
    ...entry,
    // A filter that does not say it decides for itself.
    mayDecide: entry.mayDecide ?? ['approve', 'deny'],
    // The list has what a mint has: one name, or several, or none.
    clientId: namesOf(entry.clientId),
    resource: namesOf(entry.resource),
    context: Object.entries(entry.context ?? {}),
    began: Date.parse(entry.requestedAt),
    until: Date.parse(entry.expiresAt),
  };
}

const namesOf = (names) => (names === undefined ? undefined : [names].flat().map(textOf).join(', '));

/** An impersonation in one phrase, for the name of a button. */
export const whoOf = ({ actorId, userId }) => `${actorId ?? 'any actor'} as ${userId}`;

/** The actor and the user of a row, to be shown. */
export const Who = ({ row: { actorId, userId } }) => html`<bdi>${actorId ?? 'any actor'}</bdi> as <bdi>${userId}</bdi>`;

export function Named({ name, none = 'not named' }) {
  return name === undefined ? html`<span class="muted">${none}</span>` : html`<bdi>${name}</bdi>`;
}

/** The people who have agreed, and how many are missing. `whole` also shows when they agreed. */
export function Decisions({ row, whole }) {
  const { approvals, needed, consent, userId } = row;
  return html`
    <ul class="decisions">
      ${approvals.map(({ by, at }) => html`<li key=${by}>approved by <bdi>${by}</bdi>${whole && html`, ${since(Date.parse(at), Date.now())}`}</li>`)}
      ${needed > 0 && html`<li><strong>${count(needed, 'approval')} missing</strong></li>`}
      ${consent === 'needed' && html`<li><strong>consent of <bdi>${userId}</bdi> missing</strong></li>`}
      ${consent === 'given' && html`<li>the user agrees</li>`}
    </ul>`;
}

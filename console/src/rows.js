// The rows of the list, as a table. Narrow screens show each row as a card, with the same roles.
import { html } from './html.js';
import { MEMBERS, textOf } from './live.js';
import { left, since, SOON_MS } from './words.js';

/** A row shows this many members of a context. The question shows them all. */
const SHORT = 4;

export function Rows({ rows, first, total, now, end, only }) {
  return html`
    <table role="table" aria-rowcount=${total + 1} aria-label="Live impersonations">
      <thead role="rowgroup">
        <tr role="row" aria-rowindex="1">
          ${['Actor', 'User', 'Client', 'API and scope', 'Context'].map((name) => html`<th role="columnheader" scope="col">${name}</th>`)}
          <th role="columnheader" scope="col" class="number">Since</th>
          <th role="columnheader" scope="col" class="number">Time left</th>
          ${end && html`<th role="columnheader" scope="col"><span class="hidden">End</span></th>`}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map((row, index) => html`<${Row} key=${row.id} row=${row} index=${first + index + 2} now=${now} end=${end} only=${only} />`)}
      </tbody>
    </table>`;
}

function Row({ row, index, now, end, only }) {
  const rest = row.until - now;
  const name = (member) => html`<${Name} member=${member} value=${row[member]} only=${only} />`;
  return html`
    <tr role="row" aria-rowindex=${index}>
      <td role="cell" data-label="Actor">${name('actorId')}</td>
      <td role="cell" data-label="User">${name('userId')}</td>
      <td role="cell" data-label="Client">${name('clientId')}<small>minted by <bdi>${row.caller}</bdi></small></td>
      <td role="cell" data-label="API"><bdi class="text">${row.resource}</bdi>${row.browserSession && html`<small>browser session</small>`}<small><bdi>${row.scope}</bdi></small></td>
      <td role="cell" data-label="Context"><${Context} entries=${row.context} /></td>
      <td role="cell" data-label="Since" class="number"><time datetime=${row.issuedAt}>${since(row.began, now)}</time></td>
      <td role="cell" data-label="Time left" class="number">
        ${rest > 0 ? html`<span class="left">${left(rest)}</span>` : ''}
        ${rest <= 0 ? html`<span>expired</span>` : rest < SOON_MS && html`<small class="soon">expires soon</small>`}
      </td>
      ${end && html`
        <td role="cell" class="end">
          <button class="danger" onClick=${() => end(row)} aria-label=${`End: ${row.actorId ?? 'unnamed actor'} as ${row.userId}`}>End…</button>
        </td>`}
    </tr>`;
}

function Name({ member, value, only }) {
  if (value === undefined) return html`<span class="muted">not named</span>`;
  return html`<button class="name" onClick=${() => only(member, value)} title=${`Show only this ${MEMBERS[member]}`}><bdi>${value}</bdi></button>`;
}

export function Context({ entries, whole }) {
  if (entries.length === 0) return html`<span class="muted">–</span>`;
  return html`
    <dl class=${whole ? '' : 'short'}>
      ${(whole ? entries : entries.slice(0, SHORT)).map(([name, value]) => html`<div key=${name}><dt><bdi>${name}</bdi></dt>${' '}<dd><bdi>${textOf(value)}</bdi></dd></div>`)}
    </dl>
    ${!whole && entries.length > SHORT && html`<small>and ${entries.length - SHORT} more</small>`}`;
}

// What waits for approval: who is asked for, for what, who has agreed, and the ways to decide.
import { useState } from 'preact/hooks';
import { Decide } from './decide.js';
import { html } from './html.js';
import { Pages } from './pages.js';
import { Result, useResult } from './result.js';
import { Context } from './rows.js';
import { Decisions, Named, whoOf } from './waiting.js';
import { counted, left, since, SOON_MS } from './words.js';

const ON_A_PAGE = 10;

/** `elsewhere` is the trouble of the other list, which the page tells already. */
export function Approvals({ session, waiting, elsewhere, leave }) {
  const [question, ask] = useState();
  const [pageNumber, turn] = useState(0);
  const result = useResult();
  const { kind } = waiting.trouble ?? {};
  const rows = waiting.rows.toSorted((a, b) => a.until - b.until || (a.id < b.id ? -1 : 1));
  const pages = Math.max(1, Math.ceil(rows.length / ON_A_PAGE));
  const shown = Math.min(pageNumber, pages - 1);
  const close = () => ask(undefined);
  const done = (words) => {
    close();
    result.say(words);
    waiting.again();
  };

  const refused = kind === 'forbidden' || kind === 'signed-out';
  return html`
    <section class="approvals" aria-labelledby="approvals-heading">
      <h2 id="approvals-heading" class="hidden">Waiting for approval</h2>
      ${refused ? html`<${Refused} kind=${kind} again=${() => waiting.again()} />` : html`<${State} waiting=${waiting} elsewhere=${elsewhere} />`}
      <${Result} result=${result} />
      ${!refused && rows.length > 0 && html`
        <${Table} rows=${rows.slice(shown * ON_A_PAGE, (shown + 1) * ON_A_PAGE)} first=${shown * ON_A_PAGE} total=${rows.length}
          now=${waiting.now} ask=${(row, decision) => ask({ row, decision })} />
        <${Pages} label="Pages of what waits" number=${shown} size=${ON_A_PAGE} total=${rows.length} turn=${turn} />`}
    </section>
    ${question && html`<${Decide} ...${question} key=${question.row.id + question.decision} ...${{ session, waiting, done, leave, close }} />`}`;
}

function Refused({ kind, again }) {
  return html`
    <p class="box note">${kind === 'signed-out'
      ? html`<strong>You may not see approvals.</strong> The filter does not accept your access token for them.`
      : html`<strong>Nothing waits for you.</strong> Your access token lacks the scope <code>impersonations:approve</code>, so it shows
          only what needs your own consent. <button class="quiet" onClick=${again}>Read again</button>`}</p>`;
}

function State({ waiting, elsewhere }) {
  const { kind, description } = waiting.trouble ?? {};
  const { word } = waiting;
  const known = waiting.asOf === undefined ? '' : `What is shown is from ${since(waiting.asOf, Date.now())}.`;
  const trouble = kind !== elsewhere && {
    unreachable: ['What waits could not be read', `Envoy does not answer. ${known}`],
    unavailable: ['What waits could not be read', `The filter cannot read its store. ${known}`],
    busy: ['What waits is read more slowly', `Envoy refuses to read it so often. ${known}`],
    gone: ['There is no list of approvals here', `Envoy does not lead to the filter at its path. ${known}`],
    unexpected: ['What waits could not be read', `The filter says: ${description}. ${known}`],
  }[kind];
  const { length } = waiting.rows;
  const words = waiting.asOf === undefined ? (kind ? 'It is not known what waits for approval.' : 'Reading what waits for approval …')
    : length > 0 ? html`<strong>${counted(length)}</strong> waiting for approval`
      : waiting.whole && waiting.complete ? 'Nothing waits for approval.' : 'Nothing that waits for approval is listed.';
  return html`
    <p class=${length > 0 ? 'figure' : 'figure muted'}><span role="status">${words}</span>${word !== 'up to date' && html` <span class=${`badge ${word.replaceAll(' ', '-')}`}>${word}</span>`}</p>
    <div role="alert">${trouble && html`<p class="box bad"><strong>${trouble[0]}.</strong> ${trouble[1]}</p>`}</div>
    <div role="status">${waiting.asOf !== undefined && !waiting.complete && html`
      <p class="box warn"><strong>This is not all.</strong> More may wait than could be listed.</p>`}</div>`;
}

function Table({ rows, first, total, now, ask }) {
  return html`
    <table role="table" aria-rowcount=${total + 1} aria-label="Waiting for approval">
      <thead role="rowgroup">
        <tr role="row" aria-rowindex="1">
          ${['Actor', 'User', 'Client', 'API and scope', 'Context', 'Decisions'].map((name) => html`<th role="columnheader" scope="col">${name}</th>`)}
          <th role="columnheader" scope="col" class="number">Time left</th>
          <th role="columnheader" scope="col"><span class="hidden">Decide</span></th>
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map((row, index) => html`<${Row} key=${row.id} row=${row} index=${first + index + 2} now=${now} ask=${ask} />`)}
      </tbody>
    </table>`;
}

function Row({ row, index, now, ask }) {
  const rest = row.until - now;
  const button = (decision, words, style) => row.mayDecide.includes(decision) && html`
    <button class=${style} onClick=${() => ask(row, decision)} aria-label=${`${words}: ${whoOf(row)}`}>${words}…</button>`;
  return html`
    <tr role="row" aria-rowindex=${index}>
      <td role="cell" data-label="Actor"><${Named} name=${row.actorId} none="any actor" /></td>
      <td role="cell" data-label="User"><${Named} name=${row.userId} /></td>
      <td role="cell" data-label="Client"><${Named} name=${row.clientId} none="any client" /><small>minted by <bdi>${row.caller}</bdi></small></td>
      <td role="cell" data-label="API"><${Named} name=${row.resource} none="any API" /><small>${row.scope === undefined ? 'any scope' : html`<bdi>${row.scope}</bdi>`}</small></td>
      <td role="cell" data-label="Context"><${Context} entries=${row.context} /></td>
      <td role="cell" data-label="Decisions"><${Decisions} row=${row} /></td>
      <td role="cell" data-label="Time left" class="number">
        ${rest > 0 ? html`<span class="left">${left(rest)}</span>` : html`<span>expired</span>`}
        <small class=${rest > 0 && rest < SOON_MS ? 'soon' : ''}>${rest > 0 && rest < SOON_MS ? 'expires soon' : `asked ${since(row.began, now)}`}</small>
      </td>
      <td role="cell" class="decide">${button('approve', 'Approve', '')}${button('deny', 'Deny', 'danger')}</td>
    </tr>`;
}

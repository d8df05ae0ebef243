// The question before an impersonation is approved or denied. It shows the whole context.
import { useState } from 'preact/hooks';
import { decide } from './api.js';
import { html } from './html.js';
import { Failure, Question, useSending } from './question.js';
import { Context } from './rows.js';
import { Decisions, Named, Who } from './waiting.js';
import { count, left, since } from './words.js';

/** The filter takes no more characters. */
const LONGEST_REASON = 1024;

const FAILURES = {
  'signed-out': 'Your session is over, and nothing was decided. Sign in again and repeat it.',
  decided: ({ description }) => `Your decision does not count. The filter says: ${description}.`,
  busy: 'Too many requests: nothing was decided. Try again in a moment.',
  unavailable: 'It is not known whether your decision counts: the store is out of reach, or somebody who must be told first was not. Try again; one person counts once.',
  unreachable: 'There was no answer: it is not known whether your decision counts. Try again; one person counts once.',
};

/** Another person's right is not the same as no right at all. */
function forbidden({ code, description }) {
  return code === 'insufficient_scope'
    ? 'This does not wait for you, and nothing was decided. Without the scope impersonations:approve you decide only about your own consent, while it is asked.'
    : `This is not yours to decide, and nothing was decided. The filter says: ${description}.`;
}

export function Decide({ session, waiting, row: asked, decision, done, leave, close }) {
  const [send, sending, failure] = useSending(leave, { ...FAILURES, forbidden }, (error) => {
    if (error.kind === 'decided') waiting.again();
  });
  const [reason, setReason] = useState('');
  const approves = decision === 'approve';
  // Somebody else may decide while the question is open.
  const now = waiting.rows.find(({ id }) => id === asked.id);
  const row = now ?? asked;
  const who = html`<${Who} row=${row} />`;
  const rest = row.until - waiting.now;

  const submit = (event) => {
    event.preventDefault();
    if (sending) return;
    send(async () => {
      try {
        done(outcome(who, await decide(session.token, row.id, decision, reason.trim()), row));
      } catch (error) {
        if (error.kind !== 'gone') throw error;
        done(html`Nothing was decided. This does not wait any more: ${who}. It was taken back, or its time is over.`);
      }
    });
  };

  return html`
    <${Question} heading=${approves ? 'Approve this impersonation?' : 'Deny this impersonation?'} close=${close}>
      <form onSubmit=${submit}>
        <dl class="facts">
          <div><dt>actor</dt><dd><${Named} name=${row.actorId} none="anybody except those who approve" /></dd></div>
          <div><dt>user</dt><dd><${Named} name=${row.userId} /></dd></div>
          <div><dt>client</dt><dd><${Named} name=${row.clientId} none="any" /></dd></div>
          <div><dt>caller</dt><dd><bdi>${row.caller}</bdi></dd></div>
          <div><dt>API</dt><dd><${Named} name=${row.resource} none="any" /></dd></div>
          <div><dt>scope</dt><dd><${Named} name=${row.scope} none="any" /></dd></div>
          <div><dt>asked</dt><dd>${since(row.began, waiting.now)}, ${rest > 0 ? `${left(rest)} left` : 'expired'}</dd></div>
          <div><dt>decisions</dt><dd><${Decisions} row=${row} whole /></dd></div>
          <div><dt>id</dt><dd><code>${row.id}</code></dd></div>
        </dl>
        ${row.context.length > 0 && html`<${Context} entries=${row.context} whole />`}
        <div role="status">
          ${!now && waiting.whole && html`<p class="box warn">This does not wait any more: it is decided, was taken back, or its time is over.</p>`}
        </div>
        ${row.consent === 'needed' && approves && html`
          <p class="muted">If you are <bdi>${row.userId}</bdi>, this is your consent. Nobody else can give it.</p>`}
        <label><span>Reason, for the audit log (you may leave it empty)</span>
          <input name="reason" value=${reason} maxlength=${LONGEST_REASON} autocomplete="off" dir="auto" autofocus
            onInput=${({ target }) => setReason(target.value)} /></label>
        <${Failure} words=${failure} />
        <div class="buttons">
          <button class=${approves ? 'main' : 'main danger'} type="submit" disabled=${sending}>${approves ? 'Approve' : 'Deny'}</button>
          <button type="button" onClick=${close}>Cancel</button>
        </div>
      </form>
    <//>`;
}

/** Says what has become of the request. */
function outcome(who, { state, needed, consent }, { userId }) {
  const missing = [needed > 0 && count(needed, 'approval'), consent === 'needed' && html`the consent of <bdi>${userId}</bdi>`].filter(Boolean);
  return {
    approved: html`Approved: ${who}. The impersonation can begin.`,
    denied: html`Denied: ${who}. The impersonation cannot begin.`,
    pending: html`Your approval counts: ${who}. Still missing: ${missing.length > 1 ? [missing[0], ' and ', missing[1]] : missing}.`,
    exchanged: html`It was approved before: ${who}. The impersonation has begun.`,
  }[state] ?? html`It is ${state}: ${who}.`;
}

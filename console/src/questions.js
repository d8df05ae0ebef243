// The questions before something ends. Each says how many, and tells afterwards what happened.
import { useState } from 'preact/hooks';
import { endMany, endOne } from './api.js';
import { html } from './html.js';
import { MEMBERS } from './live.js';
import { Failure, Question, useSending } from './question.js';
import { Context } from './rows.js';
import { count, counted, left, since } from './words.js';

/** A person must type this before everything ends. */
const WORDS = 'end everything';

const FAILURES = {
  'signed-out': 'Your session is over, and nothing was ended. Sign in again and repeat it.',
  forbidden: 'You may not end impersonations, and nothing was ended. Your access token lacks the scope impersonations:revoke.',
  busy: 'Too many requests: nothing was ended. Try again in a moment.',
  unavailable: 'The store is out of reach: it is not known whether anything was ended. Try again; ending twice does no harm.',
  unreachable: 'There was no answer: it is not known whether anything was ended. Try again; ending twice does no harm.',
};

export function EndOne({ session, live, mayEnd, row, done, leave, forbid, close, ask }) {
  const [send, sending, failure] = useSending(leave, FAILURES, ({ kind }) => kind === 'forbidden' && forbid());
  const who = html`<bdi>${row.actorId ?? 'an unnamed actor'}</bdi> as <bdi>${row.userId}</bdi>`;
  const end = () => send(async () => {
    try {
      await endOne(session.token, row.id);
      done(html`Ended: ${who}.`);
    } catch (error) {
      if (error.kind !== 'gone') throw error;
      done(html`It was over already: ${who}.`);
    }
  });
  const alike = ['actorId', 'userId', 'clientId'].filter((name) => row[name] !== undefined);
  return html`
    <${Question} heading="End this impersonation?" close=${close}>
      <dl class="facts">
        ${Object.entries(MEMBERS).map(([name, words]) => html`<div key=${name}><dt>${words}</dt><dd>${row[name] === undefined ? 'not named' : html`<bdi>${row[name]}</bdi>`}</dd></div>`)}
        <div><dt>scope</dt><dd><bdi>${row.scope}</bdi></dd></div>
        <div><dt>since</dt><dd>${since(row.began, live.now)}, ${row.until > live.now ? `${left(row.until - live.now)} left` : 'expired'}</dd></div>
        <div><dt>id</dt><dd><code>${row.id}</code></dd></div>
      </dl>
      ${row.context.length > 0 && html`<${Context} entries=${row.context} whole />`}
      <${Failure} words=${failure} />
      <div class="buttons">
        <button class="main danger" disabled=${sending || !mayEnd} onClick=${end} autofocus>End 1 impersonation</button>
        <button onClick=${close}>Cancel</button>
      </div>
      <div class="wider">
        <p class="muted">Or more than this one:</p>
        ${alike.map((name) => {
          const number = live.rows.filter((other) => other[name] === row[name]).length;
          return html`<button key=${name} disabled=${!mayEnd} onClick=${() => ask({ members: { [name]: row[name] } })}>End all ${counted(number)} of this ${MEMBERS[name]}…</button>`;
        })}
      </div>
    <//>`;
}

export function EndMany({ session, live, mayEnd, preset, all, done, leave, forbid, close }) {
  const [send, sending, failure] = useSending(leave, FAILURES, ({ kind }) => kind === 'forbidden' && forbid());
  const [members, setMembers] = useState(preset);
  const [typed, setTyped] = useState('');

  const named = Object.entries(members).filter(([, value]) => value !== '');
  const number = live.rows.filter((row) => named.every(([name, value]) => row[name] === value)).length;
  const atLeast = live.complete && live.whole ? '' : 'at least ';
  const ready = all ? typed.trim().toLowerCase() === WORDS : named.length > 0;
  const end = (event) => {
    event.preventDefault();
    if (!ready || sending || !mayEnd) return;
    send(async () => {
      const { ended, revokedBefore, complete } = await endMany(session.token, all ? { all: true } : Object.fromEntries(named));
      const what = all ? 'everybody' : named.map(([name, value], index) => html`${index > 0 && ', '}${MEMBERS[name]} <bdi>${value}</bdi>`);
      const until = `What was issued until ${since(Date.parse(revokedBefore), live.now)} is refused.`;
      done(ended === 0 && !all
        ? html`No live impersonation of ${what} was found. Is the name spelt so? ${until}`
        : html`${complete === false ? 'At least ' : ''}${count(ended)} of ${what} ended. ${until}`);
    });
  };

  return html`
    <${Question} heading=${all ? 'End everything?' : 'End many?'} close=${close}>
      <form onSubmit=${end}>
        ${all ? html`
          <p>This ends <strong>every impersonation of everybody</strong>: ${atLeast}${count(number)} that ${number === 1 ? 'is' : 'are'} live, and
            all subject tokens that are not exchanged yet. Agents can begin again.</p>
          <label><span>To go on, type <strong>${WORDS}</strong></span>
            <input value=${typed} onInput=${({ target }) => setTyped(target.value)} autocomplete="off" autocapitalize="none" spellcheck=${false} autofocus /></label>`
        : html`
          <p>This ends what has all of these names, and subject tokens that are not exchanged yet. Leave empty what does not matter.</p>
          <div class="fields">
            ${Object.entries(MEMBERS).map(([name, words], index) => html`
              <label key=${name}><span>${words[0].toUpperCase()}${words.slice(1)}</span>
                <input name=${name} value=${members[name] ?? ''} maxlength="255" autocomplete="off" autocapitalize="none" spellcheck=${false} dir="auto"
                  autofocus=${index === 0} onInput=${({ target }) => setMembers({ ...members, [name]: target.value })} /></label>`)}
          </div>
          <p role="status">${named.length === 0 ? 'Give at least one name.'
            : number > 0 ? html`<strong>${atLeast}${count(number)}</strong> of ${counted(live.rows.length)} in the list.`
              : 'The list has none of these names. What is not exchanged or not listed ends all the same.'}</p>`}
        <${Failure} words=${failure} />
        <div class="buttons">
          <button class="main danger" type="submit" disabled=${!ready || sending || !mayEnd}>${all ? 'End everything' : number > 0 && named.length > 0 ? `End ${count(number)}` : 'End what matches'}</button>
          <button type="button" onClick=${close}>Cancel</button>
        </div>
      </form>
    <//>`;
}

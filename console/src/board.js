// The lists, what they lack, and the ways to end or decide what they show.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { list, listWaiting } from './api.js';
import { Approvals } from './approvals.js';
import { configuration } from './configuration.js';
import { html } from './html.js';
import { MEMBERS, ORDERS, rowOf, select } from './live.js';
import { Pages } from './pages.js';
import { EndMany, EndOne } from './questions.js';
import { useReading } from './reading.js';
import { Hide, Result, useResult } from './result.js';
import { Rows } from './rows.js';
import { waitingRowOf } from './waiting.js';
import { age, count, counted, since } from './words.js';

const ON_A_PAGE = 50;

export function Board({ session, view, look, leave, enter }) {
  const [, draw] = useState(0);
  const [question, ask] = useState();
  const [mayEnd, setMayEnd] = useState(session.scopes.includes('impersonations:revoke'));
  const [pageNumber, turn] = useState(0);
  const [back, setBack] = useState();
  const result = useResult();
  const missed = useRef();

  const live = useReading(session, list, rowOf);
  const waiting = useReading(session, configuration.approvals && listWaiting, waitingRowOf);
  useEffect(() => {
    const timer = setInterval(() => draw((times) => times + 1), 1_000);
    return () => clearInterval(timer);
  }, []);

  const kind = live.trouble?.kind;
  // A token that one list never accepted may be good for the other.
  const lists = [live, waiting].filter(Boolean);
  const refusals = lists.filter(({ trouble }) => ['signed-out', 'forbidden'].includes(trouble?.kind));
  const unaccepted = refusals.filter(({ trouble }) => trouble.kind === 'signed-out');
  const over = refusals.length === lists.length && (unaccepted.length === lists.length || unaccepted.some(({ asOf }) => asOf !== undefined));
  useEffect(() => {
    const wasAccepted = lists.some(({ asOf }) => asOf !== undefined);
    if (over) leave(wasAccepted ? 'Your session is over. Sign in again to go on: the view stays.' : UNACCEPTED);
    else if (unaccepted.length > 0) lists.forEach((one) => one.again());
  }, [over, unaccepted.length]);
  useEffect(() => {
    if (kind === 'unreachable') missed.current = live.troubleSince;
    if (!kind && missed.current !== undefined) {
      setBack(`Envoy answers again. It did not answer since ${since(missed.current, Date.now())}.`);
      missed.current = undefined;
    }
  }, [kind]);

  const rows = useMemo(() => select(live.rows, view), [live.rows, view]);
  const pages = Math.max(1, Math.ceil(rows.length / ON_A_PAGE));
  const shown = Math.min(pageNumber, pages - 1);
  const filtered = view.search !== '' || Object.keys(view.members).length > 0;

  const done = (words) => {
    ask(undefined);
    setBack(undefined);
    result.say(words);
    live.again();
  };
  const questions = {
    session, live, mayEnd, done, leave,
    close: () => ask(undefined),
    forbid: () => setMayEnd(false),
    ask,
  };

  useEffect(() => {
    const toDecide = waiting?.rows.filter(({ mayDecide }) => mayDecide.length > 0).length;
    const decide = toDecide ? `, ${toDecide} to decide` : '';
    document.title = (live.whole ? `${live.rows.length} live impersonations` : 'Live impersonations') + decide;
  });

  return html`
    ${waiting && html`<${Approvals} session=${session} waiting=${waiting} elsewhere=${kind} leave=${leave} />`}
    ${kind === 'forbidden' || kind === 'signed-out' ? html`<${NotYours} live=${live} enter=${enter} />` : html`
    <section aria-labelledby="list-heading">
      <h2 id="list-heading" class="hidden">The list</h2>
      <${State} live=${live} mayEnd=${mayEnd} again=${() => live.again()} />
      <${Result} result=${result}>
        ${back && !kind && html`<p class="result"><span>${back}</span> <${Hide} hide=${() => setBack(undefined)} /></p>`}
      <//>
      <${Tools} view=${view} look=${(changes) => { turn(0); look(changes); }} found=${filtered && live.asOf !== undefined && rows.length}>
        ${mayEnd && html`
          <button onClick=${() => ask({ members: view.members })}>End many…</button>
          <button class="danger" onClick=${() => ask({ all: true })}>End everything…</button>`}
      <//>
      ${live.asOf === undefined
        ? html`<p class="nothing">${kind ? 'There is no list to show yet.' : 'Reading the list …'}</p>`
        : rows.length > 0
          ? html`<${Rows} rows=${rows.slice(shown * ON_A_PAGE, (shown + 1) * ON_A_PAGE)} first=${shown * ON_A_PAGE} total=${rows.length}
              now=${live.now} end=${mayEnd && ((row) => ask({ row }))} only=${(name, value) => { turn(0); look({ members: { ...view.members, [name]: value } }); }} />`
          : html`<${Nothing} live=${live} filtered=${filtered} all=${() => look({ members: {}, search: '' })} />`}
      <${Pages} label="Pages of the list" number=${shown} size=${ON_A_PAGE} total=${rows.length} turn=${turn} />
    </section>`}
    ${question?.row && html`<${EndOne} ...${questions} row=${question.row} />`}
    ${question && !question.row && html`<${EndMany} ...${questions} key=${JSON.stringify(question)} preset=${question.members ?? {}} all=${question.all} />`}`;
}

/** Why a token that nobody has accepted yet is refused. */
const UNACCEPTED = 'The filter does not accept the access token that the identity gateway gave you. Its issuer, audience or client is not in impersonations.authentication.';

function NotYours({ live, enter }) {
  const { kind, code } = live.trouble;
  const why = kind === 'signed-out' ? UNACCEPTED
    : code === 'insufficient_scope' ? html`Your access token lacks the scope <code>impersonations:read</code>.`
      : 'The filter lets nobody list live impersonations.';
  return html`
    <section class="card">
      <h2>You may not see this list</h2>
      <p>${why}</p>
      <p class="muted">The filter says: <bdi>${live.trouble.description}</bdi></p>
      <p><button class="main" onClick=${() => enter({ prompt: 'login' })}>Sign in as somebody else</button></p>
    </section>`;
}

/** One line for how good the list is, and a box for each thing that is wrong with it. */
function State({ live, mayEnd, again }) {
  const { kind, description } = live.trouble ?? {};
  // The words stay the same while the trouble lasts, because a screen reader says each change.
  const known = live.asOf === undefined ? '' : `What is shown is from ${since(live.asOf, Date.now())}.`;
  const troubles = {
    unreachable: ['Envoy does not answer', `${known} While it is away, nothing can be ended here. The page tries again every few seconds.`],
    unavailable: ['The store is out of reach', `The filter answers, and cannot read its list. ${known} The page tries again every few seconds.`],
    busy: ['Too many requests', `Envoy refuses to read the list so often. ${known} The page tries again more slowly.`],
    gone: ['There is no list here', `Envoy does not lead to the filter at this path. ${known}`],
    unexpected: ['The list could not be read', `The filter says: ${description}. ${known}`],
  };
  const trouble = troubles[kind];
  const { word } = live;
  return html`
    <div class="state">
      <p class="figure"><strong>${live.asOf === undefined ? '–' : counted(live.rows.length)}</strong> live
        ${' '}<span class=${`badge ${word.replaceAll(' ', '-')}`}>${word}</span></p>
      <p class="muted">${live.asOf === undefined ? '' : `Read ${live.stale ? `${age(Date.now() - live.asOf)} ago, ` : ''}at ${since(live.asOf, Date.now())}`}
        ${' '}<button class="quiet" onClick=${again}>Read again</button></p>
    </div>
    <div role="alert">
      ${trouble && html`<p class="box bad"><strong>${trouble[0]}.</strong> ${trouble[1]}</p>`}
      ${!trouble && live.stale && html`<p class="box bad"><strong>The list is stale.</strong> It is more than 10 seconds old, and is being read again.</p>`}
    </div>
    <div role="status">
      ${live.asOf !== undefined && !live.complete && html`
        <p class="box warn"><strong>This is not all.</strong> The list may lack live impersonations, because it had no room for
          them or could not be read to its end. Those can be ended too, by their actor or user.</p>`}
      ${!mayEnd && html`
        <p class="box note"><strong>You may look, but not end.</strong> To end impersonations, the identity gateway must give you the
          scope <code>impersonations:revoke</code>.</p>`}
    </div>`;
}

function Tools({ view, look, found, children }) {
  const named = Object.entries(view.members);
  return html`
    <div class="tools" role="search">
      <label class="search"><span>Search</span>
        <input type="search" value=${view.search} placeholder="Name, ticket, reason, API …" autocomplete="off" spellcheck=${false}
          onInput=${({ target }) => look({ search: target.value })} /></label>
      <label><span>Order</span>
        <select value=${view.order} onChange=${({ target }) => look({ order: target.value })}>
          ${Object.entries(ORDERS).map(([name, { words }]) => html`<option value=${name} selected=${name === view.order}>${words}</option>`)}
        </select></label>
      <div class="ends">${children}</div>
    </div>
    <div class="filters">
      ${named.map(([name, value]) => html`
        <button class="chip" key=${name} aria-label=${`Remove the filter ${MEMBERS[name]} ${value}`}
          onClick=${() => look({ members: Object.fromEntries(named.filter(([other]) => other !== name)) })}>
          ${MEMBERS[name]} <bdi>${value}</bdi> <span aria-hidden="true">×</span></button>`)}
      <span class="muted" role="status">${found !== false && count(found, 'match', 'matches')}</span>
    </div>`;
}

function Nothing({ live, filtered, all }) {
  if (filtered && live.rows.length > 0) {
    return html`
      <div class="nothing">
        <p><strong>Nothing matches.</strong> ${count(live.rows.length)} ${live.rows.length === 1 ? 'is' : 'are'} live.</p>
        <p><button onClick=${all}>Show all</button></p>
      </div>`;
  }
  if (!live.whole) return html`<p class="nothing">Reading the list …</p>`;
  return html`<p class="nothing"><strong>Nobody impersonates anybody.</strong>${live.complete ? '' : ' At least nobody is listed.'}</p>`;
}

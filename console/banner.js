// The banner of a browser session: who acts as whom, if only to read, the time left, and Stop.
//
// The application has one line, `<script type="module" src="/.impersonation/banner.js">`, in the
// pages of everybody: where `me` knows no session, the module does nothing. Attributes of the line:
//
//   data-position="top"   bottom, unless it is there
//   data-acting="{actor} agit au nom de {user}", data-stop="…" and so on: the texts below, in a
//   language that is not among them. They are taken to be in the document's language.
//
// The agent must see the banner on every page, so that nobody takes the user's pages for their own.
// No style of the application reaches it (closed shadow root, important declarations), and the
// module puts it back where a script has removed or covered it. A script that wants to defeat it
// can: that is no limit of security, which is the guard's. No style is inline and no text is ever
// markup, so that `script-src 'self'; style-src 'self'; connect-src 'self'` and trusted types hold.

const ME = '/.impersonation/me';
const END = '/.impersonation/end';
const ASK_MS = 5_000;
const PATIENCE_MS = 10_000;
const SOON_MS = 60_000;

const TEXTS = {
  en: {
    region: 'Impersonation',
    acting: '{actor} acts as {user}',
    readOnly: 'Read-only',
    left: '{time} left',
    soon: 'Less than a minute is left.',
    stop: 'Stop',
    stopping: 'Stopping …',
    failed: 'The session could not be stopped. Try again.',
    unknown: 'No connection: the session may have ended.',
    ended: 'The session as {user} has ended.',
    leave: 'Leave this page',
  },
  de: {
    region: 'Zugriff im Namen eines anderen',
    acting: '{actor} handelt als {user}',
    readOnly: 'Nur lesen',
    left: 'noch {time}',
    soon: 'Es bleibt weniger als eine Minute.',
    stop: 'Beenden',
    stopping: 'Wird beendet …',
    failed: 'Die Sitzung konnte nicht beendet werden. Bitte noch einmal versuchen.',
    unknown: 'Keine Verbindung: Die Sitzung ist vielleicht beendet.',
    ended: 'Die Sitzung als {user} ist beendet.',
    leave: 'Seite verlassen',
  },
};

const { dataset = {} } = [...document.scripts].find(({ src }) => src === import.meta.url) ?? {};
const edge = dataset.position === 'top' ? 'top' : 'bottom';
const { lang } = document.documentElement;
const known = /^de\b/i.test(lang) ? 'de' : 'en';
const texts = { ...TEXTS[known], ...dataset };

/** The first answer of `me`. A session never changes. */
let session;
/** The server's clock relative to this one, in milliseconds. */
let ahead = 0;
let asking = false;
/** The session has ended, for this page at least. */
let over = false;
/** A text about the last answer of `me`, and one about the last Stop. */
let unknown = '';
let failed = '';
let timer;

/** Sends a request. A redirect counts as 302, and no answer as 503. */
async function send(path, method) {
  try {
    const response = await fetch(path, {
      method, cache: 'no-store', redirect: 'manual', signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const text = await response.text();
    return { status: response.status || 302, date: Date.parse(response.headers.get('date')), json: parsed(text) };
  } catch {
    return { status: 503 };
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function ask() {
  if (asking || over) return;
  asking = true;
  const { status, date, json } = await send(ME);
  asking = false;
  if (over) return;
  const id = status === 200 && json?.id;
  if (id && date) ahead = date - Date.now();
  if (!session) {
    if (id) begin(json);
    else if (status < 500 && status !== 429) clearInterval(timer);
  } else if (id ? id !== session.id : [401, 404].includes(status)) {
    leave(session.ended);
  } else {
    unknown = id ? '' : texts.unknown;
    tick();
  }
}

async function stop() {
  if (button.ariaDisabled) return;
  button.ariaDisabled = 'true';
  button.textContent = texts.stopping;
  failed = '';
  const { status, json } = await send(END, 'POST');
  if (over) return;
  if (status === 200 || status === 401) {
    leave(json?.location ?? session.ended);
    return;
  }
  button.ariaDisabled = null;
  button.textContent = texts.stop;
  failed = texts.failed;
  tick();
}

/** Covers the page, and goes to `address`. */
function leave(address) {
  over = true;
  clearInterval(timer);
  link.href = address;
  if (!/^https?:$/.test(link.protocol)) link.href = '/';
  place();
  location.replace(link.href);
}

/** Makes an element of the banner. */
function make(name, members, ...children) {
  const element = Object.assign(document.createElement(name), members);
  element.append(...children);
  return element;
}

/** A text with its values, each isolated from the direction of what surrounds it. */
function filled(text, values) {
  return text.split(/\{(\w+)\}/).map((part, index) => {
    const value = String(values[part]);
    return index % 2 ? make('bdi', { textContent: value, title: value }) : part;
  });
}

const icon = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
icon.setAttribute('viewBox', '0 0 24 24');
icon.ariaHidden = 'true';
const path = icon.appendChild(document.createElementNS(icon.namespaceURI, 'path'));
path.setAttribute('d', 'M9 4a4 4 0 110 8 4 4 0 010-8zm0 10c4 0 7 2 7 4v2H2v-2c0-2 3-4 7-4zm7-10 5 4-5 4V9h-2V7h2zm2 16v-2c0-2-1-3-2-4 3 0 6 2 6 4v2z');
const who = make('p', { className: 'who', dir: 'auto' });
const mark = make('span', { className: 'mark', textContent: texts.readOnly });
const time = make('span', { className: 'time', role: 'timer', dir: 'auto' });
const said = make('p', { className: 'said', role: 'status', dir: 'auto' });
const button = make('button', { type: 'button', textContent: texts.stop, onclick: stop });
const region = make('section', { ariaLabel: texts.region }, icon, who, mark, time, said, button);
const farewell = make('p', { dir: 'auto' });
const link = make('a', { textContent: texts.leave });
const cover = make('dialog', { ariaLabel: texts.region, closedBy: 'none', onclose: () => place() }, farewell, link);

const room = new CSSStyleSheet();
let host;
let shadow;

function begin(first) {
  session = first;
  document.dispatchEvent(new CustomEvent('impersonation', { detail: first }));
  // The page around a frame has the banner, and its session is the same.
  if (self !== top) {
    clearInterval(timer);
    return;
  }
  const values = { actor: first.actorId ?? first.clientId, user: first.userId };
  who.append(...filled(texts.acting, values));
  farewell.append(...filled(texts.ended, values));
  mark.hidden = !first.readOnly;
  region.lang = cover.lang = dataset.acting ? lang : known;

  const style = new CSSStyleSheet();
  style.replaceSync(`${STYLE}:host{${edge}:0!important}`);
  customElements.define('impersonation-banner', class extends HTMLElement {
    // Later, because a script that removes it at once each time must not stop the page.
    disconnectedCallback() {
      setTimeout(place);
    }
  });
  host = document.createElement('impersonation-banner');
  shadow = host.attachShadow({ mode: 'closed' });
  shadow.adoptedStyleSheets = [style];
  shadow.append(region, cover);

  new ResizeObserver(makeRoom).observe(region);
  // A modal dialog makes inert what is outside of it, and what came later covers what was there.
  new MutationObserver(place).observe(document, { subtree: true, attributeFilter: ['open'] });
  document.addEventListener('toggle', (event) => (event.target !== host || event.newState === 'closed') && place(), true);
  document.addEventListener('fullscreenchange', place);
  document.addEventListener('visibilitychange', () => document.hidden || ask());
  addEventListener('pageshow', ask);
  setInterval(tick, 1_000);
  tick();
}

function tick() {
  place();
  const left = Date.parse(session.expiresAt) - Date.now() - ahead;
  const seconds = Math.max(0, Math.floor(left / 1_000));
  const [hours, minutes] = [Math.floor(seconds / 3_600), Math.floor(seconds / 60) % 60];
  const clock = [...(hours ? [hours] : []), minutes, seconds % 60].map((part, index) => (index ? String(part).padStart(2, '0') : part)).join(':');
  time.textContent = texts.left.replace('{time}', clock);
  const words = failed || unknown || (left < SOON_MS ? texts.soon : '');
  // A screen reader says again what is written again.
  if (said.textContent !== words) said.textContent = words;
  if (left <= 0) ask();
  // Nobody answers, so the clock decides.
  if (left < -PATIENCE_MS && unknown && !over) leave(session.ended);
}

/** Puts the banner over everything, where it is not. */
function place() {
  const parent = modal() ?? document.documentElement;
  const focused = shadow.activeElement;
  if (host.parentNode !== parent) parent.append(host);
  if (!isOnTop()) {
    host.popover = 'manual';
    if (host.matches(':popover-open')) host.hidePopover();
    host.showPopover();
    focused?.focus({ preventScroll: true });
  }
  if (over && !cover.open) cover.showModal();
  if (!document.adoptedStyleSheets.includes(room)) document.adoptedStyleSheets.push(room);
}

/** An element that makes inert all that is outside of it, and can have the banner inside. */
const MODAL = ':is(dialog:modal, :fullscreen):not(video, img, canvas, iframe, object, embed)';

/** The modal dialog or full screen of the application that is on top: it has the focus. */
function modal() {
  let element = document.activeElement;
  while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  for (; element; element = element.parentElement ?? element.getRootNode().host) {
    if (element.matches(MODAL) && element !== cover) return element;
  }
  return [...document.querySelectorAll(MODAL)].at(-1);
}

function isOnTop() {
  const { left, top, width, height } = host.getBoundingClientRect();
  return host.matches(':popover-open') && host.getRootNode().elementFromPoint(left + width / 2, top + height / 2) === host;
}

/** Keeps free what the banner covers: of the page, of a full screen, of a modal dialog. */
function makeRoom() {
  const height = `${host.offsetHeight}px`;
  room.replaceSync(`
    :root{--impersonation-banner:${height};box-sizing:border-box!important;padding-${edge}:${height}!important;scroll-padding-${edge}:${height}!important}
    :where(:fullscreen){padding-${edge}:${height}}
    :where(dialog:modal){${edge}:${height};max-height:calc(100% - 6px - 2em - ${height})}`);
}

timer = setInterval(ask, ASK_MS);
ask();

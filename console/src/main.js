// The page: who is signed in, and what they look at.
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Board } from './board.js';
import { ADDRESS, configuration } from './configuration.js';
import { html } from './html.js';
import { answer, signIn, SignInFailed } from './sign-in.js';
import { hashOf, viewOf } from './view.js';

/** `signedOut` says in words why nobody is signed in. */
function Page() {
  const [session, setSession] = useState();
  const [signedOut, setSignedOut] = useState();
  const [busy, setBusy] = useState('Signing in …');
  const [view, setView] = useState(() => viewOf(location.hash));

  useEffect(() => {
    answer().then(setSession, (error) => setSignedOut(wordsOf(error))).finally(() => {
      setView(viewOf(location.hash));
      setBusy(undefined);
    });
    const read = () => setView(viewOf(location.hash));
    addEventListener('hashchange', read);
    return () => removeEventListener('hashchange', read);
  }, []);

  const look = (changes) => {
    const changed = { ...view, ...changes };
    setView(changed);
    history.replaceState(null, '', ADDRESS + hashOf(changed));
  };
  const enter = (options) => {
    setBusy('Going to the identity gateway …');
    signIn(options).catch((error) => {
      setSignedOut(wordsOf(error));
      setSession(undefined);
      setBusy(undefined);
    });
  };
  const leave = (why) => {
    setSession(undefined);
    setSignedOut(why);
  };

  return html`
    <header>
      <h1>Live impersonations</h1>
      ${session && html`
        <p class="person">
          ${session.person && html`<span>Signed in as <bdi>${session.person}</bdi></span>`}
          <button class="quiet" onClick=${() => leave('You have signed out of this page. The identity gateway may still know you.')}>Sign out</button>
        </p>`}
    </header>
    <main>
      ${session && !busy
        ? html`<${Board} session=${session} view=${view} look=${look} leave=${leave} enter=${enter} />`
        : html`<${Entrance} why=${signedOut} busy=${busy} enter=${enter} />`}
    </main>`;
}

function Entrance({ why, busy, enter }) {
  return html`
    <section class="card">
      <h2>${busy ? busy : 'Signed out'}</h2>
      ${!busy && html`
        <div role="status">${why && html`<p><strong>${why}</strong></p>`}</div>
        <p>Sign in to see who acts as whom at this moment, and to end it${configuration.approvals && ', or to decide what waits for approval'}.</p>
        <p><button class="main" onClick=${() => enter()}>Sign in</button></p>`}
    </section>`;
}

function wordsOf(error) {
  return error instanceof SignInFailed ? error.message : `The sign-in failed: ${error.message}`;
}

render(html`<${Page} />`, document.getElementById('page'));

// What became of the last decision, in words. The focus goes there, because the button that was
// pressed is perhaps gone with its row.
import { useRef, useState } from 'preact/hooks';
import { html } from './html.js';

export function useResult() {
  const [words, setWords] = useState();
  const element = useRef();
  const say = (said) => {
    setWords(said);
    setTimeout(() => element.current?.focus());
  };
  return { words, say, element, hide: () => setWords(undefined) };
}

export function Result({ result: { words, element, hide }, children }) {
  return html`
    <div role="status" class="results">
      ${words && html`
        <p class="result" tabindex="-1" ref=${element}>
          <span>${words}</span> <${Hide} hide=${hide} />
        </p>`}
      ${children}
    </div>`;
}

export function Hide({ hide }) {
  return html`<button class="quiet" onClick=${hide} aria-label="Hide this message">Hide</button>`;
}

// A question, and the request that follows when it is answered.
import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from './html.js';

/** A dialog of the browser: it keeps the focus inside, and gives it back. */
export function Question({ heading, close, children }) {
  const element = useRef();
  useEffect(() => element.current.showModal(), []);
  return html`
    <dialog ref=${element} onClose=${close} aria-labelledby="question">
      <h2 id="question">${heading}</h2>
      ${children}
    </dialog>`;
}

/**
 * Sends, and says in words why it failed. Nothing is hidden: whoever reads must know what to do.
 * `words` has those for each kind of failure; `noticed` is told of each.
 */
export function useSending(leave, words, noticed) {
  const [sending, setSending] = useState(false);
  const [failure, setFailure] = useState();
  const send = async (work) => {
    setSending(true);
    setFailure(undefined);
    try {
      await work();
    } catch (error) {
      const { kind } = error;
      if (kind === 'signed-out') return leave(words[kind]);
      noticed(error);
      setFailure(typeof words[kind] === 'function' ? words[kind](error) : words[kind] ?? `Nothing has changed. The filter says: ${error.message}`);
      setSending(false);
    }
    return undefined;
  };
  return [send, sending, failure];
}

export const Failure = ({ words }) => html`<div role="alert">${words && html`<p class="box bad">${words}</p>`}</div>`;

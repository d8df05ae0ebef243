// The way through a list that is longer than a page.
import { html } from './html.js';
import { counted } from './words.js';

export function Pages({ label, number, size, total, turn }) {
  if (total <= size) return null;
  const end = Math.min(total, (number + 1) * size);
  return html`
    <nav aria-label=${label}>
      <button disabled=${number === 0} onClick=${() => turn(number - 1)}>Previous</button>
      <span>${counted(number * size + 1)} to ${counted(end)} of ${counted(total)}</span>
      <button disabled=${end === total} onClick=${() => turn(number + 1)}>Next</button>
    </nav>`;
}

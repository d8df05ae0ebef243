// Everything that the page shows goes through here: as text, never as markup.
import { h } from 'preact';
import htm from 'htm';

export const html = htm.bind(h);

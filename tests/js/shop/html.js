// The pages of shop and console: all text goes through `html`, which lets no value be markup.
const SPECIAL = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const escaped = (text) => String(text).replaceAll(/[&<>"']/g, (one) => SPECIAL[one]);

/** Markup that was made here. */
class Markup extends String {}

export function html(parts, ...values) {
  const inside = (value) => (value instanceof Markup ? value : Array.isArray(value) ? value.map(inside).join('') : escaped(value ?? ''));
  return new Markup(parts.reduce((before, part, index) => before + inside(values[index - 1]) + part));
}

/** Answers with a page. `forms` are the addresses to which its forms may go. */
export function sendPage(response, title, body, { status = 200, head = '', forms = "'self'" } = {}) {
  const page = html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${title}</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/style.css">
${head}</head>
<body>${body}</body></html>
`;
  response.writeHead(status, {
    'content-type': 'text/html; charset=utf-8',
    'cache-control': 'no-store',
    'content-security-policy': `default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action ${forms}; base-uri 'none'; frame-ancestors 'none'`,
  });
  response.end(String(page));
}

export async function bytesOf(request, limit = 1_000_000) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > limit) throw new Error('the body is too long');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

export const formOf = async (request) => new URLSearchParams((await bytesOf(request)).toString());

export function cookieOf(request, name) {
  return new RegExp(`(?:^|; *)${name}=([\\w-]+)`).exec(request.headers.cookie ?? '')?.[1];
}

export function redirect(response, location, headers = {}) {
  response.writeHead(303, { location, ...headers }).end();
}

/** Answers requests by `METHOD /path`. A handler that fails is a page, too. */
export function routed(routes) {
  return (request, response) => {
    const url = new URL(request.url, 'http://host');
    const handler = routes[`${request.method} ${url.pathname}`];
    const answer = async () => (handler ? handler(request, response, url) : sendPage(response, 'Not found', html`<h1>Not found</h1>`, { status: 404 }));
    answer().catch((error) => {
      console.error(error);
      if (!response.headersSent) sendPage(response, 'Failed', html`<h1>That did not work</h1><p>${error.message}</p>`, { status: 500 });
    });
  };
}

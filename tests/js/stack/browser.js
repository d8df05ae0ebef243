// The part of a browser that a scripted sign-in needs: it follows redirects, carries cookies, and
// submits forms.

/**
 * Opens `url` and follows redirects to the client's redirect URI, which it returns with its
 * parameters. On the way it fills each form with those of `fields` that the form has. Without
 * `fields` a page ends the sign-in. `cookies` are those of one browser, from one call to the next.
 */
export async function followTo(redirectUri, url, fields, cookies = new Map()) {
  let body;
  for (let hops = 0; hops < 20; hops += 1) {
    const response = await fetch(url, {
      method: body ? 'POST' : 'GET',
      body,
      redirect: 'manual',
      headers: { accept: 'text/html', cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
    });
    const page = await response.text();
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      cookies.set(name, value);
    }
    const location = response.headers.get('location');
    const form = location === null && fields && response.status === 200 ? formOf(page) : undefined;
    if (location === null && form === undefined) {
      throw new Error(`the sign-in stopped at ${url}: ${response.status} ${page}`);
    }
    const filled = form?.names.filter((name) => name in fields).map((name) => [name, fields[name]]);
    body = form && new URLSearchParams([...form.hidden, ...filled]);
    url = new URL(location ?? form.action, url);
    if (`${url.origin}${url.pathname}` === redirectUri) return url;
  }
  throw new Error(`the sign-in did not end at ${redirectUri}`);
}

/** The first form of a page that is sent with POST. */
function formOf(page) {
  const [, attributes, inside] = /<form\b([^>]*\bmethod="post"[^>]*)>([^]*?)<\/form>/i.exec(page) ?? [];
  if (attributes === undefined) return undefined;
  const tags = [...inside.matchAll(/<(?:input|button)\b([^>]*)>/gi)].map(([, tag]) => tag);
  const hidden = tags.filter((tag) => attribute(tag, 'type') === 'hidden');
  return {
    action: attribute(attributes, 'action') ?? '',
    names: [...new Set(tags.map((tag) => attribute(tag, 'name')))],
    hidden: hidden.map((tag) => [attribute(tag, 'name'), attribute(tag, 'value') ?? '']),
  };
}

function attribute(tag, name) {
  const value = new RegExp(`(?:^|\\s)${name}="([^"]*)"`, 'i').exec(tag)?.[1];
  return value?.replaceAll('&#34;', '"').replaceAll('&#39;', "'").replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&');
}

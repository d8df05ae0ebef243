// Builds the page: build.js [<folder>], which is target/console unless it is named. The module
// answers with one document: script and style stand in it, so that a page of one release can never
// load a part of another's.
//
//   page.html   all of the document but its end, which is the configuration
//   page.gz     the same, as the beginning of a gzip file that more can be appended to
//   page.json   how to append to it, and the header fields of the answer
//   packages.json   the npm packages in it, for the SBOM
//   banner.js   the banner of browser sessions, which is a script of its own
//   banner.gz   the same, as a whole gzip file
//
// The same sources give the same bytes on each machine: the compressor is a pinned package, because
// Node's own differs from version to version.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { gzip } from 'pako';
import { finish, start } from './document.js';

const SOURCE = new URL('src/', import.meta.url);
const TARGET = process.argv[2] ? pathToFileURL(`${resolve(process.argv[2])}/`) : new URL('../target/console/', import.meta.url);
const LIMIT = 45_000;
const LIMIT_OF_BANNER = 4_096;
const BROWSERS = ['es2023', 'chrome120', 'firefox125', 'safari17.4'];

const { outputFiles, metafile } = await build({
  entryPoints: ['main.js', 'page.css'].map((name) => fileURLToPath(new URL(name, SOURCE))),
  bundle: true,
  minify: true,
  format: 'esm',
  target: BROWSERS,
  legalComments: 'none',
  banner: { js: '/* With preact and oauth4webapi (MIT), and htm (Apache-2.0): see the release\'s list of components. */' },
  outdir: fileURLToPath(TARGET),
  write: false,
  metafile: true,
});
const [script, style] = ['main.js', 'page.css'].map((name) => outputFiles.find(({ path }) => path.endsWith(`/${name}`)).text.trim());
const html = readFileSync(new URL('page.html', SOURCE), 'utf8')
  .replace('/*style*/', () => style)
  .replace('/*script*/', () => script);

const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
];
const begun = start(html);
const manifest = {
  // For the end of the gzip file: checksum and length of page.html.
  crc32: begun.crc32,
  length: Buffer.byteLength(html),
  headers: {
    'content-type': 'text/html; charset=utf-8',
    'cache-control': 'no-store',
    'content-security-policy': policy.join('; '),
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
  },
};
const packages = Object.keys(metafile.inputs).flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []);
mkdirSync(TARGET, { recursive: true });
writeFileSync(new URL('page.html', TARGET), html);
writeFileSync(new URL('page.gz', TARGET), begun.gzip);
writeFileSync(new URL('page.json', TARGET), `${JSON.stringify(manifest)}\n`);
writeFileSync(new URL('packages.json', TARGET), `${JSON.stringify([...new Set(packages)].sort())}\n`);

const whole = finish(begun.gzip, manifest, {}).length;
console.log(`script ${script.length} bytes, style ${style.length}, document ${manifest.length}; in the module ${begun.gzip.length}, over the wire ${whole} and the configuration`);
if (whole > LIMIT) throw new Error(`the page has more than ${LIMIT} bytes in gzip`);

// The banner has its style inside, as a text.
const own = (name) => fileURLToPath(new URL(name, import.meta.url));
const { outputFiles: [{ text: bannerStyle }] } = await build({
  entryPoints: [own('banner.css')], minify: true, target: BROWSERS, write: false,
});
const { outputFiles: [{ text: banner }] } = await build({
  entryPoints: [own('banner.js')],
  define: { STYLE: JSON.stringify(bannerStyle.trim()) },
  minify: true,
  format: 'esm',
  target: BROWSERS,
  write: false,
});
const packed = gzip(banner, { level: 9 });
writeFileSync(new URL('banner.js', TARGET), banner);
writeFileSync(new URL('banner.gz', TARGET), packed);
console.log(`banner ${banner.length} bytes, in the module and over the wire ${packed.length}`);
if (packed.length > LIMIT_OF_BANNER) throw new Error(`the banner has more than ${LIMIT_OF_BANNER} bytes in gzip`);

// How the page's document is put together from what `build.js` makes. The module does the same.
//
// A gzip file (RFC 1952) is a header, blocks of deflate (RFC 1951), the checksum and the length.
// The build compresses what never changes, and ends with a flush: the file then stands at a whole
// byte. The configuration follows as one block that is stored, not compressed. So nothing is
// compressed or decompressed when the page is asked for.
import { Deflate, Z_SYNC_FLUSH } from 'pako';

/** Returns the beginning of a gzip file, and the checksum of `html`. */
export function start(html) {
  const bytes = Buffer.from(html);
  const deflate = new Deflate({ level: 9, raw: true });
  const parts = [];
  deflate.onData = (part) => parts.push(Buffer.from(part));
  deflate.push(bytes, Z_SYNC_FLUSH);
  const header = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);
  return { gzip: Buffer.concat([header, ...parts]), crc32: crc32(bytes) };
}

/** Returns the end of the document. No `<` of a value can end the element. */
export function end(configuration) {
  const json = JSON.stringify(configuration).replaceAll('<', '\\u003c');
  return `<script type="application/json" id="configuration">${json}</script>\n`;
}

/** Returns the whole gzip file. */
export function finish(gzip, { crc32: before, length }, configuration) {
  const tail = Buffer.from(end(configuration));
  const block = Buffer.alloc(5);
  block.writeUInt8(1, 0); // the last block, stored
  block.writeUInt16LE(tail.length, 1);
  block.writeUInt16LE(~tail.length & 0xffff, 3);
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(crc32(tail, before), 0);
  trailer.writeUInt32LE(length + tail.length, 4);
  return Buffer.concat([gzip, block, tail, trailer]);
}

/** CRC-32 of `bytes`, after bytes whose checksum is `before`. */
function crc32(bytes, before = 0) {
  let crc = ~before;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

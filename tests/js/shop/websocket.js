// The few lines of RFC 6455 that a chat needs: short texts, a close. The shop has no dependency, so
// that an image for it is Node.js and this folder.
import { createHash } from 'node:crypto';

const MAGIC = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** Accepts a handshake. `answer` makes an answer of each text. */
export function acceptWebSocket(request, socket, answer) {
  const accept = createHash('sha1').update(request.headers['sec-websocket-key'] + MAGIC).digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
  let waiting = Buffer.alloc(0);
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk) => {
    waiting = Buffer.concat([waiting, chunk]);
    for (let frame = frameIn(waiting); frame; frame = frameIn(waiting)) {
      waiting = waiting.subarray(frame.length);
      if (frame.opcode === 1) socket.write(frameOf(1, Buffer.from(answer(frame.payload.toString()))));
      else if (frame.opcode === 8 || !frame.short) socket.end(frameOf(8, Buffer.alloc(0)));
    }
  });
}

/** The first frame, if all of it is there. A browser masks its frames. */
function frameIn(bytes) {
  if (bytes.length < 6) return undefined;
  const size = bytes[1] & 0x7f;
  if (size > 125) return { length: bytes.length, short: false };
  if (bytes.length < 6 + size) return undefined;
  const mask = bytes.subarray(2, 6);
  const payload = bytes.subarray(6, 6 + size).map((byte, index) => byte ^ mask[index % 4]);
  return { opcode: bytes[0] & 0xf, payload: Buffer.from(payload), length: 6 + size, short: true };
}

/** A frame with at most 125 bytes. */
function frameOf(opcode, payload) {
  const cut = payload.subarray(0, 125);
  return Buffer.concat([Buffer.from([0x80 | opcode, cut.length]), cut]);
}

// The shop's script in the browser: the parcel's way, the chat, and analytics.
const byId = (id) => document.getElementById(id);

new EventSource('/ticker').addEventListener('message', ({ data }) => {
  byId('ticker').textContent = JSON.parse(data).minutes;
});

const socket = new WebSocket(`${location.protocol.replace('http', 'ws')}//${location.host}/chat`);
socket.addEventListener('message', ({ data }) => {
  byId('said').append(Object.assign(document.createElement('li'), { textContent: data }));
});
const { send } = byId('chat').elements;
socket.addEventListener('open', () => {
  send.disabled = false;
});
socket.addEventListener('close', () => {
  send.disabled = true;
  byId('said').append(Object.assign(document.createElement('li'), { textContent: 'The chat is closed.' }));
});
byId('chat').addEventListener('submit', (event) => {
  event.preventDefault();
  const { text } = event.target.elements;
  if (text.value) socket.send(text.value);
  text.value = '';
});

// The banner says that an agent is here, and then nothing is measured.
let measured = true;
document.addEventListener('impersonation', () => {
  measured = false;
});
addEventListener('pagehide', () => measured && navigator.sendBeacon('/visits'));

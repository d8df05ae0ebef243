// Draws the dashboard as an SVG, from what Prometheus answers to its panels: for
// docs/operations.md. It is a drawing of our own with Grafana's layout, names, colours of
// thresholds and queries, not a picture of Grafana. Panels that ask Loki are left out.
const WIDTH = 1200;
const COLUMN = WIDTH / 24;
const UNIT = 28;
const GAP = 8;
const COLOURS = ['#3f6fb5', '#c4622d', '#3d8a57', '#8b5aa8', '#b39020', '#b23a48', '#4a8f9c', '#7a6a58', '#5b6b8c', '#9c4a7f'];
const TEXT = '#1c2430';
const MUTED = '#566273';

const escaped = (text) => String(text).replace(/[&<>"]/g, (found) => `&#${found.charCodeAt(0)};`);

function text(x, y, words, { size = 12, colour = TEXT, anchor = 'start', weight = 400 } = {}) {
  return `<text x="${x}" y="${y}" font-size="${size}" fill="${colour}" text-anchor="${anchor}" font-weight="${weight}">${escaped(words)}</text>`;
}

/** A value in Grafana's unit. */
function written(value, unit) {
  if (!Number.isFinite(value)) return '–';
  const short = (number) => (Math.abs(number) >= 1000 ? `${(number / 1000).toPrecision(3)} K` : Number(number.toPrecision(3)).toString());
  switch (unit) {
    case 'percentunit': return `${short(value * 100)} %`;
    case 'reqps': return `${short(value)} req/s`;
    case 's': return value >= 120 ? `${short(value / 60)} min` : `${short(value)} s`;
    case 'µs': return value >= 1000 ? `${short(value / 1000)} ms` : `${short(value)} µs`;
    default: return short(value);
  }
}

function stat({ title, fieldConfig: { defaults } }, [[series]], { x, y, width, height }) {
  const value = Number(series?.values.at(-1)[1]);
  const step = defaults.thresholds.steps.findLast((one) => one.value === null || value >= one.value);
  const colour = { green: '#1d6b3e', orange: '#9a5b00', red: '#a3211d', blue: '#2f5597' }[step.color];
  const mapped = defaults.mappings?.[0].options[value]?.text;
  return [
    text(x + width / 2, y + 22, title, { size: 12, colour: MUTED, anchor: 'middle' }),
    text(x + width / 2, y + height / 2 + 24, mapped ?? written(defaults.decimals === 0 ? Math.round(value) : value, defaults.unit), { size: 28, colour, anchor: 'middle', weight: 600 }),
  ];
}

function timeseries({ title, targets, fieldConfig: { defaults } }, answers, { x, y, width, height }, { from, to }) {
  const lines = answers.flatMap((series, index) => series.map(({ metric, values }) => ({
    name: (targets[index].legendFormat ?? '').replace(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? ''),
    points: values.map(([time, value]) => [time, Number(value)]).filter(([, value]) => Number.isFinite(value)),
  }))).filter(({ points }) => points.length > 0);
  const busiest = lines.toSorted((a, b) => Math.max(...b.points.map(([, value]) => value)) - Math.max(...a.points.map(([, value]) => value)));
  const shown = busiest.slice(0, 6);
  const rest = busiest.length - shown.length;
  // What is a hundred times larger than the rest, such as a capacity, is named and not drawn.
  const tops = shown.map(({ points }) => Math.max(...points.map(([, value]) => value)));
  const drawn = shown.filter((_, index) => index > 0 || tops.length === 1 || tops[0] <= 100 * Math.max(...tops.slice(1)) || tops[1] === 0);
  const top = Math.max(...drawn.flatMap(({ points }) => points.map(([, value]) => value)), 0) * 1.1 || 1;
  const rows = Math.ceil((shown.length + (rest > 0)) / 2);
  const [left, right, above, below] = [x + 64, x + width - 12, y + 34, y + height - 30 - 15 * rows];
  const at = ([time, value]) => `${(left + ((time - from) / (to - from)) * (right - left)).toFixed(1)},${(below - (value / top) * (below - above)).toFixed(1)}`;
  const clock = (time) => new Date(time * 1000).toISOString().slice(11, 19);
  const grid = [0, 0.5, 1].flatMap((part) => {
    const height_ = below - part * (below - above);
    return [
      `<line x1="${left}" x2="${right}" y1="${height_}" y2="${height_}" stroke="#dde1e7"/>`,
      text(left - 6, height_ + 4, written(part * top, defaults.unit), { size: 10, colour: MUTED, anchor: 'end' }),
    ];
  });
  const times = [[from, 'start'], [(from + to) / 2, 'middle'], [to, 'end']].map(([time, anchor]) => text(left + ((time - from) / (to - from)) * (right - left), below + 14, clock(time), { size: 10, colour: MUTED, anchor }));
  const curves = drawn.map(({ points }) => `<polyline fill="none" stroke-width="1.6" stroke="${COLOURS[shown.findIndex((one) => one.points === points)]}" points="${points.map(at).join(' ')}"/>`);
  const legend = [...shown.map(({ name, points }) => [name, drawn.some((one) => one.points === points) ? undefined : points.at(-1)[1]]), ...rest > 0 ? [[`and ${rest} more`]] : []].flatMap(([name, value], index) => {
    const [column, row] = [index % 2, Math.floor(index / 2)];
    const [keyX, keyY] = [x + 12 + column * (width / 2 - 6), below + 32 + row * 15];
    const room = Math.floor((width / 2 - 30) / 5.4);
    const words = value === undefined ? name : `${name}: ${written(value, defaults.unit)}`;
    return [
      ...index < shown.length ? [`<rect x="${keyX}" y="${keyY - 8}" width="10" height="3" fill="${COLOURS[index]}"/>`] : [],
      text(keyX + 15, keyY - 3, words.length > room ? `${words.slice(0, room - 1)}…` : words, { size: 10 }),
    ];
  });
  return [text(x + 12, y + 22, title, { weight: 600 }), ...grid, ...times, ...curves, ...legend];
}

/**
 * Returns the SVG. `range` answers a query of Prometheus with its series between two times, in
 * seconds. `interval` takes the place of Grafana's rate interval.
 */
export async function draw({ panels }, range, { from, to, interval }) {
  const parts = [];
  const known = panels.filter(({ type, datasource }) => type === 'row' || datasource.type === 'prometheus');
  // A row whose panels are all left out is left out, too.
  const kept = known.filter(({ type }, index) => type !== 'row' || (known[index + 1] && known[index + 1].type !== 'row'));
  let bottom = 0;
  for (const panel of kept) {
    const { gridPos: { x, y, w, h } } = panel;
    const place = { x: x * COLUMN + GAP / 2, y: y * UNIT + GAP / 2, width: w * COLUMN - GAP, height: h * UNIT - GAP };
    bottom = Math.max(bottom, (y + h) * UNIT);
    if (panel.type === 'row') {
      parts.push(text(place.x + 4, place.y + 17, panel.title, { size: 13, weight: 600 }));
      continue;
    }
    const answers = [];
    for (const { expr } of panel.targets) {
      const asked = expr.replaceAll('$instance', '.*').replaceAll('$__rate_interval', interval).replaceAll('$__range', `${Math.round(to - from)}s`);
      answers.push(await range(asked, from, to));
    }
    parts.push(`<rect x="${place.x}" y="${place.y}" width="${place.width}" height="${place.height}" rx="5" fill="#fff" stroke="#dde1e7"/>`);
    parts.push(...(panel.type === 'timeseries' ? timeseries : stat)(panel, answers, place, { from, to }));
  }
  const style = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, sans-serif" font-variant-numeric="tabular-nums"';
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${bottom + GAP}" width="${WIDTH}" height="${bottom + GAP}" ${style}>\n<rect width="100%" height="100%" fill="#f6f7f9"/>\n${parts.join('\n')}\n</svg>\n`;
}

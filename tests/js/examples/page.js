// The parts of docs/integrate.md that are made from the examples and from rules.js.
import { readFileSync } from 'node:fs';
import { ROOT } from '../stack/envoy.js';
import { QUESTIONS, RULES } from './rules.js';

const JAVA = 'java/src/main/java';

/** Each block of the page: the file, and a text in the first line of each piece. */
const BLOCKS = {
  decide: [
    ['node/backend.js', 'function decide'], ['python/backend.py', 'def decide'],
    [`${JAVA}/backend/Impersonations.java`, 'decide(String'], ['go/backend/main.go', 'func decide'],
  ],
  mint: [
    ['node/backend.js', "app.post('/impersonations'"], ['python/backend.py', 'def mint'],
    [`${JAVA}/backend/Impersonations.java`, '> mint('], ['go/backend/main.go', 'func mint'],
  ],
  machine: [
    ['node/backend.js', 'function machineToken'], ['python/backend.py', 'def machine_token'],
    [`${JAVA}/backend/Backend.java`, 'RestClient filter('], ['go/backend/main.go', 'var machine ='],
  ],
  begin: [['console/console.js', 'async function begin']],
  wait: [['console/console.js', "if (approval === 'pending')"]],
  call: [['console/console.js', 'async function call']],
  open: [['console/console.js', 'function open(']],
  verify: [
    ['node/api.js', 'app.use(auth('], ['python/tokens.py', 'def verified'],
    [`${JAVA}/tokens/AccessTokens.java`, 'JwtDecoder of('], ['go/tokens/tokens.go', 'func Verifier'],
  ],
  people: [
    ['node/api.js', 'function people'], ['python/api.py', 'def people'],
    [`${JAVA}/api/People.java`, 'People of('], ['go/api/main.go', 'func peopleOf'],
  ],
  refuse: [
    ['node/api.js', 'function notForSomebodyElse'], ['python/api.py', 'def not_for_somebody_else'],
    [`${JAVA}/api/Account.java`, 'void notForSomebodyElse'], ['go/api/main.go', 'func notForSomebodyElse'],
  ],
  page: [['page/index.html', 'src="page.js"', 'banner.js"']],
  who: [['page/page.js', 'const { user, actor }', "byId('who')", "byId('password')"]],
};
const NAMES = { node: 'Node.js', python: 'Python', java: 'Java', go: 'Go' };

/** Returns the page with everything in it that is made. */
export function made(page) {
  const table = ['| | question | the attack that it prevents | the rules that the tests hold |', '|---|---|---|---|', ...QUESTIONS.map(([who, question, attack], index) => (
    `| ${index + 1} | **${who}** ${question} | ${attack} | ${RULES.filter(([number]) => number === index + 1).map(([, rule]) => rule).join('; ')} |`
  ))].join('\n');
  return page
    .replace(/(<!-- the ten questions -->\n)[^]*?(<!-- end of the ten questions -->)/, (_, begin, end) => `${begin}\n${table}\n\n${end}`)
    .replace(/(<!-- examples: (\w+) -->\n)(?:[^]*?<!-- end of the examples -->\n)?/g, (_, mark, name) => `${mark}\n${block(name)}\n<!-- end of the examples -->\n`);
}

function block(name) {
  const pieces = BLOCKS[name].map(([file, ...starts]) => {
    const lines = readFileSync(`${ROOT}examples/${file}`, 'utf8').split('\n');
    const text = starts.map((start) => piece(file, lines, start)).join('\n');
    return { file, code: `\`\`\`${file.split('.').at(-1)}\n${text}\n\`\`\`\n` };
  });
  if (pieces.length === 1) return pieces[0].code;
  return pieces.map(({ file, code }, index) => (
    `<details${index ? '' : ' open'}><summary>${NAMES[file.split('/')[0]]}: <a href="../examples/${file}">${file}</a></summary>\n\n${code}\n</details>\n`
  )).join('');
}

/** The statement that begins in the line with `start`, with the comment and the marks above it. */
function piece(file, lines, start) {
  const found = lines.flatMap((line, index) => (line.includes(start) ? [index] : []));
  if (found.length !== 1) throw new Error(`${file} has ${found.length} lines with ${start}`);
  const [at] = found;
  const indent = /^\s*/.exec(lines[at])[0];
  const isDeeper = (line) => line === '' || line.startsWith(`${indent} `) || line.startsWith(`${indent}\t`);
  let first = at;
  while (new RegExp(`^${indent}(/\\*\\*|//|\\*|@|#)`).test(lines[first - 1] ?? '')) first -= 1;
  let last = at;
  while (last + 1 < lines.length && isDeeper(lines[last + 1])) last += 1;
  if (last > at && new RegExp(`^${indent}[})\\]]`).test(lines[last + 1] ?? '')) {
    last += 1;
    while (/^\s*\}\)?.*[({]$/.test(lines[last])) do last += 1; while (isDeeper(lines[last + 1] ?? 'x')); // a call goes on
  }
  return lines.slice(first, last + 1).map((line) => line.slice(indent.length)).join('\n').trimEnd();
}

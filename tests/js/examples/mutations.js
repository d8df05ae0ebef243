// Takes the lines of each rule out of the examples, one after the other, and fails unless the rule
// notices. Not a part of the tests:
//
//   node mutations.js [language]...
import { readFileSync, writeFileSync } from 'node:fs';
import { withoutActors } from '../stack/envoy.js';
import { stopAll } from '../stack/process.js';
import { startAgent, startPeople } from './people.js';
import { RULES } from './rules.js';
import { freeStackPorts, startParts, startStack } from './world.js';

/** [file, lines, what stands in their place, the beginning of the rule that must fail]. */
const CLIENT_AND_PAGE = [
  ['console/console.js', ', { ...options, DPoP: key });\n  const', ', options);\n  const', 'the access token is bound'],
  ['console/console.js', "generateKeyPair('ES256')", "generateKeyPair('ES256', { extractable: true })", 'the access token is bound'],
  ['console/console.js', '  acting = { id, token };', "  acting = { id, token };\n  sessionStorage.setItem('token', token);", 'no token is in storage'],
  ['console/console.js', "  sessionStorage.removeItem('sign-in');", '', 'no token is in storage'],
  ['console/console.js', "  history.replaceState(null, '', '/');", '', 'no token is in storage'],
  ['console/console.js', 'state ?? oauth.expectNoState', 'oauth.skipStateCheck', 'the client finishes only'],
  ['console/console.js', 'await pause(1_000)', 'break', 'the client waits'],
  ['console/console.js', '    else await begin(id, userId, exchange);', '    else await begin(id, userId, exchange).catch(() => begin(id, userId, exchange));', 'the client says that a token was used'],
  ['console/console.js', "  return say(response.ok ? '' : `The API refused: ${response.status}`);", '', 'the client says that a write'],
  ['console/console.js', "  if (response.status === 401) return forget('The impersonation has ended.');", '', 'at an end in the middle'],
  ['console/console.js', "  byId('answer').textContent = '';\n  say(why)", '  say(why)', 'at an end in the middle'],
  ['console/console.js', '  await oauth.processRevocationResponse(', '  if (0) await oauth.processRevocationResponse(', 'Stop ends'],
  ['page/index.html', '<script type="module" src="/.impersonation/banner.js"></script>', '', 'the page says'],
  ['page/index.html', '<script type="module" src="/.impersonation/banner.js"></script>', '', 'when the session ends'],
  ['page/page.js', 'actor ? `This is', 'false ? `This is', 'the page says'],
  ['page/page.js', '= Boolean(actor)', '= false', 'the page says'],
  ['page/page.js', "  document.documentElement.dataset.measured = 'no';", '', 'the page says'],
];

const LANGUAGES = {
  node: [
    ...CLIENT_AND_PAGE,
    ['node/backend.js', 'audience: AUDIENCE, strict', "audience: [AUDIENCE, API.replace('orders', 'invoices')], strict", 'the backend takes only'],
    ['node/backend.js', 'audience: AUDIENCE, strict: true', 'audience: AUDIENCE', 'the backend takes only'],
    ['node/backend.js', '!AGENTS.includes(agent) || ', '', 'an agent who may not'],
    ['node/backend.js', ' || !ticketId || !reason', '', 'an agent who may not'],
    ['node/backend.js', '  if (!bounds) return', '  if (false) return', 'an agent who may not'],
    ['node/backend.js', '[400, 403, ', '[400, ', 'the agent reads'],
    ['node/backend.js', 'actorId: agent,', 'actorId: body.actorId ?? agent,', 'the agent who signed in'],
    ['node/backend.js', 'row?.actorId === agent ? row : undefined', 'row', 'an agent sees'],
    ['node/backend.js', '  if (!await rowOf(agent, id)) return', '  if (false) return', 'an agent sees'],
    ['node/backend.js', '    actorId: agent,', '', 'a subject token is for'],
    ['node/backend.js', "    clientId: 'support-console',", '', 'a subject token is for'],
    ['node/backend.js', '    ...bounds,', '    ...bounds, scope: undefined,', 'a subject token is for'],
    ['node/backend.js', '    ...bounds,', '    ...bounds, resource: undefined,', 'a subject token is for'],
    ['node/backend.js', 'expiresIn: 300, ', '', 'a subject token is for'],
    ['node/backend.js', ', accessTokenExpiresIn: 600', '', 'a subject token is for'],
    ['node/backend.js', '    context: { ticketId, reason },', '', 'the agent who signed in'],
    ['node/backend.js', '  if (machine && Date.now() < machine.until) return machine.token;', '', 'one token of the machine'],
    ['node/api.js', 'APPLICATION], strict', "APPLICATION, API.replace('orders', 'invoices')], strict", 'the API verifies'],
    ['node/api.js', ', strict: true', '', 'the API verifies'],
    ['node/api.js', "app.use(scopeIncludesAny('orders:read shop:use'));", '', 'the API verifies'],
    ['node/api.js', 'act?.sub ?? (txn && client)', 'act?.sub', 'GET /me'],
    ['node/api.js', "'/password', notForSomebodyElse,", "'/password',", 'the API refuses'],
    ['node/api.js', 'impersonation: txn }', 'impersonation: act && txn }', 'the API refuses'],
    ['node/api.js', '    ...request.people, ', '    ', "the API's log"],
  ],
  python: [
    ['python/tokens.py', '        aud={"essential": True, "values": audiences},\n', '', 'the backend takes only'],
    ['python/tokens.py', '        aud={"essential": True, "values": audiences},\n', '', 'the API verifies'],
    ['python/tokens.py', '        iss={"essential": True, "value": ISSUER},\n', '', 'the API verifies'],
    ['python/tokens.py', '        raise ValueError("not an access token")', '        pass', 'the API verifies'],
    ['python/tokens.py', '    ).validate(parsed.claims)', '    )', 'the API verifies'],
    ['python/backend.py', 'agent not in AGENTS or ', '', 'an agent who may not'],
    ['python/backend.py', 'not wish.ticketId or not wish.reason or ', '', 'an agent who may not'],
    ['python/backend.py', '    if not bounds:', '    if False:', 'an agent who may not'],
    ['python/backend.py', '(400, 403, ', '(400, ', 'the agent reads'],
    ['python/backend.py', '        "actorId": agent,', '', 'a subject token is for'],
    ['python/backend.py', 'row if row.get("actorId") == agent else None', 'row', 'an agent sees'],
    ['python/backend.py', '    if not row_of(claims["sub"], id):', '    if False:', 'an agent sees'],
    ['python/backend.py', '        "clientId": "support-console",', '', 'a subject token is for'],
    ['python/backend.py', '        **bounds,', '        **{**bounds, "scope": "orders:read orders:write"},', 'a subject token is for'],
    ['python/backend.py', '        **bounds,', '        **{name: bounds[name] for name in bounds if name != "resource"},', 'a subject token is for'],
    ['python/backend.py', '"expiresIn": 300, ', '', 'a subject token is for'],
    ['python/backend.py', ', "accessTokenExpiresIn": 600', '', 'a subject token is for'],
    ['python/backend.py', '        "context": {"ticketId": wish.ticketId, "reason": wish.reason},\n', '', 'the agent who signed in'],
    ['python/backend.py', '        if not client.token or client.token["expires_at"] < time.time() + 60:', '        if True:', 'one token of the machine'],
    ['python/api.py', '    if not {"orders:read", "shop:use"} &', '    if False and', 'the API verifies'],
    ['python/api.py', ' or (claims["client_id"] if txn else None)', '', 'GET /me'],
    ['python/api.py', ', dependencies=[Depends(not_for_somebody_else)]', '', 'the API refuses'],
    ['python/api.py', '"impersonation": txn}', '"impersonation": claims.get("act") and txn}', 'the API refuses'],
    ['python/api.py', '{**someone, "method"', '{"method"', "the API's log"],
  ],
  java: [
    ['java/src/main/java/tokens/AccessTokens.java', 'given != null && !Collections.disjoint(given, audiences)', 'given != null', 'the backend takes only'],
    ['java/src/main/java/tokens/AccessTokens.java', 'given != null && !Collections.disjoint(given, audiences)', 'given != null', 'the API verifies'],
    ['java/src/main/java/tokens/AccessTokens.java', '(all) -> all.put("aud", isForUs))', '(all) -> {\n          all.put("aud", isForUs);\n          all.put("typ", (token) -> org.springframework.security.oauth2.core.OAuth2TokenValidatorResult.success());\n        })', 'the API verifies'],
    ['java/src/main/java/backend/Impersonations.java', '!AGENTS.contains(agent) || ', '', 'an agent who may not'],
    ['java/src/main/java/backend/Impersonations.java', ' || isEmpty(wish.ticketId()) || isEmpty(wish.reason())', '', 'an agent who may not'],
    ['java/src/main/java/backend/Impersonations.java', 'List.of(400, 403, ', 'List.of(400, ', 'the agent reads'],
    ['java/src/main/java/backend/Impersonations.java', '    body.put("actorId", agent.getSubject());', '', 'a subject token is for'],
    ['java/src/main/java/backend/Impersonations.java', ' && agent.getSubject().equals(row.get("actorId"))', ' && row.containsKey("actorId")', 'an agent sees'],
    ['java/src/main/java/backend/Impersonations.java', '    if (rowOf(agent, id) == null) return', '    if (false) return', 'an agent sees'],
    ['java/src/main/java/backend/Impersonations.java', '    body.put("clientId", "support-console");', '', 'a subject token is for'],
    ['java/src/main/java/backend/Impersonations.java', '    body.put("clientId", "support-console");', '    body.put("clientId", "support-console");\n    body.remove("scope");', 'a subject token is for'],
    ['java/src/main/java/backend/Impersonations.java', '    body.put("clientId", "support-console");', '    body.put("clientId", "support-console");\n    body.remove("resource");', 'a subject token is for'],
    ['java/src/main/java/backend/Impersonations.java', '"expiresIn", 300, ', '', 'a subject token is for'],
    ['java/src/main/java/backend/Impersonations.java', ', "accessTokenExpiresIn", 600', '', 'a subject token is for'],
    ['java/src/main/java/backend/Impersonations.java', '    body.put("context", Map.of("ticketId", wish.ticketId(), "reason", wish.reason()));', '', 'the agent who signed in'],
    ['java/src/main/java/backend/Backend.java', 'new UsernamePasswordAuthenticationToken("machine", null)', 'new UsernamePasswordAuthenticationToken(java.util.UUID.randomUUID().toString(), null)', 'one token of the machine'],
    ['java/src/main/java/api/Api.java', '.hasAnyAuthority("SCOPE_orders:read", "SCOPE_shop:use")', '.authenticated()', 'the API verifies'],
    ['java/src/main/java/api/Api.java', '.dPoP(Customizer.withDefaults())', '', 'at an end in the middle'],
    ['java/src/main/java/api/People.java', '    if (actor == null && txn != null) actor = token.getClaimAsString("client_id");', '', 'GET /me'],
    ['java/src/main/java/api/Account.java', '    notForSomebodyElse(token);', '', 'the API refuses'],
    ['java/src/main/java/api/Account.java', 'token.hasClaim("txn")', 'token.hasClaim("act")', 'the API refuses'],
    ['java/src/main/java/api/Api.java', '          log((HttpServletRequest) request, (HttpServletResponse) response);', '', "the API's log"],
  ],
  go: [
    ['go/tokens/tokens.go', '!slices.ContainsFunc(token.Audience, isForUs)', '!slices.ContainsFunc(token.Audience, isForUs) && false', 'the backend takes only'],
    ['go/tokens/tokens.go', '!slices.ContainsFunc(token.Audience, isForUs)', '!slices.ContainsFunc(token.Audience, isForUs) && false', 'the API verifies'],
    ['go/tokens/tokens.go', 'if !isAccessToken(raw) {', 'if !isAccessToken(raw) && false {', 'the API verifies'],
    ['go/backend/main.go', '!slices.Contains(agents, agent) || ', '', 'an agent who may not'],
    ['go/backend/main.go', 'wish.TicketID == "" || wish.Reason == "" || ', '', 'an agent who may not'],
    ['go/backend/main.go', '[]int{400, 403, ', '[]int{400, ', 'the agent reads'],
    ['go/backend/main.go', '\t\t"actorId":  agent,', '', 'a subject token is for'],
    ['go/backend/main.go', ' || row["actorId"] != agent', '', 'an agent sees'],
    ['go/backend/main.go', '\tif rowOf(agent, id) == nil {', '\tif false {', 'an agent sees'],
    ['go/backend/main.go', '\t\t"clientId": "support-console",', '', 'a subject token is for'],
    ['go/backend/main.go', '\tmaps.Copy(body, bounds)', '\tmaps.Copy(body, bounds)\n\tdelete(body, "scope")', 'a subject token is for'],
    ['go/backend/main.go', '\tmaps.Copy(body, bounds)', '\tmaps.Copy(body, bounds)\n\tdelete(body, "resource")', 'a subject token is for'],
    ['go/backend/main.go', '"expiresIn": 300, ', '', 'a subject token is for'],
    ['go/backend/main.go', ', "accessTokenExpiresIn": 600', '', 'a subject token is for'],
    ['go/backend/main.go', '\t\t"context":  object{"ticketId": wish.TicketID, "reason": wish.Reason},', '', 'the agent who signed in'],
    ['go/api/main.go', 'if !slices.ContainsFunc(strings.Fields(claims.Scope), isOurs) {', 'if !slices.ContainsFunc(strings.Fields(claims.Scope), isOurs) && false {', 'the API verifies'],
    ['go/api/main.go', '\t\tactor = claims.Client', '', 'GET /me'],
    ['go/api/main.go', 'protected(notForSomebodyElse(changePassword))', 'protected(changePassword)', 'the API refuses'],
    ['go/api/main.go', '"user", someone.User, "actor", someone.Actor, ', '', "the API's log"],
  ],
};

const languages = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(LANGUAGES);
const world = { patience: 6_000, ...(await startStack(await freeStackPorts(), withoutActors)) };
world.people = await startPeople(world);
world.agent = await startAgent(world);
let missed = 0;
for (const language of languages) {
  for (const [file, lines, others, named] of LANGUAGES[language]) {
    const [, rule, run] = RULES.find(([, name]) => name.startsWith(named));
    world.parts = await startParts(language, world, (folder) => {
      const text = readFileSync(`${folder}/${file}`, 'utf8');
      if (text.split(lines).length !== 2) throw new Error(`${file} does not have once: ${lines}`);
      writeFileSync(`${folder}/${file}`, text.replace(lines, () => others));
    });
    const noticed = await run(world).then(() => undefined, (error) => error.message.split('\n')[0]);
    if (noticed === undefined) missed += 1;
    console.log(`${noticed === undefined ? 'MISSED' : 'noticed'} ${file}: ${lines.trim().split('\n')[0]} (${rule}: ${noticed})`);
    await world.agent.closeTabs();
    await world.people.endAll();
    await world.parts.stop();
  }
}
console.log(`${missed} passed, ${missed} failed`.replace(/^\d+/, `${languages.flatMap((name) => LANGUAGES[name]).length - missed}`));
await world.agent.close();
await stopAll();
process.exit(missed ? 1 : 0);

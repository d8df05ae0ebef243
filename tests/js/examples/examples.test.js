// The examples in each of the languages that EXAMPLES names, against one list of rules.
import { after, afterEach, before, describe, test } from 'node:test';
import { withoutActors } from '../stack/envoy.js';
import { stopAll } from '../stack/process.js';
import { startAgent, startPeople } from './people.js';
import { RULES } from './rules.js';
import { freeStackPorts, startParts, startStack } from './world.js';

const languages = (process.env.EXAMPLES ?? 'node').split(' ');
const world = { patience: 60_000 };

before(async () => {
  // It is then the backend's bound alone that asks for an actor.
  Object.assign(world, await startStack(await freeStackPorts(), withoutActors));
  world.people = await startPeople(world);
  world.agent = await startAgent(world);
});

after(async () => {
  await world.agent?.close();
  await stopAll();
});

for (const language of languages) {
  describe(language, () => {
    before(async () => { world.parts = await startParts(language, world); });
    after(() => world.parts?.stop());
    afterEach(async () => {
      await world.agent.closeTabs();
      await world.people.endAll();
    });
    for (const [, rule, run] of RULES) test(rule, () => run(world));
  });
}

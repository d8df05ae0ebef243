class Claims {
  static #count = 0;
  #claims = {};

  static get count() {
    return Claims.#count;
  }

  add(name, value) {
    if (value !== undefined && value !== null) {
      this.#claims[name] = value;
      Claims.#count += 1;
    }
    return this;
  }

  *[Symbol.iterator]() {
    yield* Object.entries(this.#claims);
  }

  toJSON() {
    return Object.fromEntries(this);
  }
}

class SupportClaims extends Claims {
  constructor({ ticketId, reason }) {
    super();
    this.ticketId = ticketId;
    this.add('ticket', ticketId).add('reason', reason).add('priority', null);
  }

  get kind() {
    return this.constructor.name;
  }

  add(name, value) {
    return super.add(`support_${name}`, value);
  }
}

const getCustomJwtClaims = async ({ context }) => {
  const claims = new SupportClaims(context.grant.subjectTokenContext);
  return { ...claims.toJSON(), kind: claims.kind, count: Claims.count, is: claims instanceof Claims, nested: claims };
};

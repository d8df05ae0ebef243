// An old-fashioned script, in sloppy mode.
var separator = ';', calls = 0;

getName.prefix = 'ticket';

function getName(name) {
  calls++;
  return getName.prefix + '_' + name;
}

function getCustomJwtClaims(data) {
  var claims = {}, context = data.context.grant.subjectTokenContext, self = this;
  undeclared = Object.keys(context);
  undeclared.forEach(function (name, index, all) {
    claims[getName(name)] = arguments.length + separator + all.length;
  });
  for (var name in context) if (context.hasOwnProperty(name)) claims.last = name;
  switch (typeof self) {
    case 'undefined':
      claims.strict = true;
      break;
    default:
      claims.strict = false;
  }
  outer: for (var i = 0; ; i++) {
    for (var j = 0; j < 3; j++) {
      if (i * j === 4) break outer;
    }
  }
  claims.loop = [i, j];
  claims.calls = calls;
  claims.hoisted = typeof hoisted;
  claims.octal = parseInt('0x1f') + Number('0b11') | 0;
  return claims;
  var hoisted = 1;
}

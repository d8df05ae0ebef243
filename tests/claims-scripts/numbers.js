const getCustomJwtClaims = async () => {
  const bytes = new Uint8Array([0xde, 0xad, 0xbe, 0xef]);
  const view = new DataView(bytes.buffer);

  return {
    sum: 0.1 + 0.2,
    fixed: (1234.5678).toFixed(2),
    precise: (0.00001234).toPrecision(2),
    exponent: (123456).toExponential(2),
    large: [2 ** 53, 1e21, 123456789012345680000, 5e-324, Number.MAX_VALUE],
    hex: [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join(''),
    big: (2n ** 100n).toString(),
    bits: [5 & 3, 5 | 3, 5 ^ 3, ~5, 1 << 31, -1 >>> 28],
    rounded: [Math.round(-1.5), Math.trunc(-1.5), Math.sign(-3), Math.hypot(3, 4), Math.cbrt(27)],
    parsed: [parseInt('12px', 10), parseFloat('1.5e3x'), Number(''), Number('1_0'), +'0x10'].map(String),
    view: [view.getUint32(0), view.getInt16(2, true)],
    separators: 1_000_000,
    safe: Number.isSafeInteger(2 ** 53),
    remainder: [-5 % 3, 5.5 % 2, 2 ** -1],
    base: (255).toString(2),
  };
};

// Numbers as people read them.

/** At most `digits` significant digits, without a tail of zeros; a dash where there is none. */
export function short(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const x = Number(value);
  if (!Number.isFinite(x)) return String(value);
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-4) return x.toExponential(Math.max(digits - 1, 0)).replace(/\.?0+e/, "e").replace("-", "−");
  const places = Math.max(0, Math.min(6, digits - 1 - Math.floor(Math.log10(size))));
  let text = x.toFixed(places);
  if (text.includes(".")) text = text.replace(/\.?0+$/, "");
  return text.replace("-", "−");
}

export function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return (Number(value) > 0 ? "+" : "") + short(value, digits);
}

export function fixed(value, places = 3) {
  if (value === null || value === undefined) return "–";
  const x = Number(value);
  return Number.isFinite(x) ? x.toFixed(places).replace("-", "−") : String(value);
}

/** With its sign, to `places`. */
export function fixedSigned(value, places = 3) {
  return (Number(value) > 0 ? "+" : "") + fixed(value, places);
}

export function count(n, one, many = `${one}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

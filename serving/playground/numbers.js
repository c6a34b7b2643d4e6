/** Numbers as text, mostly of three digits. */

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** 0.00683, 12, −3.1 × 10⁻⁵; of values in a range of this `span` with the digits that tell them apart: 293.15 in 0.8. */
export function short(value, span = Infinity) {
  if (!Number.isFinite(value)) return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  const apart = span > 0 ? 3 + Math.floor(Math.log10(size)) - Math.floor(Math.log10(span)) : 0;
  const digits = Math.min(MOST_DIGITS, Math.max(3, apart));
  if (size >= 1e-3 && size < 1e5) return minus(String(Number(value.toPrecision(digits))));
  const [mantissa, exponent] = value.toExponential(digits > 3 ? digits - 1 : 1).split("e");
  return `${minus(String(Number(mantissa)))} × 10${superscript(Number(exponent))}`;
}

const MOST_DIGITS = 7; // of float32

/** Numbers to the two digits that an uncertainty has: 0.531 and 0.012 of 0.53142 and 0.0123; a number that is missing is empty. */
export function within(width, ...values) {
  const digits = width > 0 ? 1 - Math.floor(Math.log10(width)) : 0;
  const sizes = values.filter(Number.isFinite).map(Math.abs);
  const isPlain = width > 0 && digits >= 0 && digits <= 6 && Math.max(...sizes) < 1e5;
  return values.map((value) => (value === undefined ? "" : isPlain && Number.isFinite(value) ? minus(value.toFixed(digits)) : short(value)));
}

/** The two ends of a scale, to three digits of their span: what is nothing beside it reads 0. */
export function ends([low, high]) {
  const span = Math.abs(high - low); // an axis may fall
  return [low, high].map((value) => short(Math.abs(value) < span / 1000 ? 0 : value, span));
}

/** A share as per cent: 0.21 %, 7.3 × 10⁻⁶ %. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  return `${short(Number((100 * share).toPrecision(2)))} %`;
}

/** A bound from above as per cent: to two digits, and no less than it is. */
export function atMost(share) {
  const least = 100 * share * (1 - 1e-6); // of what is no rounding of the number itself
  const shown = Number((100 * share).toPrecision(2));
  return percent(shown < least ? (shown + 10 ** (Math.floor(Math.log10(least)) - 1)) / 100 : share);
}

/** A duration in the unit that fits: 5.8 ms, 38 ms, 1.2 s. */
export function duration(milliseconds) {
  if (milliseconds < 10) return `${Number(milliseconds.toPrecision(2))} ms`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  return `${Number((milliseconds / 1000).toPrecision(2))} s`;
}

function superscript(exponent) {
  const digits = [...String(Math.abs(exponent))].map((digit) => SUPERSCRIPTS[digit]).join("");
  return (exponent < 0 ? "⁻" : "") + digits;
}

function minus(text) {
  return text.replace("-", "−");
}

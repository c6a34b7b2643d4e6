/**
 * Colour maps whose lightness rises evenly, so that equal steps of a value look equal.
 *
 * They are paths in OKLCh (Ottosson 2020): lightness linear along the map, hue turning, chroma as large as the path states
 * and sRGB can show. A diverging map has the lightness of the page in its middle and is even on both sides.
 */

const STEPS = 256;

/** For the quantity that is drawn: navy to pale mint. */
export const tide = sequential({ from: 0.24, to: 0.95, hue: [275, 165], chroma: [0.09, 0.115, 0.05] });
/** For the quantity that is computed: near black over magenta to pale yellow. */
export const ember = sequential({ from: 0.16, to: 0.97, hue: [285, 460], chroma: [0.06, 0.2, 0.06] });

/** For differences: blue below zero, the page's own lightness at zero, rust above. */
export function divergent(dark) {
  return aroundZero(dark, 252, 42);
}

/** For quantities with both signs: teal below zero, the page's own lightness at zero, plum above. */
export function signed(dark) {
  return aroundZero(dark, 185, 345);
}

/** Return whether a quantity with this range has both signs, so that its scale has zero in the middle. */
export function hasSigns([low, high]) {
  return Math.min(-low, high) > LEAST_SIGN * Math.max(-low, high);
}

const LEAST_SIGN = 0.02; // less on one side of zero is rounding

function aroundZero(dark, below, above) {
  const [middle, end] = dark ? [0.2, 0.82] : [0.975, 0.36];
  return table((t) => {
    const side = Math.abs(2 * t - 1);
    return [middle + (end - middle) * side, 0.18 * side ** 0.65, t < 0.5 ? below : above];
  });
}

/** Whether the page is dark, and a call whenever that changes. */
export function darkness(changed) {
  const query = matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", () => changed(query.matches));
  return query.matches;
}

/** The colour `[r, g, b]` of a share 0 to 1 of a map. */
export function colour(map, share) {
  const at = 3 * Math.max(0, Math.min(STEPS - 1, Math.round(share * (STEPS - 1))));
  return map.subarray(at, at + 3);
}

function sequential({ from, to, hue: [first, last], chroma: [start, middle, end] }) {
  return table((t) => [from + (to - from) * t, quadratic(start, middle, end, t), first + (last - first) * t]);
}

/** The parabola through three values at 0, 1/2 and 1. */
function quadratic(start, middle, end, t) {
  return start * (2 * t - 1) * (t - 1) + 4 * middle * t * (1 - t) + end * t * (2 * t - 1);
}

function table(path) {
  const map = new Uint8ClampedArray(3 * STEPS);
  for (let step = 0; step < STEPS; step++) map.set(shown(...path(step / (STEPS - 1))), 3 * step);
  return map;
}

/** An OKLCh colour in sRGB bytes, with less chroma where the screen has not as much. */
function shown(lightness, chroma, hue) {
  let rgb = linear(lightness, chroma, hue);
  for (let share = chroma; rgb.some((part) => part < 0 || part > 1) && share > 1e-3; ) {
    share *= 0.96;
    rgb = linear(lightness, share, hue);
  }
  return rgb.map((part) => 255 * (part <= 0.0031308 ? 12.92 * part : 1.055 * part ** (1 / 2.4) - 0.055));
}

function linear(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const [a, b] = [chroma * Math.cos(angle), chroma * Math.sin(angle)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

/** Encodes a text as tokens of a model's vocabulary, and decodes logits as labels with their probabilities. */

/** Return whether a model takes a text: its card has the vocabulary and the labels. */
export function takesText({ vocabulary, inputs, outputs }) {
  return Boolean(vocabulary) && inputs.length === 1 && outputs.length === 1 && inputs[0].dtype === "INT32" && outputs[0].dtype === "FP32";
}

/** Return whether a browser can split a text into these symbols. */
export function readable({ pattern }) {
  try {
    return pattern === null || Boolean(matcher(pattern));
  } catch {
    return false;
  }
}

/**
 * Return the tokens of a text.
 *
 * @param {{words: string[], pattern: string | null}} vocabulary Without a pattern token b + 1 is the byte b in UTF-8.
 * @param {string} text
 * @returns {{token: number, symbol: string}[]}
 * @throws {Error} A part of the text is not in the vocabulary.
 */
export function encode({ words, pattern }, text) {
  if (pattern === null) return [...new TextEncoder().encode(text)].map((byte) => ({ token: byte + 1, symbol: words[byte + 1] }));
  const found = [];
  let end = 0;
  for (const match of text.matchAll(matcher(pattern))) {
    checkGap(text, end, match.index);
    const token = words.indexOf(match[0], 1); // 0 is padding
    if (token < 1) throw unknownSymbol(match[0], match.index);
    found.push({ token, symbol: match[0] });
    end = match.index + match[0].length;
  }
  checkGap(text, end, text.length);
  return found;
}

/**
 * Return the probabilities of the labels, the most probable first.
 *
 * @param {string[]} labels
 * @param {Float32Array} logits One for each label.
 * @returns {{label: string, share: number}[]}
 */
export function decode(labels, logits) {
  const most = Math.max(...logits);
  const weights = Array.from(logits, (logit) => Math.exp(logit - most));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return labels.map((label, i) => ({ label, share: weights[i] / sum })).sort((one, other) => other.share - one.share);
}

/** Return a first text: the longest one that the card contains, else some symbols. */
export function example({ vocabulary, task = "", training, grid, title }) {
  if (vocabulary.pattern === null) return title;
  const known = new Set(vocabulary.words.slice(1));
  const runs = [[]];
  for (const piece of `${task} ; ${training.distribution ?? ""}`.split(/\s+/)) known.has(piece) ? runs.at(-1).push(piece) : runs.push([]);
  const fitting = runs.filter((run) => run.length <= grid.maximum);
  const longest = fitting.reduce((best, run) => (run.length > best.length ? run : best), []);
  return (longest.length > 1 ? longest : [...known].slice(0, Math.min(4, grid.maximum))).join(" ");
}

function matcher(pattern) {
  return new RegExp(pattern, "gu");
}

/** Check that only white space separates two symbols. */
function checkGap(text, start, end) {
  const rest = /\S+/.exec(text.slice(start, end));
  if (rest) throw unknownSymbol(rest[0], start + rest.index);
}

function unknownSymbol(symbol, index) {
  return new Error(`“${symbol.slice(0, 32)}” at character ${index + 1} is not in the vocabulary.`);
}

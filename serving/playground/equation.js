/** The equation of a card, which is plain text, with the signs of mathematics: -div(a grad u) becomes −∇·(a ∇u). */

const WORDS = {
  div: "∇·", grad: "∇", laplace: "∆", laplacian: "∆", lap: "∆", alpha: "α", beta: "β", gamma: "γ", delta: "δ", kappa: "κ",
  lambda: "λ", mu: "μ", nu: "ν", omega: "ω", phi: "φ", pi: "π", psi: "ψ", rho: "ρ", sigma: "σ", tau: "τ", theta: "θ",
};
const TOKEN = /([A-Za-zα-ω]+)(?:_([A-Za-z0-9]+))?|\^(-?[0-9]+|[A-Za-zα-ω]+)|_([A-Za-z0-9]+)|[-^_]|[^A-Za-zα-ω^_-]+/g;

/** Return nodes for an equation; words that are no signs stay as they are. */
export function typeset(equation) {
  const nodes = [];
  for (const [text, word, index, power, below] of equation.matchAll(TOKEN)) {
    if (below) nodes.push(small("sub", below));
    else if (power) nodes.push(small("sup", WORDS[power] ?? power.replace("-", "−")));
    else if (text === "-") nodes.push("−");
    else if (!word) nodes.push(WORDS_BEFORE.test(nodes.at(-1) ?? "") ? text.trimStart() : text);
    else {
      nodes.push(isSymbol(word) ? small("i", WORDS[word] ?? word) : (WORDS[word] ?? word));
      if (index) nodes.push(small("sub", index));
    }
  }
  return nodes;
}

const WORDS_BEFORE = /^[∇∆]·?$/; // an operator stands right before what it acts on

/** Return whether a word is the name of a variable: one letter, or a Greek one. */
function isSymbol(word) {
  return word.length === 1 || /^[α-ω]$/.test(WORDS[word] ?? "");
}

function small(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

/** Return the sign of a Greek letter that a text is; undefined for any other. */
export function sign(text) {
  return /^[α-ω]$/.test(WORDS[text.toLowerCase()] ?? "") ? WORDS[text.toLowerCase()] : undefined;
}

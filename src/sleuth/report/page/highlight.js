// Golden answers in a passage.

import { el } from "./dom.js";

const CLOSED = new Set(["yes", "no"]);

/** The answers as one expression: whole words, any white space or punctuation between them. Null where none can stand. */
function expression(answers) {
  const forms = answers
    .filter((answer) => !CLOSED.has(answer.trim().toLowerCase()))
    .map((answer) => answer.normalize("NFKC").match(/[\p{L}\p{N}\p{M}]+/gu))
    .filter(Boolean)
    .sort((a, b) => b.length - a.length)
    .map((words) => words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("[^\\p{L}\\p{N}]{1,4}"));
  if (!forms.length) return null;
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${forms.join("|")})(?![\\p{L}\\p{N}])`, "giu");
}

/** `{node, found}`: the text with golden answers in `mark` elements. */
export function highlighted(text, answers) {
  const node = document.createDocumentFragment();
  const wanted = expression(answers);
  let at = 0;
  for (const match of wanted ? text.matchAll(wanted) : []) {
    node.append(text.slice(at, match.index), el("mark", {}, match[0]));
    at = match.index + match[0].length;
  }
  node.append(text.slice(at));
  return { node, found: at > 0 };
}

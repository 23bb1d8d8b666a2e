// The data that the page carries: gzipped JSON in base64, inflated when it is needed.

import { byId } from "./dom.js";

const inflated = new Map();

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

export function canInflate() {
  return typeof DecompressionStream === "function";
}

/** Everything but the rollouts' details. */
export function overview() {
  return inflate(byId("overview").textContent);
}

/** A block of rollouts' details; each is inflated once. */
export function block(index) {
  if (!inflated.has(index)) {
    inflated.set(index, inflate(byId(`block-${index}`).textContent).then(withTexts));
  }
  return inflated.get(index);
}

function withTexts({ texts, rollouts }) {
  for (const rollout of rollouts) {
    for (const span of rollout.spans) {
      if (Array.isArray(span.text)) {
        span.pieces = span.text.map((piece) => (typeof piece === "number" ? { text: texts[piece], passage: true } : { text: piece }));
        span.text = span.pieces.map((piece) => piece.text).join("");
      }
      if (span.documents) {
        span.documents = span.documents.map(([id, title, text, score]) => ({ id, title, text: texts[text], score }));
      }
    }
  }
  return rollouts;
}

/** The rows of the list as objects, each with its number `n` and `key` (step and id). */
export function rowsOf(rollouts) {
  return rollouts.rows.map((values, n) => {
    const row = { n };
    rollouts.columns.forEach((name, i) => (row[name] = values[i]));
    const question = rollouts.questions[row.question];
    row.asked = question.question;
    row.golden = question.golden;
    row.source = question.source;
    row.key = `${row.step}/${row.id}`;
    if (typeof row.reward === "string") row.reward = Number(row.reward);
    return row;
  });
}

/** The whole of a rollout. */
export async function detailOf(rollouts, n) {
  const details = await block(Math.floor(n / rollouts.block));
  return details[n % rollouts.block];
}

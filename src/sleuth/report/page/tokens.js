// The policy's tokens: their text, shaded by what the loss made of them.

import { el, fill, foreign } from "./dom.js";
import { fixed, short, signed } from "./numbers.js";

export const SHADES = {
  none: ["None", "The text as it is."],
  mask: ["Loss mask", "Shaded: tokens with a gradient. Underlined: policy tokens without one (clipped, masked, or of advantage 0). All other text is the environment's."],
  advantage: ["Advantage", "Per token, after the objective's reshapes: blue is made likelier, orange less likely."],
  ratio: ["Ratio", "Probability under the new policy by that under the old one: blue above 1, orange below. Full colour from a factor of 2."],
  surprise: ["Surprise", "The less likely a token was to the policy that sampled it, the darker. Full colour from a probability of 1 %."],
};

/** The shades that these spans have values for. */
export function shadesOf(detail) {
  const spans = detail.spans.filter((span) => span.kind === "policy");
  const any = (name) => spans.some((span) => span[name] !== undefined);
  return Object.keys(SHADES).filter((name) => name === "none" || (name === "mask" && any("silent")) || (name === "advantage" && any("advantages")) || (name === "ratio" && any("ratios")) || (name === "surprise" && any("logprobs")));
}

/** What is known of token `i` of a policy span. */
export function tokenAt(span, i) {
  const logRatio = span.ratios?.[i];
  return {
    kind: span.parts.find(([, start, end]) => i >= start && i < end)?.[0] || "other",
    advantage: Array.isArray(span.advantages) ? span.advantages[i] : span.advantages,
    logRatio: logRatio === undefined || logRatio === null ? null : logRatio / 1000,
    logprob: span.logprobs?.[i] === undefined || span.logprobs[i] === null ? null : span.logprobs[i] / 1000,
    silent: span.silent === undefined ? null : span.silent === true || span.silentSet.has(i),
  };
}

/** `[class, strength from 0 to 1]` of a token under a shade. */
export function shadeOf(token, shade, scale) {
  if (shade === "mask") return token.silent === null ? ["", 0] : token.silent ? ["silent", 0] : ["trained", 0.5];
  if (shade === "advantage") return signedShade(token.advantage, scale);
  if (shade === "ratio") return signedShade(token.logRatio, Math.LN2);
  if (shade === "surprise") return token.logprob === null ? ["", 0] : ["surprise", Math.min(-token.logprob / -Math.log(0.01), 1)];
  return ["", 0];
}

function signedShade(value, scale) {
  if (value === null || value === undefined || !Number.isFinite(Number(value)) || !value) return ["", 0];
  return [value > 0 ? "up" : "down", Math.min(Math.abs(value) / scale, 1)];
}

/** The advantage that is shaded fully: 2 standard deviations of a group's rewards, or the rollout's largest. */
export function scaleOf(detail) {
  let most = 2;
  for (const span of detail.spans) {
    for (const value of [span.advantages ?? 0].flat()) most = Math.max(most, Math.abs(Number(value)) || 0);
  }
  return most;
}

/**
 * A policy span's text, token by token where the report knows their texts, else whole with a cell for each token below.
 * `paint(shade)` of the result shades it.
 */
export function policyText(span, scale) {
  if (Array.isArray(span.silent)) span.silentSet = new Set(span.silent);
  const text = el("p", { class: "policy foreign", dir: "auto" });
  const cells = [];
  let node = text;
  if (span.lengths) {
    let at = 0;
    let part = null;
    span.lengths.forEach((length, i) => {
      const piece = span.text.slice(at, at + length);
      at += length;
      const own = span.parts.find(([, start, end]) => i >= start && i < end);
      const kind = own ? own[0] : "other";
      if (!part || part.own !== own) {
        part = { own, node: el("span", { class: `part ${kindClass(kind)}` }) };
        text.append(part.node);
      }
      const cell = el("span", { class: "token", data: { i } }, piece);
      cells.push(cell);
      part.node.append(cell);
    });
  } else {
    text.append(span.text);
    if (span.tokens && (span.logprobs || span.advantages !== undefined)) {
      const strip = el("div", { class: "strip", "aria-hidden": "true" });
      for (let i = 0; i < span.tokens; i++) {
        const cell = el("span", { class: `token cell ${kindClass(tokenAt(span, i).kind)}`, data: { i } });
        cells.push(cell);
        strip.append(cell);
      }
      node = el("div", {}, text, strip);
    }
  }
  const paint = (shade) => {
    text.classList.toggle("plain", shade === "none");
    cells.forEach((cell, i) => {
      const [name, strength] = shadeOf(tokenAt(span, i), shade, scale);
      cell.dataset.shade = name;
      cell.style.setProperty("--strength", strength.toFixed(3));
    });
  };
  return { node, paint };
}

function kindClass(kind) {
  return ["think", "query", "answer", "tag"].includes(kind) ? kind : "other";
}

/** One line about a token. */
export function aboutToken(span, i) {
  const token = tokenAt(span, i);
  let text = null;
  if (span.lengths) {
    const start = span.lengths.slice(0, i).reduce((a, b) => a + b, 0);
    text = span.text.slice(start, start + span.lengths[i]);
  }
  const facts = [
    `token ${i + 1} of ${span.tokens}`,
    token.kind,
    token.logprob !== null && `p ${short(Math.exp(token.logprob))}`,
    token.logRatio !== null && `ratio ${short(Math.exp(token.logRatio))}`,
    token.advantage !== null && token.advantage !== undefined && `advantage ${signed(token.advantage)}`,
    token.silent && "no gradient",
  ].filter(Boolean);
  return [text !== null && foreign(JSON.stringify(text), "code"), " ", facts.join(" · ")];
}

/** The parts of a span as a table: what the shading says, in numbers. */
export function partsTable(span) {
  const parts = span.parts.length ? span.parts : [["other", 0, span.tokens]];
  const rows = parts.map(([kind, start, end]) => {
    const tokens = [];
    for (let i = start; i < end; i++) tokens.push(tokenAt(span, i));
    const ratios = tokens.map((token) => token.logRatio).filter((x) => x !== null).map(Math.exp);
    const advantages = tokens.map((token) => token.advantage).filter((x) => x !== null && x !== undefined).map(Number);
    const logprobs = tokens.map((token) => token.logprob).filter((x) => x !== null);
    const silent = tokens.filter((token) => token.silent).length;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, kind),
      [tokens.length, logprobs.length ? fixed(mean(logprobs)) : "–", ratios.length ? fixed(mean(ratios)) : "–", ratios.length ? fixed(Math.min(...ratios)) : "–", ratios.length ? fixed(Math.max(...ratios)) : "–", advantages.length ? signed(mean(advantages)) : "–", tokens.some((token) => token.silent !== null) ? silent : "–"].map((value) => el("td", { class: "number" }, value)),
    );
  });
  return el("table", { class: "figures" }, el("thead", {}, el("tr", {}, ["Part", "Tokens", "Mean log-prob", "Mean ratio", "Lowest", "Highest", "Advantage", "Without gradient"].map((title, i) => el("th", { scope: "col", class: i ? "number" : "" }, title)))), el("tbody", {}, rows));
}

function mean(values) {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

export function readout() {
  const node = el("p", { class: "readout", "aria-hidden": "true" }, "Point at a token to read its numbers.");
  return { node, show: (span, i) => fill(node, aboutToken(span, i)) };
}

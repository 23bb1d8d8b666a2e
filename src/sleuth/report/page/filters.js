// Which rollouts are listed, and in which order. Pure functions of the rows and the filter.

import { block } from "./data.js";

export const EMPTY = { text: "", status: "", from: "", to: "", low: "", high: "", alarm: "", evidence: "", form: "", group: "", sort: "step", down: false };

/** True where nothing is left out. */
export function isEmpty(filter) {
  return Object.keys(EMPTY).every((name) => name === "sort" || name === "down" || filter[name] === EMPTY[name]);
}

/** The rows that pass everything but the text. `alarmed`: for each alarm the keys of its rollouts. */
export function matching(rows, filter, alarmed, mixed) {
  const number = (text) => (text === "" || Number.isNaN(Number(text)) ? null : Number(text));
  const [from, to, low, high] = [filter.from, filter.to, filter.low, filter.high].map(number);
  const anyAlarm = filter.alarm === "any" ? new Set(alarmed.flatMap((keys) => [...keys])) : null;
  const ofAlarm = anyAlarm || (filter.alarm !== "" ? alarmed[Number(filter.alarm)] || new Set() : null);
  return rows.filter(
    (row) =>
      (filter.status === "" || row.status === filter.status) &&
      (from === null || row.step >= from) &&
      (to === null || row.step <= to) &&
      (low === null || (row.reward !== null && row.reward >= low)) &&
      (high === null || (row.reward !== null && row.reward <= high)) &&
      (ofAlarm === null || ofAlarm.has(row.key)) &&
      (filter.evidence === "" || (filter.evidence === "found") === row.found) &&
      (filter.evidence === "" || row.found !== null) &&
      (filter.form === "" || (filter.form === "valid") === row.format) &&
      (filter.group === "" || (filter.group === "mixed") === mixed.has(groupKey(row))),
  );
}

/** Rows whose rollout holds every word of `text` somewhere: question, answers, queries, thoughts, passages. */
export async function holding(rows, text, rollouts, stillWanted) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  const kept = [];
  for (const row of rows) {
    const index = Math.floor(row.n / rollouts.block);
    const details = await block(index);
    if (!stillWanted()) return null;
    const whole = wholeText(row, details[row.n % rollouts.block]);
    if (words.every((word) => whole.includes(word))) kept.push(row);
  }
  return kept;
}

const wholes = new Map();

function wholeText(row, detail) {
  if (!wholes.has(row.n)) {
    const texts = [row.id, row.asked, ...row.golden, row.answer || "", ...row.queries];
    for (const span of detail.spans) {
      texts.push(span.text);
      for (const document of span.documents || []) texts.push(document.title, document.text);
    }
    wholes.set(row.n, texts.join("\n").toLowerCase());
  }
  return wholes.get(row.n);
}

export const SORTS = {
  step: ["Step", (row) => row.step],
  reward: ["Reward", (row) => row.reward],
  question: ["Question", (row) => row.asked],
  advantage: ["Advantage", (row) => row.advantage],
  lowest: ["Lowest ratio", (row) => row.lowest],
  highest: ["Highest ratio", (row) => row.highest],
  searches: ["Searches", (row) => row.searches],
  tokens: ["Tokens", (row) => row.tokens],
};

/** Sorted, with rows that lack the value last; rows that are alike keep the order of the file. */
export function sorted(rows, { sort, down }) {
  const value = (SORTS[sort] || SORTS.step)[1];
  const sign = down ? -1 : 1;
  const lacks = (x) => x === null || x === undefined || Number.isNaN(x);
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (lacks(x) || lacks(y)) return lacks(x) - lacks(y) || a.n - b.n;
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return sign * order || a.n - b.n;
  });
}

export function groupKey(row) {
  return `${row.step}/${row.group}`;
}

/** The keys of the groups whose rewards differ. */
export function mixedGroups(rows) {
  const rewards = new Map();
  const mixed = new Set();
  for (const row of rows) {
    if (row.reward === null) continue;
    const key = groupKey(row);
    if (rewards.has(key) && rewards.get(key) !== row.reward) mixed.add(key);
    rewards.set(key, row.reward);
  }
  return mixed;
}

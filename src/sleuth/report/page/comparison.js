// A comparison of objectives: reward by arm, how long the arms live, the table, and the verdict.

import { figure } from "./charts.js";
import { el, foreign } from "./dom.js";
import { count, fixed, fixedSigned, short } from "./numbers.js";

const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];

export function comparisonSection(report) {
  const { comparison } = report;
  const regimes = [...new Set(comparison.cells.map((cell) => cell.regime))];
  const arms = Object.keys(comparison.arms || {});
  for (const cell of comparison.cells) if (!arms.includes(cell.arm)) arms.push(cell.arm);
  return [
    el("h2", { class: "unseen" }, "Comparison"),
    el("section", { "aria-labelledby": "verdict" }, el("h2", { id: "verdict" }, "Verdict"), verdictOf(comparison)),
    resultTable(comparison),
    regimes.map((regime) => regimeSection(comparison, regime, arms)),
    cellsTable(comparison),
    armsTable(comparison, arms),
  ];
}

function verdictOf({ verdict, regimes }) {
  if (!verdict?.length) return el("p", { class: "quiet" }, "No verdict yet.");
  const names = Object.keys(regimes || {});
  return el(
    "ul",
    { class: "verdict" },
    verdict.map((sentence) => {
      const regime = names.find((name) => sentence.startsWith(`${name}: `));
      return el("li", {}, regime ? [el("strong", {}, foreign(regime)), " ", foreign(sentence.slice(regime.length + 2))] : foreign(sentence));
    }),
  );
}

/** Colour and dashes of the i-th arm: six colours, three kinds of line. */
function line(i) {
  return { colour: COLOURS[i % COLOURS.length], dash: [undefined, [6, 3], [2, 3]][Math.floor(i / COLOURS.length) % 3] };
}

function regimeSection(comparison, regime, arms) {
  const cells = comparison.cells.filter((cell) => cell.regime === regime && (cell.rewards || []).length);
  if (!cells.length) return null;
  const steps = cells.reduce((most, cell) => Math.max(most, cell.rewards.length), 0);
  const xs = Array.from({ length: steps }, (_, i) => i + 1);
  const present = arms.filter((arm) => cells.some((cell) => cell.arm === arm));
  const settings = comparison.regimes?.[regime];
  const rewards = cells.flatMap((cell) => cell.rewards).filter((value) => typeof value === "number");
  const [bottom, top] = [rewards.reduce((a, b) => Math.min(a, b)), rewards.reduce((a, b) => Math.max(a, b))];
  const lines = (comparison.table || []).filter((line) => line.regime === regime);
  return el(
    "section",
    { class: "group" },
    el("div", { class: "heading" }, el("h2", {}, foreign(regime)), settings && el("span", { class: "quiet" }, foreign(typeof settings === "object" ? Object.entries(settings).map(([k, v]) => `${k}=${typeof v === "object" ? JSON.stringify(v) : v}`).join(", ") : settings))),
    el(
      "div",
      { class: "charts" },
      figure({ title: "Survival", about: "Share of the runs that have not collapsed (Kaplan-Meier).", xs: [0, ...xs], series: present.map((arm, i) => ({ label: arm, ...line(i), values: survival(lines.find((line) => line.arm === arm), steps) })), stepped: true, range: [-0.02, 1.05] }),
      figure({ title: "Mean reward by arm", about: "Over the seeds that have reached the step.", xs, series: present.map((arm, i) => ({ label: arm, ...line(i), values: across(cells.filter((cell) => cell.arm === arm), steps, mean) })) }),
      present.map((arm, i) => {
        const own = cells.filter((cell) => cell.arm === arm);
        return figure({
          title: arm,
          about: `Reward of ${count(own.length, "seed")}: mean, lowest and highest.`,
          xs,
          series: [
            { label: "highest", colour: COLOURS[i % 6], faint: true, values: across(own, steps, (values) => Math.max(...values)) },
            { label: "mean", colour: COLOURS[i % 6], values: across(own, steps, mean) },
            { label: "lowest", colour: COLOURS[i % 6], faint: true, values: across(own, steps, (values) => Math.min(...values)) },
          ],
          bands: [[0, 2]],
          range: [Math.min(0, bottom), top * 1.05],
          alarms: own.filter((cell) => cell.onset !== null && cell.onset !== undefined).map((cell) => ({ step: cell.onset, level: "dead" })),
        });
      }),
    ),
  );
}

function across(cells, steps, reduce) {
  return Array.from({ length: steps }, (_, i) => {
    const values = cells.map((cell) => cell.rewards[i]).filter((value) => typeof value === "number");
    return values.length ? reduce(values) : null;
  });
}

function mean(values) {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

/** The survival curve of a line of the table at every step from 0: it holds its value until the batch where it changes. */
function survival(line, steps) {
  const curve = line?.survival;
  const out = new Array(steps + 1).fill(null);
  if (!curve) return out;
  const last = curve.batches[curve.batches.length - 1];
  let at = 0;
  for (let step = 0; step <= Math.min(steps, last); step++) {
    while (at + 1 < curve.batches.length && curve.batches[at + 1] <= step) at += 1;
    out[step] = curve.share[at];
  }
  return out;
}

/** How a column of the table is headed and written; columns that are not here are written as they come. */
const COLUMNS = {
  n: ["n", (row) => (row.planned === undefined || row.planned === row.n ? row.n : `${row.n} of ${row.planned}`)],
  collapsed: ["Collapsed", (row) => row.collapsed],
  onsets: ["Onsets", (row) => (row.onsets || []).join(", ") || "–"],
  peak: ["Peak reward", (row) => interval(row.peak)],
  final: ["Final reward", (row) => interval(row.final)],
  survival: ["Half collapsed by", (row) => row.survival?.median ?? "–"],
  fewer: ["Fewer collapses, p", (row) => chance(row.fewer)],
  final_differs: ["Another final reward, p", (row) => chance(row.final_differs)],
  final_differs_from_tuned: ["… than tuned GRPO, p", (row) => chance(row.final_differs_from_tuned)],
  final_against_grpo: ["Final − GRPO", (row) => interval(row.final_against_grpo, fixedSigned)],
  final_against_tuned: ["Final − tuned GRPO", (row) => interval(row.final_against_tuned, fixedSigned)],
};

function chance(test) {
  if (!test) return "–";
  return `${short(test.p_corrected)}${test.smallest * test.tested > 0.05 ? " (too few runs to tell)" : ""}`;
}

function interval(value, write = fixed) {
  return value ? `${write(value.mean)} [${write(value.low)}, ${write(value.high)}]` : "–";
}

function resultTable(comparison) {
  const rows = comparison.table || [];
  if (!rows.length) return null;
  const known = Object.keys(COLUMNS);
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => !["regime", "arm", "planned"].includes(name));
  const title = (name) => (known.includes(name) ? COLUMNS[name][0] : name.replaceAll("_", " "));
  const text = (row, name) => (known.includes(name) ? COLUMNS[name][1](row) : cellText(row[name]));
  return el(
    "section",
    {},
    el("h2", {}, "Table"),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results by regime and arm" },
      el(
        "table",
        { class: "figures results" },
        el("caption", {}, "n: finished runs, which all other figures are of. Rewards: means over ten batches, then over runs, with 95 % bootstrap intervals; differences are paired by seed. p, Holm-corrected: of fewer collapses than plain GRPO in the regime (Fisher, one-sided), and of another final reward (permutation test, two-sided)."),
        el("thead", {}, el("tr", {}, ["Regime", "Arm", ...columns.map(title)].map((name) => el("th", { scope: "col" }, foreign(name))))),
        el("tbody", {}, rows.map((row, i) => el("tr", { class: i && rows[i - 1].regime !== row.regime ? "first" : "" }, el("td", {}, foreign(row.regime)), el("th", { scope: "row" }, foreign(row.arm)), columns.map((name) => el("td", {}, foreign(text(row, name))))))),
      ),
    ),
  );
}

function cellText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return short(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function cellsTable(comparison) {
  return el(
    "section",
    {},
    el("details", {}, el("summary", {}, el("h2", {}, `Runs (${comparison.cells.length})`)), el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" },
      el(
        "table",
        { class: "figures" },
        el("thead", {}, el("tr", {}, ["Regime", "Arm", "Seed", "Status", "Steps", "Onset", "Peak", "Final", "Report"].map((title) => el("th", { scope: "col" }, title)))),
        el("tbody", {}, comparison.cells.map((cell) => el("tr", {}, el("th", { scope: "row" }, foreign(cell.regime)), el("td", {}, foreign(cell.arm)), el("td", { class: "number" }, cell.seed), el("td", {}, foreign(cell.status), cell.error ? [": ", foreign(cell.error)] : ""), [cell.steps, cell.onset, cell.peak, cell.final].map((value) => el("td", { class: "number" }, typeof value === "number" ? short(value) : "–")), el("td", {}, cell.run ? el("a", { href: beside(cell.run) }, "report.html") : "")))),
      ),
    )),
  );
}

function beside(run) {
  return `./${String(run).split("/").filter((part) => part && part !== "..").map(encodeURIComponent).join("/")}/report.html`;
}

function armsTable(comparison, arms) {
  return el("section", {}, el("details", {}, el("summary", {}, el("h2", {}, "Arms")), el("table", { class: "pairs" }, el("tbody", {}, arms.map((arm) => el("tr", {}, el("th", { scope: "row" }, foreign(arm)), el("td", {}, foreign(JSON.stringify(comparison.arms?.[arm] ?? {})))))))));
}

// A comparison of objectives: reward by arm, how long the arms live, the table, and the verdict.

import { figure } from "./charts.js";
import { el, foreign } from "./dom.js";
import { count, short } from "./numbers.js";

const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];

export function comparisonSection(report) {
  const { comparison } = report;
  const regimes = [...new Set(comparison.cells.map((cell) => cell.regime))];
  const arms = Object.keys(comparison.arms || {});
  for (const cell of comparison.cells) if (!arms.includes(cell.arm)) arms.push(cell.arm);
  return [
    el("h2", { class: "unseen" }, "Comparison"),
    el("section", { "aria-labelledby": "verdict" }, el("h2", { id: "verdict" }, "Verdict"), (comparison.verdict || []).length ? (comparison.verdict || []).map((sentence) => foreign(sentence, "p", "lede")) : el("p", { class: "quiet" }, "No verdict yet.")),
    regimes.map((regime) => regimeSection(comparison, regime, arms)),
    resultTable(comparison),
    cellsTable(comparison),
    armsTable(comparison, arms),
  ];
}

function regimeSection(comparison, regime, arms) {
  const cells = comparison.cells.filter((cell) => cell.regime === regime && (cell.rewards || []).length);
  if (!cells.length) return null;
  const steps = cells.reduce((most, cell) => Math.max(most, cell.rewards.length), 0);
  const xs = Array.from({ length: steps }, (_, i) => i + 1);
  const present = arms.filter((arm) => cells.some((cell) => cell.arm === arm));
  const settings = comparison.regimes?.[regime];
  return el(
    "section",
    { class: "group" },
    el("div", { class: "heading" }, el("h2", {}, foreign(regime)), settings && el("span", { class: "quiet" }, foreign(typeof settings === "object" ? Object.entries(settings).map(([k, v]) => `${k}=${typeof v === "object" ? JSON.stringify(v) : v}`).join(", ") : settings))),
    el(
      "div",
      { class: "charts" },
      figure({ title: "Survival", about: "Share of seeds whose reward has not collapsed.", xs: [0, ...xs], series: present.map((arm, i) => ({ label: arm, colour: COLOURS[i % 6], dash: i >= 6 ? [5, 3] : undefined, values: survival(cells.filter((cell) => cell.arm === arm), steps) })), stepped: true, range: [-0.02, 1.05] }),
      figure({ title: "Mean reward by arm", about: "Over the seeds that have reached the step.", xs, series: present.map((arm, i) => ({ label: arm, colour: COLOURS[i % 6], dash: i >= 6 ? [5, 3] : undefined, values: across(cells.filter((cell) => cell.arm === arm), steps, mean) })) }),
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

/** Kaplan-Meier: cells that end without a collapse leave the count at their last step. */
function survival(cells, steps) {
  let alive = 1;
  const out = [1];
  for (let step = 1; step <= steps; step++) {
    const at = cells.filter((cell) => cell.rewards.length >= step && !(cell.onset !== null && cell.onset !== undefined && cell.onset < step)).length;
    const died = cells.filter((cell) => cell.onset === step).length;
    if (at > 0) alive *= 1 - died / at;
    out.push(at > 0 ? alive : null);
  }
  return out;
}

function resultTable(comparison) {
  const rows = comparison.table || [];
  if (!rows.length) return null;
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return el("section", {}, el("h2", {}, "Table"), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results by regime and arm" }, el("table", { class: "figures" }, el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, foreign(name.replaceAll("_", " ")))))), el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((name, i) => el(i ? "td" : "th", { scope: i ? null : "row", class: typeof row[name] === "string" ? "" : "number" }, foreign(cellText(row[name]))))))))));
}

/** A number, an interval (`{mean, low, high}`, `[low, high]`), or a text. */
function cellText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return short(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return `[${value.map((item) => (typeof item === "object" ? JSON.stringify(item) : typeof item === "number" ? short(item) : item)).join(", ")}]`;
  if (typeof value === "object") return "mean" in value && "low" in value ? `${short(value.mean)} [${short(value.low)}, ${short(value.high)}]` : Object.entries(value).map(([name, item]) => `${name} ${cellText(item)}`).join(", ");
  return String(value);
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

// What the run was: its scores, its settings, and what it ran on.

import { el, foreign } from "./dom.js";
import { fixed, fixedSigned } from "./numbers.js";

export function configurationSection(report) {
  const { recipe, environment, summary } = report.run;
  return [
    el("h2", { class: "unseen" }, "Configuration"),
    el(
      "div",
      { class: "columns" },
      el("section", {}, el("h2", {}, "Recipe"), recipe ? el("pre", { class: "yaml", tabindex: "0", role: "region", "aria-label": "recipe.yaml" }, yaml(recipe)) : el("p", { class: "quiet" }, "No recipe.yaml.")),
      el(
        "div",
        {},
        summary && el("section", {}, el("h2", {}, "Scores"), scores(summary)),
        environment && el("section", {}, el("h2", {}, "Versions"), pairs(environment.versions || {}), el("h2", {}, "Environment"), pairs(Object.fromEntries(Object.entries(environment).filter(([name]) => name !== "versions")))),
        el("section", {}, el("h2", {}, "This report"), pairs({ source: report.source, made: report.made, "made by": `sleuth ${report.version}` })),
      ),
    ),
  ];
}

function pairs(value) {
  return el(
    "table",
    { class: "pairs" },
    el("tbody", {}, Object.entries(value).map(([name, item]) => el("tr", {}, el("th", { scope: "row" }, name.replaceAll("_", " ")), el("td", {}, foreign(item === null ? "–" : typeof item === "object" ? JSON.stringify(item) : item))))),
  );
}

function scores(summary) {
  const rows = [];
  for (const mode of ["sampled", "greedy"]) {
    const { before, after, gain_em: gain } = summary[mode] || {};
    if (!before || !after) continue;
    for (const name of Object.keys(after)) {
      rows.push(
        el("tr", {}, el("th", { scope: "row" }, foreign(`${name}, ${mode}`)), el("td", { class: "number" }, interval(before[name]?.em)), el("td", { class: "number" }, interval(after[name]?.em)), el("td", { class: "number" }, name === Object.keys(after)[0] && Object.keys(after).length === 1 ? interval(gain, fixedSigned) : "")),
      );
    }
  }
  if (!rows.length) return el("p", { class: "quiet" }, "No test questions were scored.");
  return el("div", { class: "scroll" }, el("table", { class: "figures" }, el("caption", {}, "Exact match on the test questions, with 95 % intervals"), el("thead", {}, el("tr", {}, ["Set", "Before", "After", "Gain"].map((title) => el("th", { scope: "col" }, title)))), el("tbody", {}, rows)));
}

function interval(value, write = fixed) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return write(value);
  return `${write(value.mean)} [${write(value.low)}, ${write(value.high)}]`;
}

/** YAML with its keys set off from its values. */
function yaml(text) {
  return text.split("\n").flatMap((line) => {
    const match = /^(\s*(?:- )?)([\w./-]+)(:)(.*)$/.exec(line);
    if (!match) return [line, "\n"];
    return [match[1], el("span", { class: "key" }, match[2]), match[3], match[4], "\n"];
  });
}


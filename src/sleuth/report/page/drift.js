// The second section: how far the policy has moved from the one that rolled out, in its tails and in its splits.

import { figure } from "./charts.js";
import { el, fill } from "./dom.js";
import { Curves, group } from "./overview.js";
import { recall, remember } from "./place.js";

const SIGNS = [
  ["pos", "positive advantage", "--pos"],
  ["neg", "negative advantage", "--neg"],
];
const KIND_ORDER = ["think", "query", "answer", "tag", "other"];
const STATISTICS = {
  mean: "mean ratio",
  mean_log: "mean log-ratio",
  exp_mean_log: "exp of the mean log-ratio",
  q01: "1 % quantile",
  q05: "5 % quantile",
  q50: "median",
  q95: "95 % quantile",
  q99: "99 % quantile",
  min: "lowest",
  max: "highest",
  "below_0.5": "share below 0.5",
  "below_0.8": "share below 0.8",
  above_2: "share above 2",
  clipped: "share clipped",
};

export function hasDrift(run) {
  return Object.keys(run.metrics.series).some((name) => name.startsWith("ratio/"));
}

export function driftSection(report) {
  const curves = new Curves(report.run);
  return [
    el("h2", { class: "unseen" }, "Drift"),
    el("p", { class: "lede small" }, "The ratio is a token's probability under the policy as the loss sees it, by that under the policy that rolled it out. Its mean hardly moves before a collapse; its tails do."),
    group("Tails", SIGNS.map(([sign, words]) => tail(curves, sign, words)), "two"),
    group("Shares", SIGNS.map(([sign, words]) => curves.figure(`Far-off tokens, ${words}`, ["below_0.5", "below_0.8", "above_2", "clipped"].map((stat) => [`ratio/${sign}/${stat}`, { label: stat.replace("_", " ") }]), { about: "Shares of tokens." })), "two"),
    splits(curves),
    group("Rollouts and likelihood", [
      ...SIGNS.map(([sign, words]) => curves.figure(`Length-normalised ratio, ${words}`, [[`sequence/${sign}/mean`, { label: "mean" }], [`sequence/${sign}/q05`, { label: "q05", dash: [5, 3] }], [`sequence/${sign}/min`, { label: "min", faint: true }], [`sequence/${sign}/below_0.9`, { label: "share below 0.9", colour: "--c4" }]], { about: "Of whole rollouts.", lines: [1] })),
      curves.figure("Likelihood", SIGNS.map(([sign, , colour]) => [`likelihood/${sign}`, { colour }]), { about: "Mean log-prob a token, under the policy that rolled out." }),
      curves.figure("Effective sample size", ["ratio/ess"], { about: "As a share of the tokens; 1 while nothing has drifted." }),
      curves.figure("All tokens", ["ratio/mean", ["ratio/exp_mean_log", { dash: [5, 3] }]], { lines: [1] }),
      curves.figure("Clipped", ["ratio/clipped"], { about: "Share of tokens whose gradient the clip has cut off." }),
      curves.figure("Advantage mass", SIGNS.map(([sign, , colour]) => [`advantage/${sign}_mass`, { colour }]), { scale: "linear" }),
    ]),
  ];
}

function tail(curves, sign, words) {
  const name = (stat) => `ratio/${sign}/${stat}`;
  const series = [
    ["max", "--c6", { faint: true, dash: [2, 3] }],
    ["q99", "--c1"],
    ["q95", "--c3"],
    ["q50", "--ink", { dash: [5, 3] }],
    ["mean", "--muted", { faint: true }],
    ["q05", "--c3"],
    ["q01", "--c1"],
    ["min", "--c6", { faint: true, dash: [2, 3] }],
  ].map(([stat, colour, more]) => curves.series(name(stat), { label: stat, colour, ...more }));
  if (!series.some((one) => one.values.length)) return null;
  return figure({
    title: `Ratio, ${words}`,
    about: "Quantiles over the tokens of a step, lowest and highest.",
    xs: curves.metrics.steps,
    series: series.map((one) => ({ ...one, values: one.values.length ? one.values : curves.metrics.steps.map(() => null) })),
    bands: [[1, 6], [2, 5]],
    alarms: curves.alarms,
    lines: [1],
    scale: "auto",
  });
}

/** The splits of a sign that the run has a statistic for: `{kinds: [...], turns: [...]}`. */
function splitsOf(curves, sign) {
  const found = new Set();
  for (const name of curves.names((one) => one.startsWith(`ratio/${sign}/`))) {
    const parts = name.split("/");
    if (parts.length === 4) found.add(parts[2]);
  }
  const turns = [...found].filter((split) => /^turn\d/.test(split)).sort((a, b) => parseInt(a.slice(4), 10) - parseInt(b.slice(4), 10));
  const order = (kind) => (KIND_ORDER.indexOf(kind) + 1 || KIND_ORDER.length + 1);
  const kinds = [...found].filter((split) => !turns.includes(split)).sort((a, b) => order(a) - order(b));
  return { kinds, turns };
}

function splits(curves) {
  const known = SIGNS.map(([sign, words]) => ({ sign, words, ...splitsOf(curves, sign) })).filter(({ kinds, turns }) => kinds.length || turns.length);
  if (!known.length) return null;
  const offered = Object.keys(STATISTICS).filter((stat) => curves.names((name) => name.split("/").length === 4 && name.startsWith("ratio/") && name.endsWith(`/${stat}`)).length);
  let chosen = recall("statistic", "q01");
  if (!offered.includes(chosen)) chosen = offered[0];
  const charts = el("div", { class: "charts two" });
  const choice = el(
    "select",
    { id: "statistic", on: { change: () => draw(choice.value) } },
    offered.map((stat) => el("option", { value: stat, selected: stat === chosen }, STATISTICS[stat])),
  );
  const draw = (stat) => {
    remember("statistic", stat);
    const share = /^(below|above)|clipped/.test(stat);
    const figures = known.flatMap(({ sign, words, kinds, turns }) => [
      curves.figure(`By kind of token, ${words}`, kinds.map((kind) => [`ratio/${sign}/${kind}/${stat}`, { label: kind }]), { about: STATISTICS[stat], lines: share || stat === "mean_log" ? [] : [1], scale: share ? "linear" : "auto" }),
      curves.figure(`By turn, ${words}`, turns.map((turn) => [`ratio/${sign}/${turn}/${stat}`, { label: turn.replace("turn", "turn ") }]), { about: STATISTICS[stat], lines: share || stat === "mean_log" ? [] : [1], scale: share ? "linear" : "auto" }),
    ]);
    fill(charts, figures.filter(Boolean));
  };
  draw(chosen);
  return el("section", { class: "group" }, el("div", { class: "heading" }, el("h2", {}, "Splits"), el("label", { for: "statistic" }, "Statistic "), choice), charts);
}

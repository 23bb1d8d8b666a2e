// The first section: what came out, what was alarming, and the curves of the run.

import { alarmList, rollbackList } from "./alarms.js";
import { figure } from "./charts.js";
import { el, foreign } from "./dom.js";
import { count, fixed, fixedSigned, short } from "./numbers.js";

export function overviewSection(report, rows, known) {
  const run = report.run;
  const curves = new Curves(run);
  return [
    el("h2", { class: "unseen" }, "Overview"),
    lede(report),
    keyFigures(run),
    el("section", { "aria-labelledby": "alarms-title" }, el("h2", { id: "alarms-title" }, run.alarms.length ? count(run.alarms.length, "alarm") : "No alarms"), alarmsOf(run, known)),
    brokenValues(run),
    group("Outcome", outcome(curves)),
    group("Optimisation", optimisation(curves)),
    group("Behaviour", behaviour(curves)),
  ];
}

/** Figures of a run's metrics by name, with its alarms. */
export class Curves {
  constructor(run) {
    this.metrics = run.metrics;
    this.alarms = run.alarms.filter((alarm) => !alarm.givenUp);
  }

  has(name) {
    return name in this.metrics.series;
  }

  names(test) {
    return Object.keys(this.metrics.series).filter(test);
  }

  series(name, more = {}) {
    return { label: name, values: this.metrics.series[name] || [], description: this.metrics.names[name]?.text, ...more };
  }

  /** A figure of the named metrics, each a name or `[name, more]`; null where the run has none of them. */
  figure(title, names, more = {}) {
    const series = names.map((name) => (Array.isArray(name) ? name : [name, {}])).filter(([name]) => this.has(name)).map(([name, extra]) => this.series(name, extra));
    if (!series.length) return null;
    return figure({ title, xs: this.metrics.steps, series, alarms: this.alarms, ...more });
  }
}

export function group(title, figures, layout = "") {
  const shown = figures.filter(Boolean);
  return shown.length > 0 && el("section", { class: "group" }, el("h2", {}, title), el("div", { class: `charts ${layout}` }, shown));
}

function outcome(curves) {
  const same = curves.has("em") && curves.has("reward") && curves.metrics.series.em.every((value, i) => value === curves.metrics.series.reward[i]);
  return [
    curves.figure("Reward", ["reward", ...(same ? [] : [["em", { colour: "--c2" }]]), ["f1", { faint: true, colour: "--c4" }]], {
      about: same ? "The reward is exact match." : "Means over the rollouts of a step.",
    }),
    curves.figure("Dev questions", [["dev/em", { points: true }], ["dev/f1", { points: true, colour: "--c2" }]], { about: "Scored every few steps; they decide which checkpoint is kept." }),
    curves.figure("Groups without signal", ["zero_variance_groups"], { about: "All rewards of the group are equal, so nothing is learnt from it." }),
  ];
}

function optimisation(curves) {
  const terms = curves.names((name) => name.startsWith("term/"));
  const kinds = curves.names((name) => name.startsWith("entropy/"));
  return [
    curves.figure("Loss", ["loss", ...terms.map((name) => [name, { faint: true }])]),
    curves.figure("Gradient norm", ["grad_norm"], { about: "Before clipping, of a step's last update.", scale: "auto" }),
    curves.figure("Entropy", ["entropy", ...kinds.map((name) => [name, { faint: true }])], { about: "Of the policy at its tokens, in nats." }),
    curves.figure("KL to the reference", ["kl"], { scale: "auto" }),
    curves.figure("Advantage mass", [["advantage/pos_mass", { colour: "--pos" }], ["advantage/neg_mass", { colour: "--neg" }]], { about: "Sums over tokens of positive and of negative advantages, by the number of tokens." }),
    curves.figure("Learning rate", ["lr"]),
  ];
}

function behaviour(curves) {
  const outcomes = curves.names((name) => name.startsWith("share/")).filter((name) => curves.metrics.series[name].some((value) => value));
  return [
    curves.figure("Searches and turns", ["searches", "turns", ["repeated_queries", { colour: "--c4" }], ["events/repeated_queries", { colour: "--c4" }]], { about: "A rollout." }),
    curves.figure("How rollouts end", outcomes, { about: "Shares of the step's rollouts.", range: [0, 1.02] }),
    curves.figure("Form", ["format", ["degenerate", { colour: "--c4" }]], { about: "Shares: well-formed rollouts, and rollouts that repeat themselves.", range: [0, 1.02] }),
    curves.figure("Length", ["policy_tokens", ["tokens", { faint: true }]], { about: "Tokens a rollout: the policy's, and with prompt and passages." }),
  ];
}

function lede(report) {
  const { summary, finished, metrics } = report.run;
  const steps = metrics.steps.length ? metrics.steps[metrics.steps.length - 1] : 0;
  if (!summary) return el("p", { class: "lede" }, steps ? `${count(steps, "step")} so far; the run is not finished.` : "No step is done yet.");
  const gain = summary.sampled?.gain_em;
  const scores = summary.em_after !== undefined && [
    "Exact match ",
    el("strong", {}, fixed(summary.em_before)),
    " before, ",
    el("strong", {}, fixed(summary.em_after)),
    ` after, on ${count(summary.questions, "test question")}`,
    gain ? ` (gain ${fixedSigned(gain.mean)}, 95 % interval ${fixedSigned(gain.low)} to ${fixedSigned(gain.high)})` : "",
    ". ",
  ];
  return el("p", { class: "lede" }, scores, `${count(summary.steps ?? steps, "step")} of `, foreign(summary.objective ?? "training"), summary.seed !== undefined ? `, seed ${summary.seed}` : "", summary.seconds !== undefined ? `, ${duration(summary.seconds)}` : "", ".", summary.comparable === false ? " Training saw rows of a benchmark's development split: not comparable with published figures." : "");
}

function duration(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} seconds`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} minutes`;
  return `${short(seconds / 3600)} hours`;
}

const KEY = [
  ["reward", "Reward", "first and last step"],
  ["dev/em", "Dev EM", "first and last"],
  ["entropy", "Entropy", "first and last step"],
  ["grad_norm", "Gradient norm", "first and last step"],
  ["ratio/pos/min", "Lowest positive ratio", "first and last step"],
];

function keyFigures({ metrics }) {
  const items = KEY.filter(([name]) => metrics.series[name]?.some((value) => value !== null)).map(([name, label, note]) => {
    const values = metrics.series[name].filter((value) => value !== null);
    return el("div", { title: metrics.names[name]?.text || "" }, el("dt", {}, label), el("dd", {}, short(values[0]), el("span", { "aria-hidden": "true" }, " → "), el("span", { class: "unseen" }, " to "), short(values[values.length - 1])), el("dd", { class: "unseen" }, note));
  });
  return items.length > 0 && el("dl", { class: "keyfigures" }, items);
}

function alarmsOf(run, known) {
  if (!run.alarms.length) return el("p", { class: "quiet" }, "No rule found anything in this run's metrics.");
  return [
    run.afterwards && el("p", { class: "quiet" }, "Found in the metrics when this report was made; nothing was raised while the run trained."),
    alarmList(run.alarms, known),
    run.rollbacks.length > 0 && rollbackList(run.rollbacks),
  ];
}

function brokenValues({ metrics }) {
  const names = Object.entries(metrics.broken);
  if (!names.length) return null;
  return el(
    "div",
    { class: "warning", role: "note" },
    el("h3", {}, "Values that are not finite"),
    el("ul", {}, names.map(([name, steps]) => el("li", {}, el("code", {}, foreign(name)), ` at ${steps.length > 1 ? "steps" : "step"} ${steps.slice(0, 8).join(", ")}${steps.length > 8 ? ` and ${steps.length - 8} more` : ""}`))),
  );
}

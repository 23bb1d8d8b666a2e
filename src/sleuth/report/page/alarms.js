// The alarms of a run, in words.

import { el, foreign } from "./dom.js";
import { count, short } from "./numbers.js";
import { linkTo } from "./place.js";

const LEVELS = { early: "Early", late: "Late", dead: "Dead" };
const SIGNS = { pos: "positive advantage", neg: "negative advantage" };

/** The alarms, one card each; `known` maps a rollout's key (step/id) to its row. */
export function alarmList(alarms, known) {
  return el("ol", { class: "alarms" }, alarms.map((alarm, i) => el("li", { class: `alarm ${levelOf(alarm)}`, id: `alarm-${i}` }, card(alarm, i, known))));
}

function card(alarm, i, known) {
  const rollouts = rolloutsOf(alarm, known);
  const began = alarm.since !== null && alarm.since !== undefined && alarm.since !== alarm.step ? `, began at step ${alarm.since}` : "";
  return [
    el("p", { class: "what" }, el("span", { class: "level" }, LEVELS[alarm.level] || String(alarm.level)), el("strong", {}, foreign(alarm.title || alarm.rule || "alarm")), ` at step ${alarm.step}${began}`, alarm.givenUp && ", in steps that were given up"),
    el("p", {}, el("code", {}, foreign(alarm.statistic ?? "")), alarm.value === null || alarm.value === undefined ? " is not finite" : ` is ${short(alarm.value)}`, alarm.limit !== undefined && alarm.limit !== null ? `, limit ${short(alarm.limit)}` : "", placeOf(alarm) && ` (${placeOf(alarm)})`, "."),
    alarm.advice && foreign(alarm.advice, "p", "advice"),
    el(
      "p",
      { class: "evidence" },
      alarm.action && alarm.action !== "warn" ? `Action: ${alarm.action}. ` : "",
      rollouts.length > 0 && [
        "Evidence: ",
        rollouts.slice(0, 6).map((row, n) => [n ? ", " : "", el("a", { href: linkTo("rollouts", row.key) }, foreign(row.id))]),
        rollouts.length > 6 ? ` and ${count(rollouts.length - 6, "more rollout")}` : "",
      ],
    ),
  ];
}

export function levelOf(alarm) {
  return alarm.level in LEVELS ? alarm.level : "late";
}

/** A short name, for a list to choose from. */
export function nameOf(alarm) {
  return `${LEVELS[alarm.level] || alarm.level}: ${alarm.title || alarm.rule || alarm.statistic}, step ${alarm.step}`;
}

function placeOf({ where }) {
  if (!where) return "";
  return [where.sign && (SIGNS[where.sign] || where.sign), where.kind && `${where.kind} tokens`, where.turn && `turn ${where.turn}`].filter(Boolean).join(", ");
}

/** The rows of the rollouts that an alarm names, as far as the report has them. */
export function rolloutsOf(alarm, known) {
  return (alarm.rollouts || [])
    .map((named) => (named && typeof named === "object" ? known.get(`${named.step ?? alarm.step}/${named.id}`) : known.get(`${alarm.step}/${named}`)))
    .filter(Boolean);
}

/** Alarms of steps that a later rollback gave up are told, but stand on no curve: `givenUp` marks them. */
export function markGivenUp(run) {
  const rollbacks = (run.rollbacks || []).length;
  for (const alarm of run.alarms) alarm.givenUp = (alarm.rollbacks ?? rollbacks) < rollbacks;
}

export function rollbackList(rollbacks) {
  return el(
    "ul",
    { class: "rollbacks" },
    rollbacks.map(({ number, from_step: from, to_step: to, settings, before }) => {
      const changes = Object.entries(settings || {}).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before?.[name]));
      return el("li", {}, `Rollback ${number}: from step ${from} to ${to ? `the checkpoint of step ${to}` : "the start model"}`, changes.length ? [", with ", changes.map(([name, value], i) => [i ? ", " : "", el("code", {}, foreign(`${name}=${typeof value === "object" ? JSON.stringify(value) : value}`))])] : "", ".");
    }),
  );
}

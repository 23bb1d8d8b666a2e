// Every metric that the run logged, by name, with what it is.

import { figure } from "./charts.js";
import { byId, el, fill, foreign } from "./dom.js";
import { count, short } from "./numbers.js";
import { recall, remember } from "./place.js";

const MARKS = { up: "↑ is bad", down: "↓ is bad", either: "↕ may be bad", none: "" };

export function metricsSection(report) {
  const { metrics } = report.run;
  const alarms = report.run.alarms.filter((alarm) => !alarm.givenUp);
  const names = Object.keys(metrics.series).sort();
  const chart = el("div", { class: "charts one", id: "metric-chart" });
  const body = el("tbody");
  const found = el("p", { class: "quiet", role: "status" });
  const show = (name) => {
    remember("metric", name);
    fill(chart, figure({ title: name, about: metrics.names[name]?.text, xs: metrics.steps, series: [{ label: name, values: metrics.series[name] }], alarms, scale: /^ratio|grad_norm/.test(name) ? "auto" : "linear" }));
    for (const button of body.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.name === name));
  };
  const list = (text) => {
    remember("metricFilter", text);
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = names.filter((name) => words.every((word) => `${name} ${metrics.names[name]?.text || ""}`.toLowerCase().includes(word)));
    found.textContent = `${count(kept.length, "metric")}${kept.length < names.length ? ` of ${names.length}` : ""}`;
    fill(
      body,
      kept.map((name) => {
        const values = metrics.series[name].filter((value) => value !== null);
        const described = metrics.names[name];
        return el(
          "tr",
          {},
          el("th", { scope: "row" }, el("button", { type: "button", class: "link", data: { name }, "aria-pressed": String(recall("metric") === name), on: { click: () => { show(name); byId("metric-chart").scrollIntoView({ block: "nearest" }); } } }, foreign(name))),
          el("td", { class: "number" }, short(values[0] ?? null)),
          el("td", { class: "number" }, short(values[values.length - 1] ?? null)),
          el("td", { class: "number" }, short(values.length ? values.reduce((a, b) => Math.min(a, b)) : null)),
          el("td", { class: "number" }, short(values.length ? values.reduce((a, b) => Math.max(a, b)) : null)),
          el("td", { class: "meaning" }, described ? described.text : el("span", { class: "quiet" }, "not in the catalogue: a component of the reward"), described && MARKS[described.bad] ? el("span", { class: "tag" }, MARKS[described.bad]) : null),
        );
      }),
    );
  };
  const search = el("input", { type: "search", id: "metric-search", placeholder: "Filter by name or meaning", value: recall("metricFilter", ""), autocomplete: "off", on: { input: () => list(search.value) } });
  list(recall("metricFilter", ""));
  if (names.length) show(names.includes(recall("metric")) ? recall("metric") : names.includes("reward") ? "reward" : names[0]);
  return [
    el("h2", {}, "All metrics"),
    chart,
    el("div", { class: "bar" }, el("label", { for: "metric-search", class: "unseen" }, "Filter metrics"), search, found),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "All metrics" }, el("table", { class: "figures metrics" }, el("thead", {}, el("tr", {}, ["Metric", "First", "Last", "Lowest", "Highest", "What it is"].map((title) => el("th", { scope: "col" }, title)))), body)),
  ];
}

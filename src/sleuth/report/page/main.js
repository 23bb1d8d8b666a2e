// Starts the page: reads the data, and shows the section that the address names.

import { markGivenUp } from "./alarms.js";
import { dropCharts } from "./charts.js";
import { comparisonSection } from "./comparison.js";
import { configurationSection } from "./configuration.js";
import { canInflate, overview, rowsOf } from "./data.js";
import { byId, el, fill, foreign } from "./dom.js";
import { driftSection, hasDrift } from "./drift.js";
import { startKeyboard } from "./keyboard.js";
import { startLive } from "./live.js";
import { metricsSection } from "./metrics.js";
import { overviewSection } from "./overview.js";
import { go, here, linkTo, recall, remember } from "./place.js";
import { Viewer } from "./rollouts.js";
import { cycleTheme, startTheme } from "./theme.js";

let report;
let rows = [];
let known = new Map();
let viewer = null;
let sections = [];
let current = null;

function sectionsOf() {
  const { run, rollouts, comparison } = report;
  return [
    comparison && { name: "comparison", title: "Comparison", make: () => comparisonSection(report) },
    run && { name: "overview", title: "Overview", make: () => overviewSection(report, rows, known) },
    run && hasDrift(run) && { name: "drift", title: "Drift", make: () => driftSection(report) },
    rollouts && { name: "rollouts", title: "Rollouts", make: null },
    run && { name: "metrics", title: "Metrics", make: () => metricsSection(report) },
    run && { name: "configuration", title: "Configuration", make: () => configurationSection(report) },
  ].filter(Boolean);
}

async function show() {
  const place = here();
  const section = sections.find(({ name }) => name === place.section) || sections[0];
  const main = byId("content");
  if (section.name !== current) {
    if (current) remember(`scroll:${current}`, scrollY);
    dropCharts();
    current = section.name;
    document.body.dataset.section = current;
    for (const link of byId("sections").querySelectorAll("a")) {
      if (link.getAttribute("href") === linkTo(current)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (section.name === "rollouts") {
      viewer = viewer || new Viewer(report, rows, known);
      fill(main, viewer.node);
    } else fill(main, el("div", { class: "section" }, notesOf(section.name), section.make()));
    scrollTo(0, recall(`scroll:${current}`, 0));
  }
  if (section.name === "rollouts") await viewer.open(place.rollout);
  document.title = `${report.title} · ${section.title}`;
}

function notesOf(section) {
  const shown = section === "configuration" ? [] : report.notes;
  return shown.length > 0 && section !== "rollouts" && !report.rollouts ? el("ul", { class: "notes" }, shown.map((note) => foreign(note, "li"))) : null;
}

function key(name) {
  const digit = /^[1-9]$/.test(name) ? sections[Number(name) - 1] : null;
  if (digit) go(digit.name);
  else if (name === "t") cycleTheme();
  else return current === "rollouts" && viewer.key(name);
  return true;
}

function stateOf() {
  if (!report.run) return report.kind === "comparison" ? "comparison" : "rollouts";
  return report.run.finished ? "run, finished" : "run, not finished";
}

async function start() {
  startTheme();
  const main = byId("content");
  if (!canInflate()) {
    fill(main, el("p", { class: "loading" }, "This browser is too old to unpack the report (it lacks DecompressionStream): open it in Firefox 113, Chrome 80 or Safari 16.4, or later."));
    return;
  }
  report = await overview();
  if (report.rollouts) {
    rows = rowsOf(report.rollouts);
    known = new Map(rows.map((row) => [row.key, row]));
  }
  if (report.run) markGivenUp(report.run);
  sections = sectionsOf();
  byId("title").textContent = report.title;
  byId("state").textContent = stateOf();
  fill(byId("sections"), sections.map(({ name, title }) => el("a", { href: linkTo(name) }, title)));
  startKeyboard(key);
  startLive(report.live);
  addEventListener("hashchange", show);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // The address says where the reader is; this link only moves the focus.
    main.focus();
  });
  addEventListener("pagehide", () => remember(`scroll:${current}`, scrollY));
  await show();
  document.documentElement.dataset.ready = "true";
}

start();

// The list of rollouts: a real table, drawn a page at a time, with its filters.

import { nameOf, rolloutsOf } from "./alarms.js";
import { byId, el, fill, foreign, say } from "./dom.js";
import { EMPTY, groupKey, holding, isEmpty, matching, mixedGroups, SORTS, sorted } from "./filters.js";
import { count, short } from "./numbers.js";
import { go, linkTo, recall, remember } from "./place.js";

const PAGE = 150;
const STATUSES = { answered: "answered", no_answer: "no answer", truncated: "truncated", retriever_failed: "retriever failed", aborted: "aborted" };

export function statusName(status) {
  return STATUSES[status] || status;
}

export class RolloutList {
  /** `select`: told the row that the reader has moved to. */
  constructor(report, rows, known, select) {
    this.report = report;
    this.rows = rows;
    this.select = select;
    this.alarms = report.run ? report.run.alarms : [];
    this.alarmed = this.alarms.map((alarm) => new Set(rolloutsOf(alarm, known).map((row) => row.key)));
    this.flagged = new Set(this.alarmed.flatMap((keys) => [...keys]));
    this.mixed = mixedGroups(rows);
    this.filter = { ...EMPTY, ...recall("filter", {}) };
    this.shown = [];
    this.drawn = 0;
    this.current = null;
    this.asked = 0;
    this.node = el("section", { class: "list", "aria-label": "Rollouts" }, this.form(), this.notes(), this.table());
  }

  form() {
    this.inputs = {};
    const input = (name, attributes) => (this.inputs[name] = el("input", { name, autocomplete: "off", value: this.filter[name], on: { input: () => this.changed(name) }, ...attributes }));
    const select = (name, label, options) =>
      el(
        "label",
        { class: "choice" },
        el("span", {}, label),
        (this.inputs[name] = el("select", { name, on: { change: () => this.changed(name) } }, options.map(([value, text]) => el("option", { value, selected: String(this.filter[name]) === value }, text)))),
      );
    const range = (label, first, last, step) => el("fieldset", { class: "range" }, el("legend", {}, label), input(first, { type: "number", step, "aria-label": `${label} from`, placeholder: "from" }), input(last, { type: "number", step, "aria-label": `${label} to`, placeholder: "to" }));
    const statuses = [...new Set(this.rows.map((row) => row.status))];
    const with_ = (test) => this.rows.filter(test).length;
    const steps = new Set(this.rows.map((row) => row.step)).size;
    const more = el(
      "details",
      { class: "filters", open: recall("filtersOpen", matchMedia("(min-width: 900px)").matches) },
      el("summary", {}, "Filter and sort"),
      el(
        "div",
        { class: "grid" },
        select("status", "Status", [["", "any"], ...statuses.map((status) => [status, `${statusName(status)} (${with_((row) => row.status === status)})`])]),
        range("Reward", "low", "high", "any"),
        steps > 1 && range("Step", "from", "to", "1"),
        this.alarms.length > 0 && select("alarm", "Alarm", [["", "any or none"], ["any", "named by an alarm"], ...this.alarms.map((alarm, i) => [String(i), nameOf(alarm)])]),
        with_((row) => row.found !== null) > 0 && select("evidence", "Golden answer in a passage", [["", "any"], ["found", `found (${with_((row) => row.found === true)})`], ["missed", `not found (${with_((row) => row.found === false)})`]]),
        select("form", "Format", [["", "any"], ["valid", `valid (${with_((row) => row.format)})`], ["invalid", `invalid (${with_((row) => !row.format)})`]]),
        select("group", "Siblings", [["", "any"], ["mixed", "rewards differ"], ["same", "rewards all equal"]]),
        el("label", { class: "choice" }, el("span", {}, "Sort by"), (this.inputs.sort = el("select", { name: "sort", on: { change: () => this.changed("sort") } }, Object.entries(SORTS).map(([name, [title]]) => el("option", { value: name, selected: this.filter.sort === name }, title))))),
      ),
    );
    more.addEventListener("toggle", () => remember("filtersOpen", more.open));
    this.found = el("p", { class: "found", role: "status" });
    this.clear = el("button", { type: "button", class: "quiet-button", hidden: true, on: { click: () => this.reset() } }, "Clear filters");
    return el(
      "form",
      { role: "search", "aria-label": "Rollouts", on: { submit: (event) => event.preventDefault() } },
      el("label", { for: "search", class: "unseen" }, "Search in questions, answers, queries, thoughts and passages"),
      input("text", { type: "search", id: "search", placeholder: "Search everything   /" }),
      more,
      el("div", { class: "bar" }, this.found, this.clear),
    );
  }

  notes() {
    return this.report.notes.length > 0 && el("ul", { class: "notes" }, this.report.notes.map((note) => foreign(note, "li")));
  }

  table() {
    const head = (name, title, className = "") =>
      el("th", { scope: "col", class: className, data: { sort: name } }, el("button", { type: "button", on: { click: () => this.sortBy(name) } }, title));
    this.headers = el("tr", {}, head("step", "Step"), head("question", "Question and answer"), head("reward", "Reward", "number"), head("lowest", "Low r", "number"));
    this.body = el("tbody");
    this.end = el("button", { type: "button", class: "quiet-button more", hidden: true, on: { click: () => this.draw() } }, "Show more");
    new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && this.draw(), { rootMargin: "600px" }).observe(this.end);
    return el("div", { class: "rows" }, el("table", {}, el("caption", { class: "unseen" }, "Rollouts; a link opens one"), el("thead", {}, this.headers), this.body), this.end);
  }

  changed(name) {
    this.filter[name] = this.inputs[name].value;
    if (name === "sort") this.filter.down = ["reward", "advantage", "highest"].includes(this.filter.sort);
    this.update();
  }

  sortBy(name) {
    this.filter.down = this.filter.sort === name ? !this.filter.down : ["reward", "advantage", "highest"].includes(name);
    this.filter.sort = name;
    this.inputs.sort.value = name;
    this.update();
  }

  reset() {
    Object.assign(this.filter, { ...EMPTY, sort: this.filter.sort, down: this.filter.down });
    for (const [name, input] of Object.entries(this.inputs)) if (name !== "sort") input.value = this.filter[name];
    this.update();
    this.inputs.text.focus();
  }

  /** Filters anew. Searching inflates what it has to read, so it may take a moment; a newer filter ends an older one. */
  async update() {
    const turn = ++this.asked;
    remember("filter", this.filter);
    for (const header of this.headers.children) {
      const on = header.dataset.sort === this.filter.sort;
      if (on) header.setAttribute("aria-sort", this.filter.down ? "descending" : "ascending");
      else header.removeAttribute("aria-sort");
    }
    let rows = matching(this.rows, this.filter, this.alarmed, this.mixed);
    if (this.filter.text.trim()) {
      this.found.textContent = "Searching…";
      rows = await holding(rows, this.filter.text, this.report.rollouts, () => turn === this.asked);
      if (rows === null) return;
    }
    this.shown = sorted(rows, this.filter);
    this.places = new Map(this.shown.map((row, i) => [row.key, i]));
    this.found.textContent = rows.length === this.rows.length ? count(rows.length, "rollout") : `${count(rows.length, "rollout")} of ${this.rows.length.toLocaleString("en")}`;
    this.clear.hidden = isEmpty(this.filter);
    this.drawn = 0;
    fill(this.body);
    if (!this.shown.length) fill(this.body, el("tr", {}, el("td", { colspan: "4", class: "nothing" }, "No rollout passes these filters.")));
    this.draw();
    this.mark(this.current, { scroll: true });
  }

  /** Draws the next page of rows, or as many as it takes to reach row `upTo`. */
  draw(upTo = this.drawn) {
    const until = Math.min(Math.max(this.drawn + PAGE, upTo + 1), this.shown.length);
    if (until > this.drawn) {
      const rows = document.createDocumentFragment();
      for (let i = this.drawn; i < until; i++) rows.append(this.rowOf(this.shown[i], this.shown[i - 1]));
      this.body.append(rows);
      this.drawn = until;
    }
    this.end.hidden = this.drawn >= this.shown.length;
  }

  /** Below a sibling the question is not seen again. */
  rowOf(row, above) {
    const again = above && groupKey(above) === groupKey(row);
    const marks = [
      this.flagged.has(row.key) && el("span", { class: "tag alarmed" }, "⚑ alarm"),
      row.status !== "answered" && el("span", { class: `tag ${row.status}` }, statusName(row.status)),
      !row.format && el("span", { class: "tag" }, "format"),
      row.found === true && row.reward === 0 && el("span", { class: "tag", title: "A golden answer stands in a passage that this rollout was shown" }, "evidence seen"),
    ];
    return el(
      "tr",
      { class: again ? "again" : "", data: { key: row.key }, on: { click: (event) => event.target.closest("a") || go("rollouts", row.key) } },
      el("td", { class: "number" }, again ? el("span", { class: "unseen" }, row.step) : row.step),
      el("td", {}, el("a", { href: linkTo("rollouts", row.key) }, foreign(row.asked, "span", again ? "question unseen" : "question"), el("span", { class: "answer" }, row.answer === null ? "no answer" : foreign(row.answer), marks))),
      el("td", { class: "number" }, el("span", { class: `reward ${rewardClass(row.reward)}` }, short(row.reward))),
      el("td", { class: "number" }, short(row.lowest, 2)),
    );
  }

  /** Marks the row of `key` as the one that is open. */
  mark(key, { scroll = false } = {}) {
    this.body.querySelector('[aria-current="true"]')?.removeAttribute("aria-current");
    this.current = key;
    const place = key === null ? undefined : this.places?.get(key);
    if (place === undefined) return;
    if (place >= this.drawn) this.draw(place);
    const row = this.body.children[place];
    row.setAttribute("aria-current", "true");
    if (scroll) row.scrollIntoView({ block: "nearest" });
  }

  /** Moves `by` rows down the list, or up, and says where that is. */
  step(by) {
    if (!this.shown.length) return;
    const place = this.places.get(this.current);
    const next = place === undefined ? 0 : Math.max(0, Math.min(this.shown.length - 1, place + by));
    const row = this.shown[next];
    this.select(row);
    say(`Rollout ${next + 1} of ${this.shown.length}: ${row.asked}; ${statusName(row.status)}, reward ${short(row.reward)}`);
  }

  focusSearch() {
    byId("search").focus();
    byId("search").select();
  }
}

export function rewardClass(reward) {
  return reward === null || Number.isNaN(reward) ? "none" : reward > 0 ? "good" : reward < 0 ? "bad" : "zero";
}

// One rollout: its question and siblings, why it got its reward, and its turns.

import { nameOf } from "./alarms.js";
import { detailOf } from "./data.js";
import { add, el, fill, foreign } from "./dom.js";
import { groupKey } from "./filters.js";
import { highlighted } from "./highlight.js";
import { count, fixed, short, signed } from "./numbers.js";
import { linkTo, recall, remember } from "./place.js";
import { rewardClass, statusName } from "./rollout_list.js";
import { partsTable, policyText, readout, scaleOf, SHADES, shadesOf } from "./tokens.js";

export class RolloutDetail {
  constructor(report, rows, list) {
    this.report = report;
    this.rollouts = report.rollouts;
    this.list = list;
    this.groups = new Map();
    for (const row of rows) {
      const key = groupKey(row);
      if (!this.groups.has(key)) this.groups.set(key, []);
      this.groups.get(key).push(row);
    }
    this.shade = recall("shade", "ratio");
    this.compared = recall("compared", false);
    this.painters = [];
    this.row = null;
    this.node = el("article", { class: "detail", tabindex: "-1", "aria-label": "Rollout" });
    this.empty();
  }

  empty() {
    this.row = null;
    fill(this.node, el("p", { class: "nothing" }, "Choose a rollout from the list, or press ", el("kbd", {}, "j"), "."));
  }

  siblings(row = this.row) {
    return row ? this.groups.get(groupKey(row)) : [];
  }

  /** The sibling `by` places on. */
  sibling(by) {
    const all = this.siblings();
    return all[(all.indexOf(this.row) + by + all.length) % all.length];
  }

  async show(row, { keepScroll = false } = {}) {
    this.row = row;
    const siblings = this.siblings(row);
    const details = await Promise.all((this.compared ? siblings : [row]).map((one) => detailOf(this.rollouts, one.n)));
    if (this.row !== row) return; // The reader has moved on meanwhile.
    this.painters = [];
    const own = details[this.compared ? siblings.indexOf(row) : 0];
    const bar = this.shadeBar(own);
    fill(
      this.node,
      el("a", { class: "back", href: linkTo("rollouts") }, "← All rollouts"),
      this.heading(row, own),
      this.siblingCards(row, siblings),
      this.compared ? null : why(row, own, this.rollouts),
      this.compared || !own.anchors ? null : anchors(own.anchors),
      bar.node,
      this.compared ? this.sideBySide(siblings, details, row) : el("section", { "aria-label": "Turns" }, this.transcript(row, own)),
      this.compared || !own.extra ? null : el("details", { class: "extra" }, el("summary", {}, "Other fields of this rollout"), el("pre", { class: "foreign", dir: "auto" }, own.extra)),
    );
    bar.paint();
    if (!keepScroll) this.node.scrollTop = 0;
  }

  heading(row) {
    const alarms = this.list.alarms.filter((_, i) => this.list.alarmed[i].has(row.key));
    return el(
      "header",
      {},
      el("p", { class: "where" }, `Step ${row.step} · `, foreign(row.id), row.source ? [" · ", foreign(row.source)] : "", " · ", el("span", { class: `tag ${row.status}` }, statusName(row.status)), alarms.map((alarm) => el("span", { class: "tag alarmed" }, "⚑ ", foreign(nameOf(alarm))))),
      el("h2", { class: "asked" }, foreign(row.asked)),
      el("p", { class: "golden" }, el("span", { class: "quiet" }, row.golden.length === 1 ? "Golden answer " : "Golden answers "), row.golden.map((answer) => foreign(answer, "mark"))),
    );
  }

  siblingCards(row, siblings) {
    if (siblings.length < 2) return null;
    const toggle = el("button", { type: "button", class: "quiet-button", "aria-pressed": String(this.compared), on: { click: () => this.toggleCompare() } }, this.compared ? "One at a time" : "Turns side by side", " ", el("kbd", {}, "c"));
    const cards = siblings.map((one, i) =>
      el(
        "li",
        {},
        el(
          "a",
          { href: linkTo("rollouts", one.key), class: "card", "aria-current": one === row ? "true" : null },
          el("span", { class: "top" }, el("span", { class: `reward ${rewardClass(one.reward)}` }, short(one.reward)), el("span", { class: "quiet" }, one.advantage === null ? "" : `A ${signed(one.advantage, 2)}`), el("span", { class: "unseen" }, `Sibling ${i + 1}, ${statusName(one.status)}: `)),
          one.answer === null ? el("span", { class: "quiet" }, statusName(one.status)) : foreign(one.answer, "strong"),
          el("ol", { class: "path", "aria-label": "Queries" }, one.queries.map((query) => foreign(query, "li"))),
        ),
      ),
    );
    const strip = el("ol", { class: "siblings" }, cards);
    const mixed = new Set(siblings.map((one) => one.reward)).size > 1;
    queueMicrotask(() => strip.querySelector('[aria-current="true"]')?.scrollIntoView?.({ block: "nearest", inline: "nearest" }));
    return el("section", { "aria-labelledby": "siblings-title" }, el("div", { class: "heading" }, el("h3", { id: "siblings-title" }, `${count(siblings.length, "sibling")} of this question`), mixed ? null : el("span", { class: "quiet" }, "all rewards equal: no signal"), toggle), strip);
  }

  toggleCompare() {
    this.compared = !this.compared;
    remember("compared", this.compared);
    if (this.row) this.show(this.row, { keepScroll: true });
  }

  shadeBar(detail) {
    const offered = shadesOf(detail);
    const shade = () => (offered.includes(this.shade) ? this.shade : offered.includes("advantage") ? "advantage" : offered[offered.length - 1]);
    const about = el("p", { class: "about" });
    const read = readout();
    const paint = () => {
      const now = shade();
      about.textContent = `${SHADES[now][1]}${now === "advantage" ? ` Objective: ${this.rollouts.objective}.` : ""}`;
      for (const painter of this.painters) painter(now);
      for (const input of node.querySelectorAll("input")) input.checked = input.value === now;
    };
    const choose = (name) => {
      this.shade = name;
      remember("shade", name);
      paint();
    };
    const node = el(
      "div",
      { class: "shades" },
      el("fieldset", {}, el("legend", {}, "Shade tokens by"), offered.map((name) => el("label", {}, el("input", { type: "radio", name: "shade", value: name, on: { change: () => choose(name) } }), el("span", {}, SHADES[name][0])))),
      about,
      read.node,
    );
    this.nextShade = () => choose(offered[(offered.indexOf(shade()) + 1) % offered.length]);
    this.read = read;
    return { node, paint };
  }

  sideBySide(siblings, details, row) {
    return el(
      "section",
      { class: "compare scroll", tabindex: "0", "aria-label": "Turns of all siblings side by side" },
      siblings.map((one, i) =>
        el("section", { class: one === row ? "column own" : "column", "aria-label": `Sibling ${i + 1}` }, el("h4", {}, el("a", { href: linkTo("rollouts", one.key) }, foreign(one.id)), " ", el("span", { class: `reward ${rewardClass(one.reward)}` }, short(one.reward))), this.transcript(one, details[i])),
      ),
    );
  }

  /** The turns as a tree: what the policy wrote, what it asked for, and what came back. */
  transcript(row, detail) {
    const scale = scaleOf(detail);
    const root = el("ol", { class: "turns" });
    let turn = null;
    let number = 0;
    for (const span of detail.spans) {
      if (span.kind === "policy") {
        number += 1;
        turn = this.turn(span, number, scale);
        root.append(turn.node);
      } else if (turn && span.kind === "observation") {
        add(turn.children, [observation(span, row, detail)]);
        turn.note(span, row);
      } else {
        const title = span.kind === "prompt" ? "Prompt" : span.kind === "hint" ? "Hint" : "Environment";
        const item = el("li", { class: "aside" }, el("details", { open: span.kind === "hint" }, el("summary", {}, title, el("span", { class: "quiet" }, ` ${count(span.tokens, "token")}, not trained`)), foreign(span.text, "p", "environment")));
        (turn ? turn.children : root).append(item);
      }
    }
    return root;
  }

  turn(span, number, scale) {
    const { node: text, paint } = policyText(span, scale);
    this.painters.push(paint);
    const over = (event) => {
      const token = event.target.closest(".token");
      if (token) this.read.show(span, Number(token.dataset.i));
    };
    text.addEventListener("pointerover", over);
    text.addEventListener("click", over);
    const result = el("span", { class: "result" });
    const children = el("ul", { class: "children" });
    const table = el("details", { class: "numbers" }, el("summary", {}, "Numbers by part"));
    table.addEventListener("toggle", () => table.open && table.childElementCount === 1 && table.append(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Turn ${number}: numbers by part` }, partsTable(span))));
    const node = el("li", { class: "turn" }, el("details", { open: true }, el("summary", {}, el("span", { class: "number" }, `Turn ${number}`), " ", actionOf(span), teacherOf(span), result), text, table, children));
    return {
      node,
      children,
      note: (observed, row) => {
        if (!observed.documents) return;
        const found = observed.documents.some((document) => highlighted(document.text, row.golden).found);
        fill(result, ` → ${count(observed.documents.length, "hit")}`, found ? el("span", { class: "tag seen" }, "golden answer among them") : "");
      },
    };
  }
}

function actionOf(span) {
  const { action } = span;
  if (!action) return el("span", { class: "quiet" }, span.stop === "length" ? "cut by its token limit" : "no action recorded");
  if (action.type === "search") return [el("span", { class: "verb" }, "search "), foreign(action.query, "q")];
  if (action.type === "answer") return [el("span", { class: "verb" }, "answer "), foreign(action.text, "q")];
  if (action.type === "tool") return [el("span", { class: "verb" }, "tool "), foreign(`${action.name} ${JSON.stringify(action.arguments)}`, "code")];
  return el("span", { class: "tag invalid" }, `invalid: ${(action.problem || "no action").replaceAll("_", " ")}`);
}

/** What the teacher thought of this step, and whether it kept its share of the penalty. */
function teacherOf(span) {
  if (span.gain === undefined || span.gain === null) return "";
  return el("span", { class: "tag teacher", title: "Log-probability under the teacher less that under the policy, summed over the step, in nats" }, `teacher ${signed(span.gain, 2)}`, span.weighed ? `, ${span.weighed}` : "");
}

function anchors(shown) {
  return el("details", { class: "anchors", open: true }, el("summary", {}, el("h3", {}, "What the teacher was shown")), el("ul", {}, shown.map(([title, explanation]) => el("li", {}, foreign(title, "strong"), ": ", foreign(explanation)))));
}

function observation(span, row, detail) {
  const supporting = new Set(detail.supporting);
  if (!span.documents) return el("li", { class: "aside" }, el("details", { open: true }, el("summary", {}, "Observation", el("span", { class: "quiet" }, ` ${count(span.tokens, "token")}, not trained`)), foreign(span.text, "p", "environment")));
  const hits = span.documents.map((document, i) => {
    const { node, found } = highlighted(document.text, row.golden);
    return el(
      "li",
      { class: "hit" },
      el(
        "details",
        { open: found },
        el("summary", {}, el("span", { class: "rank" }, i + 1), foreign(document.title || document.id, "span", "title"), found ? el("span", { class: "tag seen" }, "golden answer") : "", supporting.has(document.title) ? el("span", { class: "tag" }, "supporting") : "", el("span", { class: "quiet" }, document.score === null ? "" : ` ${short(document.score)}`)),
        document.text ? el("p", { class: "passage foreign", dir: "auto" }, node) : el("p", { class: "quiet" }, "The rollouts file holds no text of this passage."),
      ),
    );
  });
  return [
    hits.length ? hits : el("li", { class: "quiet" }, "Nothing found."),
    el("li", { class: "aside" }, el("details", {}, el("summary", {}, "As the policy saw it", el("span", { class: "quiet" }, ` ${count(span.tokens, "token")}, not trained${span.truncated ? ", cut to the observation's limit" : ""}`)), foreign(span.text, "p", "environment"))),
  ];
}

/** Why this reward: the answer against the golden ones, the components, and what was ill-formed. */
function why(row, detail, rollouts) {
  const { why: reasons } = detail;
  const weighted = reasons.components.some(([, , weight]) => weight !== null);
  const components = reasons.components.filter(([, , weight]) => !weighted || weight);
  const others = reasons.components.filter((one) => !components.includes(one));
  return el(
    "details",
    { class: "why", open: recall("whyOpen", true), on: { toggle: (event) => remember("whyOpen", event.target.open) } },
    el("summary", {}, el("h3", {}, "Why ", el("span", { class: `reward ${rewardClass(row.reward)}` }, row.reward === null ? "no reward" : `reward ${short(row.reward)}`)), row.advantage === null ? "" : el("span", { class: "quiet" }, `advantage ${signed(row.advantage)} (${rollouts.objective})`)),
    el(
      "div",
      { class: "reasons" },
      el("p", {}, reasons.end, detail.error ? [" Error: ", foreign(detail.error, "code")] : ""),
      el(
        "table",
        { class: "compare-answers" },
        el("caption", { class: "unseen" }, "The answer and the golden answers, as the grader compares them"),
        el("thead", {}, el("tr", {}, ["", "As written", `As compared (${rollouts.grader})`, ""].map((title) => el("th", { scope: "col" }, title)))),
        el(
          "tbody",
          {},
          el("tr", {}, el("th", { scope: "row" }, "Answer"), el("td", {}, row.answer === null ? "none" : foreign(row.answer)), el("td", {}, reasons.answer === null ? "–" : foreign(reasons.answer, "code")), el("td")),
          reasons.golden.map(([gold, normal, same]) => el("tr", {}, el("th", { scope: "row" }, "Golden"), el("td", {}, foreign(gold)), el("td", {}, foreign(normal, "code")), el("td", { class: same ? "same" : "differs" }, same ? "✓ same" : "✗ differs"))),
        ),
      ),
      components.length > 0 &&
        el(
          "table",
          { class: "figures" },
          el("thead", {}, el("tr", {}, ["Component", "Value", ...(weighted ? ["Weight", "Adds"] : [])].map((title, i) => el("th", { scope: "col", class: i ? "number" : "" }, title)))),
          el("tbody", {}, components.map(([name, value, weight]) => el("tr", {}, el("th", { scope: "row" }, foreign(name)), el("td", { class: "number" }, fixed(value)), weighted ? [el("td", { class: "number" }, short(weight)), el("td", { class: "number" }, signed(Number(value) * weight))] : ""))),
        ),
      rollouts.function && el("p", { class: "quiet" }, "The reward is a function of the run's own: ", foreign(rollouts.function, "code"), "."),
      others.length > 0 && el("p", { class: "quiet" }, "Not rewarded: ", others.map(([name, value], i) => [i ? ", " : "", foreign(name), ` ${short(value)}`]), "."),
      reasons.problems.length > 0 ? el("div", {}, el("h4", {}, "Format problems"), el("ul", {}, reasons.problems.map((problem) => el("li", {}, problem)))) : el("p", { class: "quiet" }, row.format ? "The format is valid." : ""),
      reasons.events.length > 0 && el("p", { class: "quiet" }, "Counted: ", reasons.events.map(([name, n], i) => [i ? ", " : "", `${n} `, foreign(name)]), "."),
    ),
  );
}

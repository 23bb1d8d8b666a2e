// Keys, and the dialog that lists them.

import { byId, el, fill } from "./dom.js";

const KEYS = [
  ["j, ↓", "next rollout of the list"],
  ["k, ↑", "previous rollout"],
  ["→, ←", "next, previous sibling"],
  ["/", "search"],
  ["s", "next shading of the tokens"],
  ["c", "siblings side by side, or one at a time"],
  ["Enter", "into the open rollout, to scroll by keys"],
  ["1 … 6", "sections"],
  ["t", "light, dark, or as the system"],
  ["Esc", "close this, leave a field, or go back to the list"],
  ["?", "this list"],
];

/** `act(name)`: told of keys that nobody else uses; `true` where it did something. */
export function startKeyboard(act) {
  const help = byId("help");
  fill(help, el("h2", { id: "help-title" }, "Keys"), el("dl", {}, KEYS.map(([key, does]) => el("div", {}, el("dt", {}, key.split(", ").map((one, i) => [i ? " " : "", el("kbd", {}, one)])), el("dd", {}, does)))), el("form", { method: "dialog" }, el("button", {}, "Close")));
  byId("keys").addEventListener("click", () => help.showModal());
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const field = event.target.closest?.("input, select, textarea");
    if (field && field.type !== "radio") {
      if (event.key === "Escape") field.blur();
      return;
    }
    const scrolls = event.target.closest?.(".detail, .scroll, pre") && /^Arrow(Up|Down)$/.test(event.key);
    const radio = field && event.key.startsWith("Arrow");
    if (scrolls || radio || (event.key === "Enter" && event.target.closest?.("a, button, summary"))) return;
    if (event.key === "?") help.showModal();
    else if (!act(event.key)) return;
    event.preventDefault();
  });
}

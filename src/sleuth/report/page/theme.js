// Light, dark, or as the system has it.

import { byId, fill } from "./dom.js";
import { recall, remember } from "./place.js";

const NAMES = { auto: "Auto", light: "Light", dark: "Dark" };
const system = matchMedia("(prefers-color-scheme: dark)");
let choice = recall("theme", "auto");
const redraw = [];

/** Calls `listener` when colours have changed. */
export function onTheme(listener) {
  redraw.push(listener);
}

/** The value of a custom property, such as `--ink`. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function apply() {
  const dark = choice === "dark" || (choice === "auto" && system.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const button = byId("theme");
  fill(button, NAMES[choice]);
  button.setAttribute("aria-label", `Colours: ${NAMES[choice]}; press to change`);
}

export function cycleTheme() {
  const order = Object.keys(NAMES);
  choice = order[(order.indexOf(choice) + 1) % order.length];
  remember("theme", choice);
  apply();
  redraw.forEach((listener) => listener());
}

export function startTheme() {
  apply();
  byId("theme").addEventListener("click", cycleTheme);
  system.addEventListener("change", () => {
    apply();
    redraw.forEach((listener) => listener());
  });
}

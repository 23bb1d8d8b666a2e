// While a run goes on, its report is made again and again: the page loads itself anew, and the reader stays in place.

import { byId, fill } from "./dom.js";
import { recall, remember } from "./place.js";

const IDLE = 5000; // Milliseconds without a key or a click before the page loads itself anew.
let touched = 0;

/** `every`: seconds between two loads, null where the report is final. */
export function startLive(every) {
  const button = byId("live");
  if (!every) return;
  button.hidden = false;
  for (const event of ["keydown", "pointerdown", "wheel", "input"]) addEventListener(event, () => (touched = Date.now()), { passive: true });
  const show = () => {
    const paused = recall("paused", false);
    fill(button, paused ? "Paused" : "Live");
    button.setAttribute("aria-pressed", String(!paused));
    button.setAttribute("aria-label", paused ? "Paused; press to follow the run again" : `Follows the run, every ${every} seconds; press to pause`);
  };
  button.addEventListener("click", () => {
    remember("paused", !recall("paused", false));
    show();
  });
  show();
  setInterval(() => {
    const selecting = getSelection && !getSelection().isCollapsed;
    if (recall("paused", false) || document.hidden || selecting || byId("help").open || Date.now() - touched < IDLE) return;
    location.reload();
  }, every * 1000);
}

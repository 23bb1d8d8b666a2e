// Where the reader is: the section and rollout in the address, everything else in the tab's own storage, so that a
// reload (by the reader, or by the page itself while a run goes on) comes back to the same place.

const KEY = `sleuth:${location.pathname}`;
let memory = {};

try {
  memory = JSON.parse(sessionStorage.getItem(KEY) || "{}");
} catch {
  memory = {};
}

/** A remembered value, or `otherwise`. */
export function recall(name, otherwise) {
  return name in memory ? memory[name] : otherwise;
}

export function remember(name, value) {
  memory[name] = value;
  try {
    sessionStorage.setItem(KEY, JSON.stringify(memory));
  } catch {
    // Storage may be off; the page then forgets at a reload, and nothing else changes.
  }
}

/** `{section, rollout}` of the address: `#rollouts/12/q17-3` is rollout `12/q17-3`. */
export function here() {
  const [section, ...rest] = location.hash.slice(1).split("/");
  let rollout = null;
  try {
    rollout = rest.length ? decodeURIComponent(rest.join("/")) : null;
  } catch {
    rollout = null;
  }
  return { section, rollout };
}

export function linkTo(section, rollout = null) {
  return rollout === null ? `#${section}` : `#${section}/${encodeURIComponent(rollout)}`;
}

export function go(section, rollout = null, { replace = false } = {}) {
  const link = linkTo(section, rollout);
  if (link === location.hash) return;
  if (replace) {
    history.replaceState(null, "", link);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = link;
  }
}

// Elements are made here alone. Text goes in as text nodes: no string ever becomes markup.

/** An element. `attributes`: `class`, `on` (listeners by event), `data`, properties of the DOM, or attributes. */
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "href") node.setAttribute("href", safeLink(value));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Text that a model, a retriever or a user wrote: its direction is its own and reaches no further. */
export function foreign(text, tag = "span", className = "") {
  return el(tag, { class: `foreign ${className}`.trim(), dir: "auto" }, text);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Replaces what is in `node`. */
export function fill(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

/** Tells a screen reader. */
export function say(text) {
  byId("spoken").textContent = text;
}

// Only places in this page and files beside it.
function safeLink(link) {
  return /^(#|\.\/)/.test(link) ? link : "#";
}

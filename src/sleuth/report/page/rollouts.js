// The rollout viewer: the list beside the rollout that is open.

import { el } from "./dom.js";
import { go } from "./place.js";
import { RolloutDetail } from "./rollout_detail.js";
import { RolloutList } from "./rollout_list.js";

export class Viewer {
  constructor(report, rows, known) {
    this.known = known;
    this.list = new RolloutList(report, rows, known, (row) => go("rollouts", row.key, { replace: true }));
    this.detail = new RolloutDetail(report, rows, this.list);
    this.node = el("div", { class: "viewer" }, el("h2", { class: "unseen" }, "Rollouts"), this.list.node, this.detail.node);
    this.ready = this.list.update();
  }

  /** Opens the rollout of this key; null: none. */
  async open(key) {
    await this.ready;
    const row = key === null ? null : this.known.get(key);
    this.node.classList.toggle("open", Boolean(row));
    this.list.mark(row ? row.key : null, { scroll: true });
    if (row) {
      if (row !== this.detail.row) await this.detail.show(row);
    } else this.detail.empty();
  }

  /** What a key does here; true where it did something. */
  key(name) {
    const { list, detail } = this;
    if (name === "j" || name === "ArrowDown") list.step(1);
    else if (name === "k" || name === "ArrowUp") list.step(-1);
    else if ((name === "ArrowRight" || name === "ArrowLeft") && detail.row) go("rollouts", detail.sibling(name === "ArrowRight" ? 1 : -1).key, { replace: true });
    else if (name === "/") list.focusSearch();
    else if (name === "s" && detail.row) detail.nextShade();
    else if (name === "c" && detail.row) detail.toggleCompare();
    else if (name === "Enter" && detail.row) detail.node.focus();
    else if (name === "Escape" && detail.row) go("rollouts");
    else return false;
    return true;
  }
}

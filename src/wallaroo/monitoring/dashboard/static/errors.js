// What went wrong without stopping the run: damaged files of the checkpoint; events that failed, by
// step, and the newest with their event.
import { h, draw, card, table, whole, clock } from "./dom.js";

const POLICIES = { skip: "skipped", "dead-letter": "dead letter" };

export class Errors {
  constructor(page, get) {
    this.get = get;
    this.damaged = h("div");
    this.counts = h("div");
    this.losses = h("div");
    this.newest = h("div");
    this.shown = -1;
    this.element = h("div", { class: "stack" }, this.damaged, this.counts, this.losses, this.newest);
  }

  update({ status, details }) {
    const damaged = status.damaged ?? [];
    draw(this.damaged, damaged, () => damaged.length ? card("Damaged files of the checkpoint",
      damaged.map((one) => h("p", { class: "mono wrap" }, one)),
      h("p", { class: "quiet small" }, "The run continues and writes new snapshots; wallaroo state verify shows what each file is needed for.")) : []);
    draw(this.counts, status.errors, () => card("Failed events by step", table(
      [{ title: "step" }, { title: "skipped", num: true }, { title: "dead letters", num: true }, { title: "last" }],
      status.errors.map((one) => [one.step, whole(one.skipped), whole(one.dead_lettered),
        h("span", { class: "mono wrap" }, one.last)]), "No event has failed.", "", true)));
    draw(this.losses, status.losses ?? [], () => (status.losses ?? []).length ? card("Left out by step", table(
      [{ title: "step" }, { title: "late", num: true }, { title: "dropped" }, { title: "" }],
      status.losses.map((one) => [one.step, one.late ? `${whole(one.late)} of ${whole(one.events)}` : "",
        Object.entries(one.counts).map(([why, count]) => `${whole(count)} ${why}`).join(", "),
        one.warning ? h("span", { class: "badge warn wrap" }, one.warning) : ""]), undefined, "", true)) : []);
    if (details.failed_newest !== this.shown) {
      this.shown = details.failed_newest;
      this.load();
    }
  }

  reload() { this.load(); }

  async load() {
    try {
      const { content } = await this.get("/errors");
      draw(this.newest, content.newest, () => card("Newest failures, sampled",
        content.newest.length ? content.newest.map(failure) : h("p", { class: "empty" }, "None."),
      h("p", { class: "quiet small" }, "The first failures of a step in a batch are shown, then the 10th, the 100th, and so on. The sink for dead letters has each of them in full.")));
    } catch { this.shown = -1; }
  }
}

function failure(one) {
  return h("article", { class: "failure" },
    h("p", {}, h("b", {}, one.step), h("span", { class: "quiet small" },
      ` ${one.place} · batch ${one.batch} · ${clock(one.at)} `),
    h("span", { class: one.policy === "skip" ? "badge" : "badge warn" }, POLICIES[one.policy] ?? one.policy)),
    h("p", { class: "wrap" }, one.cause), h("pre", { class: "mono" }, one.event));
}

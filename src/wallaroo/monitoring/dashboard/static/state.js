// The state explorer: search a key, see its object after each commit that changed it.
import { h, draw, card, table, whole, bytes, stamp } from "./dom.js";

const LIMIT = 50;

export class State {
  constructor(page, get) {
    this.page = page;
    this.get = get;
    this.step = h("select", { name: "step" });
    this.text = h("input", { name: "text", type: "search", autocomplete: "off", placeholder: "part of a key" });
    this.results = h("div", { class: "list" });
    this.object = h("div");
    this.sizes = h("p", { class: "quiet small" });
    this.upgrades = h("div");
    const form = h("form", { class: "search", role: "search",
      onsubmit: (event) => { event.preventDefault(); this.search(); } },
    h("label", {}, "State step", this.step), h("label", {}, "Key contains", this.text),
    h("button", { class: "button", type: "submit" }, "Search"));
    this.element = h("div", { class: "stack" }, this.upgrades,
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "State explorer"), this.sizes), form,
        h("div", { class: "grid2" }, this.results, this.object)));
  }

  update({ status, details }) {
    const upgrades = status.upgrades ?? [];
    draw(this.upgrades, upgrades, () => upgrades.length ? card("Upgrades of stored state", table(
      [{ title: "step" }, { title: "upgraded", num: true }, { title: "left", num: true }, { title: "" }],
      upgrades.map((one) => [one.step, whole(one.upgraded), one.is_counted ? whole(one.left) : "",
        one.is_done ? "done" : one.is_counted ? "in the background" : "counting"]), undefined, "", true)) : []);
    if (!this.hasSteps && this.page.graph) {
      this.hasSteps = true;
      const steps = this.page.graph.state_steps;
      this.step.replaceChildren(h("option", { value: "" }, "all"), ...steps.map((step) => h("option", { value: step }, step)));
      if (!steps.length) this.results.replaceChildren(h("p", { class: "empty" }, "This application keeps no state."));
      else this.search();
    }
    this.sizes.textContent = `${bytes(details.state.snapshot_bytes)} in snapshots`;
  }

  async ask(path, into, make) {
    into.replaceChildren(h("p", { class: "empty" }, "Reading…"));
    try {
      const { content, isTruncated } = await this.get(path);
      into.replaceChildren(...[make(content, isTruncated)].flat());
    } catch (error) {
      into.replaceChildren(h("p", { class: "banner bad" }, String(error.message)));
    }
  }

  search() {
    const query = new URLSearchParams({ step: this.step.value, text: this.text.value, limit: LIMIT });
    this.object.replaceChildren();
    return this.ask(`/state-search?${query}`, this.results, (found, isTruncated) => {
      if (!found.length) return h("p", { class: "empty" }, this.text.value ? "No key contains that." : "No state yet.");
      const more = isTruncated ? [h("p", { class: "quiet small" }, `The first ${LIMIT} are shown; search for more of the key.`)] : [];
      return [...found.map((one) => this.result(one)), ...more];
    });
  }

  result(one) {
    const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
      for (const other of this.results.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", "true");
      this.look(one.step, String(one.key));
    } }, h("span", { class: "mono wrap" }, String(one.key)), h("span", { class: "grow" }),
    h("span", { class: "quiet small" }, `${one.step} · group ${one.key_group} · ${bytes(one.bytes)}`));
    return button;
  }

  look(step, key) {
    return this.ask(`/state-object?${new URLSearchParams({ step, key })}`, this.object, (found) => {
      const title = h("p", {}, h("b", { class: "mono wrap" }, key), h("span", { class: "quiet" }, ` in ${step}`));
      if (!found.versions.length) return [title, h("p", { class: "empty" }, "There is no such key.")];
      return h("div", { class: "stack" }, title,
        h("p", { class: "quiet small" }, `Retained commits ${found.commits[0]} to ${found.commits.at(-1)}; shown are those that changed it.`),
        found.versions.map((version, place) => h("details", { open: place === 0 },
          h("summary", {}, `commit ${version.batch}`, h("span", { class: "quiet" },
            ` ${stamp(version.time_ms / 1000)} · ${version.class || "removed"} · ${bytes(version.bytes)}`)),
          h("pre", { class: "mono" }, version.is_there ? JSON.stringify(version.value, null, 2) : "not there"))));
    });
  }
}

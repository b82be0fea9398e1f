// The newest batches by phase; how the run started and what it recovered.
import { h, draw, card, table, whole, ms, clock, duration, percent, count } from "./dom.js";

const PHASES = [["plan", "--c6"], ["tasks", "--c1"], ["commit", "--c4"], ["sinks", "--c3"]];

export class Batches {
  constructor() {
    this.phases = h("div");
    this.newest = h("div");
    this.start = h("div");
    this.element = h("div", { class: "stack" }, h("div", { class: "grid2" }, this.phases, this.start), this.newest);
  }

  update({ status, details, at }) {
    draw(this.phases, [details.batches, details.phase_seconds], () =>
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Batches by phase"), h("span", { class: "grow" }),
        PHASES.map(([name, color]) => h("span", { class: "key" }, h("i", { style: { background: `var(${color})` } }), name))),
      this.bars(details.batches), this.shares(details.phase_seconds)));
    const shown = details.batches.slice(-15).reverse();
    draw(this.newest, shown, () => card("Newest batches", table(
      [{ title: "batch", num: true }, { title: "ended" }, { title: "events", num: true }, { title: "outputs", num: true },
        { title: "tasks", num: true }, { title: "took", num: true }, ...PHASES.map(([title]) => ({ title, num: true }))],
      shown.map((one) => [whole(one.batch), clock(one.finished_at), whole(one.events), whole(one.outputs), one.tasks,
        ms(one.duration_ms), ...PHASES.map(([name]) => ms(one.phases_ms[name] ?? 0))]), "No batch is committed yet.")));
    draw(this.start, [details.phases, details.recovery, status.state, status.state === "starting" ? at : 0], () =>
      card("Start and recovery", this.startTable(status, details, at)));
  }

  bars(batches) {
    if (!batches.length) return h("p", { class: "empty" }, "No batch is committed yet.");
    const most = Math.max(...batches.map((one) => one.duration_ms), 1);
    return h("div", { class: "stackbar", role: "img", "aria-label": `Durations of the last ${batches.length} batches, the longest ${ms(most)}` },
      batches.map((one) => h("div", { title: `batch ${one.batch}: ${ms(one.duration_ms)}, ${count(one.events)} events` },
        PHASES.map(([name, color]) => h("i", { style: {
          height: `${((one.phases_ms[name] ?? 0) / most) * 100}%`, background: `var(${color})` } })))));
  }

  shares(seconds) {
    const total = Object.values(seconds).reduce((a, b) => a + b, 0);
    if (!total) return h("p", { class: "empty" }, "");
    return h("p", { class: "quiet small" }, `Share of all batch time: ${PHASES.map(([name]) => `${name} ${percent((seconds[name] ?? 0) / total)}`).join(", ")}.`);
  }

  startTable(status, details, at) {
    const { recovery, phases } = details;
    const ends = [...phases.slice(1).map((phase) => phase.began_at),
      status.state === "starting" ? at : status.started_at + (recovery.ready_s || 0)];
    const rows = phases.map((phase, place) => {
      const isOn = status.state === "starting" && place === phases.length - 1;
      return [phase.doing, isOn ? h("span", { class: "badge warn" }, "under way") : "done", duration2(Math.max(0, ends[place] - phase.began_at))];
    });
    const found = recovery.text || (recovery.batch >= 0 ? `Continued from commit ${recovery.batch}.` : "The run began without earlier commits.");
    return h("div", { class: "stack" },
      table([{ title: "phase" }, { title: "" }, { title: "took", num: true }], rows, "The phases of this start were not recorded."),
      h("p", { class: "wrap" }, found),
      recovery.ready_s ? h("p", { class: "quiet small" }, `Ready after ${duration2(recovery.ready_s)}; the state took ${duration2(recovery.state_s)} (${whole(recovery.entries)} entries).`) : null);
  }
}

const duration2 = (seconds) => (seconds < 60 ? `${seconds.toFixed(seconds < 10 ? 2 : 1)} s` : duration(seconds));

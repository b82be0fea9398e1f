// Workers, who has which key groups, what moved, hot keys.
import { h, draw, card, table, count, percent, whole, bytes, clock, ranges, bar, WORKER_COLORS } from "./dom.js";

const GROUPS_SHOWN = 1024;

export class Workers {
  constructor(page) {
    this.page = page;
    this.workers = h("div");
    this.groups = h("div");
    this.moves = h("div");
    this.processes = h("div");
    this.hot = h("div");
    this.element = h("div", { class: "stack" }, this.workers, this.processes,
      this.groups, h("div", { class: "grid2" }, this.hot, this.moves));
  }

  update({ status, details }) {
    const { rates } = this.page;
    const rows = status.workers.map((worker) => ({
      ...worker, busy: rates.workerTime(worker.name), events: rates.workerEvents(worker.name),
    }));
    draw(this.workers, rows, () => card("Workers", this.workerTable(rows)));
    draw(this.processes, status.processes ?? [], () => card("Processes on the driver's machine",
      this.processTable(status.processes ?? [])));
    const groups = this.groupRows(status, details);
    draw(this.groups, groups, () => card("Key groups", this.groupGrid(status, details, groups)));
    draw(this.moves, details.moves, () => card("Moves", table(
      [{ title: "at" }, { title: "what" }],
      details.moves.toReversed().map((move) => [clock(move.at), h("span", { class: "wrap" }, move.text)]),
      "Nothing has moved in this run.")));
    draw(this.hot, details.hot_keys, () => card("Hot keys", this.hotTable(details.hot_keys)));
  }

  workerTable(rows) {
    return table([{ title: "worker" }, { title: "host" }, { title: "cores", num: true },
      { title: "events/s, all stages", num: true }, { title: "busy", num: true },
      { title: "tasks", num: true }, { title: "key groups" }],
    rows.map((one, place) => [
      h("span", {}, h("span", { class: "swatch", style: { background: color(place) } }), one.name),
      one.host, whole(one.cores), count(one.events),
      percent(Math.min(1, one.busy / Math.max(1, one.cores))), whole(one.tasks),
      h("span", { class: "wrap" }, `${one.key_groups.length}: ${ranges(one.key_groups)}`
        + (one.replica_groups?.length ? `; copies of ${one.replica_groups.length}` : "")),
    ]), "No worker yet.");
  }

  processTable(processes) {
    const most = Math.max(1, ...processes.map((one) => one.resident_bytes));
    return table([{ title: "process" }, { title: "number", num: true },
      { title: "cores in use", num: true }, { title: "memory", num: true }, { title: "" }],
    processes.map((one) => [one.name, one.pid, one.cpu.toFixed(2), bytes(one.resident_bytes),
      bar(one.resident_bytes / most)]), "Not sampled yet.");
  }

  groupRows(status, details) {
    const owners = new Map();
    status.workers.forEach((worker, place) => worker.key_groups.forEach((group) => owners.set(group, place)));
    const shown = Math.min(details.key_groups, GROUPS_SHOWN);
    return Array.from({ length: shown }, (_, group) => [
      group, owners.get(group) ?? -1, Math.round(this.page.rates.group(group)), details.group_bytes[group] ?? 0,
    ]);
  }

  groupGrid(status, details, rows) {
    const most = Math.max(1, ...rows.map((row) => row[2]));
    const grid = h("div", { class: "groups", role: "img", "aria-label": "Key groups by worker" },
      rows.map(([group, owner, rate, size]) => h("span", {
        title: `key group ${group}: ${owner < 0 ? "not worked on yet" : status.workers[owner].name}, `
          + `${count(rate)} events/s, ${bytes(size)} in its last snapshot`,
        style: { background: owner < 0 ? "var(--line)" // mixed, so that the number can be read on it
          : `color-mix(in srgb, ${color(owner)} ${Math.round(14 + 36 * Math.sqrt(rate / most))}%, var(--card))` },
      }, String(group))));
    return [h("p", { class: "quiet small" }, "Colour: worker. Strength: events per second, from samples. "
      + `Snapshots: ${bytes(details.state.snapshot_bytes)}.`), grid].reduce((box, part) => (box.append(part), box), h("div", { class: "stack" }));
  }

  hotTable(hot) {
    const rows = Object.entries(hot).flatMap(([stage, keys]) => keys.slice(0, 8).map(([key, share]) =>
      [stage, h("span", { class: "mono wrap" }, key), percent(share), bar(share / keys[0][1])]));
    return table([{ title: "stage" }, { title: "key" }, { title: "share", num: true }, { title: "" }],
      rows, "No keyed step has been sampled yet.");
  }
}

const color = (place) => `var(${WORKER_COLORS[place % WORKER_COLORS.length]})`;

// Rates, latency, backlog and batch time; sources and sinks.
import { h, draw, card, table, count, whole, bytes, duration, ms, stamp, bar } from "./dom.js";
import { Chart } from "./charts.js";

const SPANS = [["10m", "10 minutes", 0], ["4h", "4 hours", 15000], ["24h", "24 hours", 60000]];
const POINTS_MAX = 600;
const LAGS_SHOWN = 8;
let span = "10m";

function backfill(part) {
  if (part.share === null) return `backfill: ${count(part.events_done)} events`;
  const left = part.ends_in_s === null ? "" : `, ${duration(part.ends_in_s)} left`;
  return `backfill: ${Math.floor(100 * part.share)} %${left}`;
}

export class Overview {
  constructor(page, get) {
    this.page = page;
    this.get = get;
    this.tiles = h("div", { class: "tiles" });
    this.spans = h("div", { class: "seg", role: "group", "aria-label": "Time shown" });
    this.charts = [
      new Chart("Events per second", [
        { label: "processed", column: "done_per_s", color: "--c1", width: 3 },
        { label: "received", column: "in_per_s", color: "--c2", dash: [5, 4] },
        { label: "output", column: "out_per_s", color: "--c3" },
      ], count),
      new Chart("Latency, receipt to output", [
        { label: "p50", column: "p50_ms", color: "--c2", bridges: true },
        { label: "p99", column: "p99_ms", color: "--c1", dash: [8, 4], bridges: true },
        { label: "p99.9", column: "p999_ms", color: "--c5", dash: [2, 3], bridges: true },
      ], ms),
      new Chart("Backlog, events", [
        { label: "events", column: "backlog_events", color: "--c1", area: true },
      ], count),
      new Chart("Batch time", [
        { label: "batch", column: "batch_ms", color: "--c1", area: true, bridges: true },
      ], ms),
    ];
    this.sources = h("div");
    this.sinks = h("div");
    this.times = h("div");
    this.latency = h("div");
    this.element = h("div", { class: "stack" },
      this.tiles,
      h("div", { class: "row" }, h("h2", {}, "History"), h("span", { class: "grow" }), this.spans),
      h("div", { class: "grid2" }, this.charts.map((chart) => chart.element)),
      h("div", { class: "grid2" }, this.sources, this.sinks),
      this.times, this.latency);
    this.rows = [];
    this.choose(span);
  }

  choose(chosen) {
    span = chosen;
    this.spans.replaceChildren(...SPANS.map(([id, title]) => h("button", {
      type: "button", "aria-pressed": String(id === span),
      onclick: () => { this.choose(id); this.spans.querySelector("[aria-pressed=true]").focus(); },
    }, title)));
    clearInterval(this.timer);
    const every = SPANS.find(([id]) => id === span)[2];
    if (every) this.timer = setInterval(() => this.reload(), every);
    this.reload();
  }

  close() { clearInterval(this.timer); }

  async reload() {
    const asked = span;
    try {
      const { content } = await this.get(`/history?span=${asked}`);
      if (asked !== span) return;
      this.columns = content.columns;
      this.rows = content.rows;
      this.show();
    } catch { /* the page says that the application does not answer */ }
  }

  show() {
    for (const chart of this.charts) chart.show(this.columns, this.rows);
  }

  update({ status, details, sample }) {
    if (span === "10m" && sample && this.columns && sample[0] > (this.rows.at(-1)?.[0] ?? 0)) {
      this.rows = [...this.rows, sample].slice(-POINTS_MAX);
      this.show();
    }
    draw(this.tiles, [status, sample], () => this.makeTiles(status, sample));
    draw(this.sources, [status.sources, status.ingresses, details.notes], () => card("Sources",
      this.sourceTable(status.sources), this.lagTable(status.sources), this.ingressTable(status.ingresses),
      ...details.notes.map((note) => h("div", { class: "small" },
        h("span", { class: "badge warn wrap" }, note)))));
    draw(this.sinks, status.sinks, () => card("Sinks", this.sinkTable(status.sinks)));
    const times = timed(status);
    draw(this.times, times, () => times.length ? card("Event time",
      h("p", { class: "quiet" }, heldBack(status)), this.timeTable(times)) : []);
    draw(this.latency, status.latency, () =>
      card("Latency since the start, receipt to output", this.latencyTable(status.latency)));
  }

  makeTiles(status, sample) {
    const backlog = status.sources.reduce((sum, one) => sum + one.backlog_events, 0);
    const size = status.sources.reduce((sum, one) => sum + one.backlog_bytes, 0);
    const place = (name) => this.columns && this.lastOf(this.columns.indexOf(name));
    const tile = (label, value, unit, more) => h("div", { class: "tile" },
      h("div", { class: "label" }, label),
      h("div", { class: "value" }, value, h("span", { class: "unit" }, unit)),
      h("div", { class: "more" }, more));
    const split = (text) => text.split(" ");
    return [
      tile("Received", count(status.events_in_per_s), "/s", `${whole(status.events_in)} in this run`),
      tile("Processed", count(status.events_done_per_s), "/s", `${whole(status.events_done)} in this run`),
      tile("Output", count(status.outputs_per_s), "/s", `${whole(status.outputs)} in this run`),
      tile("Backlog", count(backlog), "events", bytes(size)),
      tile("Latency p99", ...split(ms(place("p99_ms"))), `p50 ${ms(place("p50_ms"))}`),
      tile("Batch", ...split(ms(status.batch_ms)), `median ${ms(status.batch_ms_median)}`),
    ];
  }

  lastOf(place) {
    for (let i = this.rows.length - 1; i >= 0 && i > this.rows.length - 60; i -= 1) {
      if (this.rows[i][place] !== null) return this.rows[i][place];
    }
    return null;
  }

  sourceTable(sources) {
    return table([{ title: "source" }, { title: "received", num: true },
      { title: "backlog", num: true }, { title: "clients", num: true }],
    sources.map((one) => [
      h("div", {}, one.name, h("div", { class: "quiet small" }, one.label),
        one.backfill ? h("span", { class: "badge" }, backfill(one.backfill))
          : one.is_paused ? h("span", { class: "badge warn" }, "paused: backlog full")
          : one.is_ended ? h("span", { class: "badge" }, "ended") : ""),
      whole(one.events_in), `${count(one.backlog_events)} (${bytes(one.backlog_bytes)})`,
      whole(one.connections),
    ]), undefined, "", true);
  }

  // The partitions that lag most, of all sources whose partitions are known.
  lagTable(sources) {
    const lags = sources.flatMap((one) => Object.entries(one.lags ?? {})
      .map(([partition, lag]) => ({ one, partition, lag })));
    if (!lags.length) return null;
    const most = Math.max(1, ...lags.map(({ lag }) => lag));
    const shown = lags.toSorted((a, b) => b.lag - a.lag).slice(0, LAGS_SHOWN);
    const left = lags.length - shown.length;
    return h("div", {}, table([{ title: "partition" }, { title: "lag", num: true }, { title: "" }, { title: "group" }],
      shown.map(({ one, partition, lag }) => [h("span", { class: "wrap" }, partition), whole(lag), bar(lag / most),
        h("span", { class: "wrap quiet" }, one.group || "none")]), "", "Lag by partition"),
    left ? h("p", { class: "quiet small" }, `${left} more partitions lag no more than these.`) : null);
  }

  // Ingresses on other hosts that have joined.
  ingressTable(ingresses) {
    if (!ingresses?.length) return null;
    return table([{ title: "ingress" }, { title: "not processed", num: true },
      { title: "clients", num: true }, { title: "since" }, { title: "" }],
    ingresses.map((one) => [
      one.name, whole(one.backlog_events), whole(one.connections), stamp(one.since),
      one.is_there ? one.trouble && h("span", { class: "badge warn wrap" }, one.trouble)
        : h("span", { class: "badge bad wrap" }, one.trouble),
    ]), "", "Ingresses on other hosts");
  }

  sinkTable(sinks) {
    return table([{ title: "sink" }, { title: "outputs", num: true },
      { title: "not sent yet", num: true }, { title: "waits for" }],
    sinks.map((one) => [
      h("div", {}, one.name, h("div", { class: "quiet small" }, one.label)),
      whole(one.outputs), bytes(one.pending_bytes),
      one.waiting_for ? h("span", { class: "badge warn wrap" }, one.waiting_for)
        : h("span", { class: "quiet" }, "nothing"),
    ]));
  }

  timeTable(times) {
    return table([{ title: "" }, { title: "watermark" }, { title: "behind the clock", num: true },
      { title: "held back by" }],
    times.map(({ kind, name, time }) => [
      h("div", {}, name, h("div", { class: "quiet small" }, kind)),
      time.watermark === null ? "none yet" : stamp(time.watermark),
      time.is_idle ? "idle" : time.lag_s === null ? "" : ms(Math.max(0, time.lag_s) * 1000),
      h("span", { class: "wrap" }, time.held_by
        || (time.is_idle ? `no events in ${time.partitions || "any"} partitions` : "")),
    ]), undefined, "", true);
  }

  latencyTable(latency) {
    const names = ["p50_ms", "p95_ms", "p99_ms", "p999_ms", "p9999_ms", "max_ms"];
    const titles = ["p50", "p95", "p99", "p99.9", "p99.99", "max"];
    return table([{ title: "pipeline" }, { title: "events", num: true },
      ...titles.map((title) => ({ title, num: true }))],
    latency.map((one) => [one.pipeline, whole(one.count), ...names.map((name) => ms(one[name]))]));
  }
}

// The source and partition that event time waits for.
function heldBack({ step_times: steps }) {
  const times = (steps ?? []).map((one) => one.time);
  if (!times.length) return "";
  if (times.every((time) => time.is_idle)) return "All sources are idle, so event time follows the clock.";
  const { held_by: name, lag_s: lag } = times[0];
  return name && lag !== null ? `Held back by ${name}: ${ms(Math.max(0, lag) * 1000)} behind the clock.` : "";
}

// Sources and steps that have a watermark.
function timed(status) {
  return [
    ...status.sources.filter((one) => one.time)
      .map((one) => ({ kind: "source", name: one.name, time: one.time })),
    ...(status.step_times ?? []).map((one) => ({ kind: "step", name: one.step, time: one.time })),
  ];
}

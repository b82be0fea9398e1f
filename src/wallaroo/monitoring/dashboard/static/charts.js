// Time charts over the run's history: one y axis each, a crosshair with all values at a moment.
import { h, svg, css, clock, table } from "./dom.js";

const WIDTH_MIN = 240;
const TABLE_ROWS = 30;

// A piece of the line as the chart draws it: colours alone do not tell lines apart.
function sample({ color, dash, width }) {
  return svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, svg("line", {
    x1: 0, x2: 22, y1: 4, y2: 4, stroke: `var(${color})`, "stroke-width": width ?? 2,
    "stroke-dasharray": dash?.join(" ") }));
}

export class Chart {
  constructor(title, series, format) {
    this.series = series;
    this.format = format;
    this.box = h("div", { class: "chart", role: "img", "aria-label": title });
    this.tip = h("div", { class: "tip", hidden: true });
    const keys = series.length < 2 ? [] : series.map((one) =>
      h("span", { class: "key" }, sample(one), one.label));
    this.values = h("details", { class: "values", ontoggle: () => this.tabulate() },
      h("summary", {}, "Values as a table"));
    this.title = title;
    this.element = h("section", { class: "card" },
      h("header", {}, h("h2", {}, title), h("span", { class: "grow" }), keys), this.box, this.values);
    this.rows = [];
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.box);
  }

  show(columns, rows) {
    const places = ["at", ...this.series.map((one) => one.column)]
      .map((name) => columns.indexOf(name));
    this.rows = places.map((place) => rows.map((row) => row[place]));
    this.box.setAttribute("aria-description", this.spoken());
    this.tabulate();
    if (this.plot) this.plot.setData(this.rows);
    else this.build();
  }

  spoken() {
    const last = this.rows[0]?.length - 1;
    return this.series.map((one, i) => `${one.label} ${this.format(this.rows[i + 1]?.[last])}`)
      .join(", ");
  }

  // The same values for those who cannot see the chart, newest first; made when it is opened.
  tabulate() {
    if (!this.values.open) return;
    const [moments, ...values] = this.rows;
    const step = Math.max(1, Math.ceil(moments.length / TABLE_ROWS));
    const rows = [];
    for (let i = moments.length - 1; i >= 0; i -= step) {
      rows.push([clock(moments[i]), ...values.map((one) => this.format(one[i]))]);
    }
    this.values.replaceChildren(this.values.firstElementChild, table(
      [{ title: "time" }, ...this.series.map((one) => ({ title: one.label, num: true }))],
      rows, "Nothing yet.", this.title));
  }

  build() {
    this.plot?.destroy();
    this.plot = null;
    const width = this.box.clientWidth;
    if (!this.rows.length || width < WIDTH_MIN / 2) return;
    const axis = {
      stroke: css("--quiet"), font: "11px system-ui", ticks: { show: false },
      grid: { stroke: css("--grid"), width: 1 },
    };
    this.plot = new uPlot({
      width, height: 176, padding: [8, 26, 0, 0], legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      // uPlot gives a single moment a whole day
      scales: { x: { range: (plot, first, last) => plot.data[0].length === 1 ? [first - 30, first + 30] : [first, last] },
        y: { range: (_, low, high) => [0, Math.max(high * 1.12, this.series[0].least ?? 1)] } },
      axes: [
        { ...axis, grid: { show: false }, space: 64, size: 26,
          values: (_, moments, space, gap, step) =>
            moments.map((at) => clock(at).slice(0, step < 60 ? 8 : 5)) },
        { ...axis, size: 62, space: 36, values: (_, ticks) => ticks.map(this.format) },
      ],
      series: [{}, ...this.series.map((one) => ({
        stroke: css(one.color), width: one.width ?? 1.8, dash: one.dash, points: { show: false }, spanGaps: one.bridges ?? false,
        fill: one.area ? css(one.color) + "22" : undefined,
      }))],
      hooks: { setCursor: [(plot) => this.point(plot)] },
    }, this.rows, this.box);
    this.box.append(this.tip);
  }

  point(plot) {
    const { idx, left } = plot.cursor;
    this.tip.hidden = idx === null || idx === undefined || left < 0;
    if (this.tip.hidden) return;
    this.tip.replaceChildren(h("div", { class: "quiet" }, clock(this.rows[0][idx])),
      ...this.series.map((one, i) => h("div", {},
        `${one.label} `, h("b", {}, this.format(this.rows[i + 1][idx])))));
    const x = left + 70, width = this.tip.offsetWidth;
    const fits = x + width + 12 < this.box.clientWidth;
    this.tip.style.left = `${fits ? x + 8 : x - width - 12}px`;
    this.tip.style.top = "10px";
  }

  resize() {
    if (!this.plot) this.build();
    else if (this.box.clientWidth > WIDTH_MIN / 2) {
      this.plot.setSize({ width: this.box.clientWidth, height: 176 });
    }
  }
}

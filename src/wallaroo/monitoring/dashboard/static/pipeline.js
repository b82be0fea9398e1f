// The graph of sources, steps and sinks with live rates; where time goes; hot keys.
import { h, svg, draw, card, table, count, percent, ms, bar, bytes } from "./dom.js";

const NODE = { width: 186, height: 70 };
const GAP = { along: 84, alongMax: 210, across: 26, stackedAlong: 46 };
const SCALE_MIN = 0.8; // smaller, and names cannot be read
const INDENT = 14; // of nodes side by side, where there is room for one only
const INDENTS_MAX = 4;
const NAME_LENGTH = 22;
const KINDS = { source: "source", step: "computation", state: "state", sink: "sink" };

export class Pipeline {
  constructor(page) {
    this.page = page;
    this.canvas = h("div", { class: "graph" });
    this.detail = h("div");
    this.steps = h("div");
    this.selected = null;
    this.nodes = new Map();
    this.labels = [];
    this.element = h("div", { class: "stack" },
      h("section", { class: "card" },
        h("header", {}, h("h2", {}, "Pipeline"), h("span", { class: "grow" }),
          h("span", { class: "quiet small" }, "dashed: shuffle by key; bar: share of all steps' time")),
        this.canvas),
      this.detail, this.steps);
    this.resized = () => { this.drawnFor = null; if (this.page.message) this.update(this.page.message); };
    window.addEventListener("resize", this.resized);
  }

  close() { window.removeEventListener("resize", this.resized); }

  update(message) {
    const { graph } = this.page;
    if (!graph) return;
    const width = Math.max(NODE.width + 8, this.canvas.clientWidth || window.innerWidth - 60);
    if (this.drawnFor !== graph || this.width !== width) this.build(graph, width);
    this.drawnFor = graph;
    this.width = width;
    const loads = this.loads(message);
    this.refresh(graph, message, loads);
    draw(this.steps, loads, () => card("Where the time goes", this.stepTable(loads),
      h("p", { class: "quiet small" },
        "Time is sampled: each task times the first 256 events of one block per batch.")));
    const node = graph.nodes.find((one) => one.id === this.selected);
    draw(this.detail, node ? [node, this.facts(node, message, loads)] : null,
      () => node ? card(`${KINDS[node.kind]} ${node.name}`, this.makeDetail(node, message, loads)) : []);
  }

  loads({ details }) {
    const loads = details.steps.map((step) => ({
      ...step, rate: this.page.rates.stepEvents(step.stage, step.place),
      time: this.page.rates.stepTime(step.stage, step.place),
      each: step.events && step.seconds ? step.seconds / step.events : null,
    }));
    const total = loads.reduce((sum, load) => sum + load.time, 0);
    const ever = loads.reduce((sum, load) => sum + load.seconds, 0);
    for (const load of loads) {
      load.share = total > 0 ? load.time / total : ever > 0 ? load.seconds / ever : 0;
    }
    return loads;
  }

  loadOf(node, loads) {
    if (node.kind === "sink") return null;
    return loads.find((load) => load.stage === node.stage && load.place === node.place);
  }

  build(graph, width) {
    const placed = layout(graph, width);
    const scale = Math.min(1, width / placed.width);
    const root = svg("svg", { width: placed.width * scale, height: placed.height * scale,
      viewBox: `0 0 ${placed.width} ${placed.height}`, role: "group",
      "aria-label": `Pipeline of ${graph.application}` });
    root.append(svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4,
      markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
    svg("path", { d: "M0 0L8 4L0 8z", fill: "currentColor", opacity: ".5" }))));
    this.labels = graph.edges.map((edge) => {
      const a = placed.at.get(edge.from), b = placed.at.get(edge.to);
      const { path, x, y } = curve(a, b, placed.isStacked);
      root.append(svg("path", { d: path, class: `edge ${edge.kind}`, "marker-end": "url(#arrow)" }));
      const label = svg("text", { x, y, class: "edge-label", "text-anchor": "middle" });
      return { edge, label };
    });
    this.nodes.clear();
    for (const node of graph.nodes) root.append(this.makeNode(node, placed.at.get(node.id)));
    root.append(...this.labels.map(({ label }) => label));
    this.canvas.replaceChildren(root);
  }

  makeNode(node, { x, y }) {
    const { width, height } = NODE;
    const rate = svg("text", { x: 14, y: 51, class: "rate" });
    const share = svg("text", { x: width - 12, y: 51, class: "rate", "text-anchor": "end" });
    const fill = svg("rect", { x: 14, y: height - 12, width: 0, height: 4, rx: 2, class: "fill" });
    const [name, rest] = lines(node.name);
    const title = svg("title"); // a tooltip, and the name for those who cannot see the node
    const element = svg("g", { class: `node ${node.kind}`, transform: `translate(${x} ${y})`,
      tabindex: "0", role: "button", "aria-pressed": "false",
      onclick: () => this.select(node.id),
      onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.select(node.id); }
      } },
    title,
    svg("rect", { class: "box", width, height, rx: 9 }),
    svg("rect", { class: "mark", width: 4, height: height - 18, x: 4, y: 9, rx: 2 }),
    svg("text", { x: 14, y: 20, class: "name" }, name),
    svg("text", { x: 14, y: 35, class: rest ? "name" : "sub" }, rest || cut(node.label.replaceAll("_", " "), 27)),
    rate, share,
    node.kind === "sink" ? null : svg("rect", { x: 14, y: height - 12, width: width - 26, height: 4, rx: 2, class: "track" }),
    node.kind === "sink" ? null : fill);
    this.nodes.set(node.id, { element, title, rate, share, fill });
    return element;
  }

  select(id) {
    this.selected = this.selected === id ? null : id;
    for (const [node, { element }] of this.nodes) {
      element.setAttribute("aria-pressed", String(node === this.selected));
    }
    this.update(this.page.message);
  }

  refresh(graph, message, loads) {
    const { rates } = this.page;
    for (const node of graph.nodes) {
      const drawn = this.nodes.get(node.id), load = this.loadOf(node, loads);
      const sink = node.kind === "sink" && message.status.sinks.find((one) => one.name === node.name);
      const source = node.kind === "source" && message.status.sources.find((one) => one.name === node.name);
      const rate = sink ? rates.sink(node.name) : source ? rates.stage(node.stage) : load?.rate ?? null;
      drawn.rate.textContent = perSecond(rate);
      drawn.share.textContent = sink ? (sink.pending_bytes ? `${bytes(sink.pending_bytes)} waits` : "")
        : source && source.backlog_events ? `${count(source.backlog_events)} backlog`
        : load ? percent(load.share) : "";
      drawn.fill.setAttribute("width", (NODE.width - 26) * (load?.share ?? 0));
      const waits = (sink && sink.waiting_for) || (source && source.is_paused);
      drawn.element.setAttribute("class", `node ${node.kind}${waits ? " waiting" : ""}`);
      const measured = rate === null ? "not sampled yet" : `${count(rate)} events per second`;
      drawn.title.textContent = `${KINDS[node.kind]} ${node.name}: ${node.label}, ${measured}`;
    }
    const isSampled = ({ stage, place }) => loads.some((load) => load.stage === stage && load.place === place);
    for (const { edge, label } of this.labels) {
      const rate = edge.kind === "shuffle" ? rates.edge(edge.stage, edge.after)
        : edge.kind === "direct" && isSampled(edge) ? rates.stepEvents(edge.stage, edge.place) : null;
      const side = edge.kind === "direct" && edge.key ? `${edge.key}: ` : "";
      label.textContent = rate === null ? side : `${side}${count(rate)}/s`;
    }
  }

  facts(node, { status, details }, loads) {
    return [this.loadOf(node, loads) ?? null, details.hot_keys[node.head ?? node.stage] ?? null,
      status.sinks.find((one) => one.name === node.name) ?? null];
  }

  makeDetail(node, message, loads) {
    const load = this.loadOf(node, loads);
    const hot = node.kind === "step" || node.kind === "state" ? message.details.hot_keys[node.head ?? node.stage] : null;
    const parts = [h("p", { class: "quiet" }, node.label)];
    if (load) parts.push(h("p", {}, `${count(load.rate)} events/s, ${micros(load.each)} each, ${percent(load.share)} of all steps' time`));
    if (hot?.length) {
      parts.push(h("h2", {}, "Hot keys of its stage"), table(
        [{ title: "key" }, { title: "share", num: true }, { title: "" }],
        hot.slice(0, 10).map(([key, share]) => [h("span", { class: "mono wrap" }, key), percent(share), bar(share / hot[0][1])])));
    }
    return h("div", { class: "stack" }, parts);
  }

  stepTable(loads) {
    return table([{ title: "stage", num: true }, { title: "step" }, { title: "events/s", num: true },
      { title: "time per event", num: true }, { title: "share", num: true }, { title: "" }],
    loads.map((load) => [load.stage, h("span", { class: "wrap" }, load.step), count(load.rate),
      micros(load.each), percent(load.share), bar(load.share)]), "No block has been sampled yet.");
  }
}

const micros = (seconds) => seconds === null ? "–" : seconds >= 1e-3 ? ms(seconds * 1e3) : `${(seconds * 1e6).toFixed(2)} µs`;
const perSecond = (rate) => (rate === null ? "–" : `${count(rate)}/s`); // not measured is not 0
// A name in two lines at most, broken between words if there are any.
function lines(name) {
  if (name.length <= NAME_LENGTH) return [name, ""];
  const [last] = [...name.slice(0, NAME_LENGTH).matchAll(/[ _.-]/g)].slice(-1);
  const at = last && last.index > 5 ? last.index + (last[0] === " " ? 0 : 1) : NAME_LENGTH;
  return [name.slice(0, at), cut(name.slice(at).trim(), NAME_LENGTH + 2)];
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// Layers by the longest way from a source; within a layer by what comes before.
function layout(graph, width) {
  const layer = new Map(graph.nodes.map((node) => [node.id, 0]));
  for (let pass = 0; pass < graph.nodes.length; pass += 1) {
    for (const { from, to } of graph.edges) {
      layer.set(to, Math.max(layer.get(to), layer.get(from) + 1));
    }
  }
  const layers = [];
  for (const node of graph.nodes) (layers[layer.get(node.id)] ??= []).push(node.id);
  const order = new Map();
  layers.forEach((ids, depth) => {
    const weight = (id) => {
      const before = graph.edges.filter((edge) => edge.to === id).map((edge) => order.get(edge.from) ?? 0);
      return before.length ? before.reduce((a, b) => a + b, 0) / before.length : ids.indexOf(id);
    };
    if (depth) ids.sort((a, b) => weight(a) - weight(b));
    ids.forEach((id, place) => order.set(id, place - (ids.length - 1) / 2));
  });
  return placed(layers, order, width);
}

// From left to right, stretched to the width; from top to bottom if that is too long; one node a
// line if there is no room for several.
function placed(layers, order, width) {
  const most = Math.max(...layers.map((ids) => ids.length));
  const least = layers.length * (NODE.width + GAP.along) - GAP.along + 8;
  const isStacked = least * SCALE_MIN > width;
  const isSingle = isStacked && (most * (NODE.width + GAP.across) - GAP.across + 8) * SCALE_MIN > width;
  if (isSingle) return inOneColumn(layers);
  const stretched = (width - 8 - NODE.width) / Math.max(1, layers.length - 1) - NODE.width;
  const gap = Math.max(GAP.along, Math.min(GAP.alongMax, stretched));
  const along = isStacked ? NODE.height + GAP.stackedAlong : NODE.width + gap;
  const across = isStacked ? NODE.width + GAP.across : NODE.height + GAP.across;
  const at = new Map();
  layers.forEach((ids, depth) => ids.forEach((id) => {
    const side = (order.get(id) + (most - 1) / 2) * across + 4, forward = depth * along + 4;
    at.set(id, isStacked ? { x: side, y: forward } : { x: forward, y: side });
  }));
  const length = layers.length * along - (along - (isStacked ? NODE.height : NODE.width)) + 8;
  const breadth = most * across - GAP.across + 8;
  return { at, isStacked, width: isStacked ? breadth : length, height: isStacked ? length : breadth };
}

function inOneColumn(layers) {
  const at = new Map();
  const most = Math.max(...layers.map((ids) => Math.min(ids.length, INDENTS_MAX + 1)));
  let y = 4;
  for (const ids of layers) {
    ids.forEach((id, place) => {
      at.set(id, { x: 4 + (place % (INDENTS_MAX + 1)) * INDENT, y });
      y += NODE.height + GAP.stackedAlong;
    });
  }
  return { at, isStacked: true, width: NODE.width + (most - 1) * INDENT + 60, height: y - GAP.stackedAlong + 8 };
}

function curve(a, b, isStacked) {
  const { width, height } = NODE;
  const [x1, y1] = isStacked ? [a.x + width / 2, a.y + height] : [a.x + width, a.y + height / 2];
  const [x2, y2] = isStacked ? [b.x + width / 2, b.y - 3] : [b.x - 3, b.y + height / 2];
  const bend = isStacked ? (y2 - y1) / 2 : (x2 - x1) / 2;
  const path = isStacked ? `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`
    : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  return { path, x: (x1 + x2) / 2, y: (y1 + y2) / 2 + (isStacked ? 4 : -6) };
}

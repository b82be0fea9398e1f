// Elements and numbers. Text from the application goes into text nodes only, never into markup.

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Redraws an element only when what it shows has changed, so that a selection or focus survives.
const drawn = new WeakMap();
export function draw(element, shown, make) {
  const now = JSON.stringify(shown);
  if (drawn.get(element) === now) return;
  drawn.set(element, now);
  element.replaceChildren(...[make()].flat());
}

export function card(title, ...children) {
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), ...children);
}

export function table(columns, rows, empty = "Nothing yet.") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const cell = (tag, content, column) =>
    h(tag, { class: column.num ? "num" : column.class, scope: tag === "th" ? "col" : null }, content);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map((column) => cell("th", column.title, column)))),
      h("tbody", {}, rows.map((row) =>
        h("tr", {}, row.map((content, place) => cell("td", content, columns[place])))))));
}

export function bar(share, color) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("div", { class: "bar" }, h("i", { style: { width, background: color ?? "" } }));
}

export const css = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// -- numbers

const SCALES = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
export function count(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  for (const [scale, letter] of SCALES) {
    if (Math.abs(value) >= scale * (scale === 1e3 ? 10 : 1)) return short(value / scale) + letter;
  }
  return Math.abs(value) >= 100 || Number.isInteger(value)
    ? Math.round(value).toLocaleString("en") : short(value);
}
const short = (value) => Math.abs(value) >= 100 ? value.toFixed(0)
  : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(value === 0 ? 0 : 2);

export const whole = (value) => Math.round(value).toLocaleString("en");

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit ? short(value) : Math.round(value)} ${units[unit]}`;
}

export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 60000) return `${short(value / 60000)} min`;
  if (value >= 1000) return `${short(value / 1000)} s`;
  return `${short(value)} ms`;
}

export function duration(seconds) {
  const s = Math.floor(seconds), m = Math.floor(s / 60), hours = Math.floor(m / 60);
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours) return `${hours} h ${String(m % 60).padStart(2, "0")} min`;
  return m ? `${m} min ${String(s % 60).padStart(2, "0")} s` : `${s} s`;
}

export const percent = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export function ranges(numbers) {
  const parts = [];
  for (const number of numbers) {
    const last = parts.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

export const WORKER_COLORS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];

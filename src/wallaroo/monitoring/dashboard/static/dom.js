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

export function table(columns, rows, empty = "Nothing yet.", label = "", isWide = columns.length > 4) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  // The roles are those of the elements: a phone shows rows as blocks, which would take them away.
  const cell = (content, column) => h("td", { class: column.num ? "num" : column.class, role: "cell",
    "data-title": column.title }, content);
  const head = (column) => column.title ? h("th", { class: column.num ? "num" : column.class,
    scope: "col", role: "columnheader" }, column.title) : h("td", { role: "cell" });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label || columns.map((column) => column.title).filter(Boolean).join(", ") },
    h("table", { role: "table", class: isWide ? "wide" : null },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(head))),
      h("tbody", { role: "rowgroup" }, rows.map((row) =>
        h("tr", { role: "row" }, row.map((content, place) => cell(content, columns[place])))))));
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
// All times are those of the browser's time zone, which the page names, in one form.
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
export const stamp = (seconds) => new Date(seconds * 1000).toLocaleString("sv-SE");
export function zone() {
  const ahead = -new Date().getTimezoneOffset();
  const [hours, minutes] = [Math.floor(Math.abs(ahead) / 60), Math.abs(ahead) % 60];
  const two = (number) => String(number).padStart(2, "0");
  return ahead ? `UTC${ahead < 0 ? "−" : "+"}${two(hours)}:${two(minutes)}` : "UTC";
}

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

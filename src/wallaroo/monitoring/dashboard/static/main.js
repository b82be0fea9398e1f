// The page: a stream of messages from the application, and one view at a time.
import { h, draw, duration, zone } from "./dom.js";
import { Rates } from "./rates.js";
import { Overview } from "./overview.js";
import { Pipeline } from "./pipeline.js";
import { Workers } from "./workers.js";
import { State } from "./state.js";
import { Errors } from "./errors.js";
import { Batches } from "./batches.js";

const VIEWS = [
  ["overview", "Overview", Overview], ["pipeline", "Pipeline", Pipeline],
  ["workers", "Workers", Workers], ["state", "State", State],
  ["errors", "Errors", Errors], ["batches", "Batches & recovery", Batches],
];
const BADGES = { running: "good", finished: "good", starting: "warn", standby: "warn", stopping: "warn", failed: "bad" };
const RETRY_MS = 2000;
const SILENCE_MS = 5000; // the application sends every second
const $ = (id) => document.getElementById(id);

const page = {
  graph: null, message: null, rates: new Rates(), view: null, receivedAt: 0, isLost: false,
};

async function get(path) {
  const reply = await fetch(path);
  const content = await reply.json();
  if (!reply.ok) throw new Error(content.error ?? reply.statusText);
  return { content, isTruncated: reply.headers.get("X-Wallaroo-Truncated") === "true" };
}

function open() {
  const name = location.hash.slice(1).split("?")[0] || "overview";
  const [id, title, View] = VIEWS.find(([id]) => id === name) ?? VIEWS[0];
  for (const link of $("views").children) {
    if (link.dataset.view === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  page.view?.close?.();
  page.view = new View(page, get);
  $("view").replaceChildren(page.view.element);
  page.title = title;
  entitle();
  if (page.message) page.view.update(page.message);
  window.scrollTo(0, 0);
}

// Several dashboards are several tabs: each names its application, and a state that is not usual.
function entitle() {
  const status = page.message?.status;
  const state = page.isLost ? "no answer" : status?.waiting_for ? "waiting"
    : status && status.state !== "running" ? status.state : "";
  document.title = `${state ? `(${state}) ` : ""}${status?.application ?? "Wallaroo"} · ${page.title}`;
}

function frame(message) {
  const { status, details } = message;
  entitle();
  $("application").textContent = status.application;
  $("state").textContent = status.state;
  $("state").className = `badge ${BADGES[status.state] ?? ""}`;
  $("uptime").textContent = duration(status.elapsed_s);
  const link = $("views").querySelector("[data-view=errors]");
  draw(link, details.failed_total > 0 ? details.failed_total : 0, () => [
    "Errors",
    ...(details.failed_total ? [h("span", { class: "count" }, short(details.failed_total))] : []),
  ]);
  banner(status);
}

const short = (number) => (number > 999 ? "999+" : String(number));

const titled = (word) => word.charAt(0).toUpperCase() + word.slice(1);

const standingBy = (standby) =>
  `Standby: ${standby.leader || "no run"} leads (epoch ${standby.epoch}); its lease moved ` +
  `${standby.lease_s.toFixed(1)} s ago; ${behind(standby.last_batch, standby.ready_batch)}`;

function behind(last, ready) {
  if (last === null) return "its commits are not read yet";
  if (last < 0) return "nothing is committed yet";
  return `the state here is ${last - ready} commits behind commit ${last}`;
}

function banner(status) {
  const lost = page.isLost ? "The application does not answer; what is shown is old. Trying again." : "";
  const standby = status?.standby ? standingBy(status.standby) : "";
  const doing = standby ? "" : status?.doing ? `${titled(status.state)}: ${status.doing}…` : "";
  const waits = status?.waiting_for ? `Waiting for ${status.waiting_for}` : "";
  const text = lost || standby || doing || waits;
  $("banner").hidden = !text;
  $("banner").textContent = text;
  $("banner").className = `banner ${lost ? "bad" : ""}`;
  // read out again only if the cause changes, not each second with its duration
  draw($("announced"), text.replace(/[0-9]+/g, ""), () => text);
}

function received(message) {
  page.receivedAt = Date.now();
  const wasLost = page.isLost;
  page.isLost = false;
  $("link").textContent = "live";
  $("link").className = "quiet live";
  page.message = message;
  page.rates.add(message);
  frame(message);
  page.view.update(message);
  if (wasLost) { loadGraph(); page.view.reload?.(); }
}

function lost() {
  page.isLost = true;
  $("link").textContent = "no answer";
  $("link").className = "quiet lost";
  entitle();
  banner(page.message?.status);
}

function connect() {
  const stream = new EventSource("/stream");
  stream.onmessage = (event) => received(JSON.parse(event.data));
  stream.onerror = () => {
    lost();
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  };
}

async function loadGraph() {
  try {
    page.graph = (await get("/graph")).content;
  } catch {
    setTimeout(loadGraph, RETRY_MS);
  }
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("wallaroo-theme", root.dataset.theme);
  open(); // charts take their colours when they are built
}

async function begin() {
  $("views").append(...VIEWS.map(([id, title]) =>
    h("a", { href: `#${id}`, "data-view": id }, title)));
  $("zone").textContent = `Times are in ${zone()}.`;
  $("theme").addEventListener("click", switchTheme);
  window.addEventListener("hashchange", open);
  await loadGraph();
  open();
  connect();
  setInterval(() => {
    if (page.receivedAt && Date.now() - page.receivedAt > SILENCE_MS) lost();
  }, 1000);
}

begin();

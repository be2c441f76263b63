/** The engine at work: /metrics once a second while the page is seen, as numbers and sparklines of a minute. */

import { request } from "./api.js";

const POINTS = 60;
const SVG = "http://www.w3.org/2000/svg";

const count = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });
const percent = (value) => `${(100 * value).toLocaleString("en", { maximumFractionDigits: value < 0.1 ? 1 : 0 })} %`;
const rate = (value) => (value > 0 && value < 10 ? value.toFixed(1) : count(value));

/** title, how to show it, the top of its scale (0: the highest seen), and what it is of two readings. */
const GAUGES = [
  { title: "Running", show: count, top: 0, of: (now) => now.sum("num_requests_running") },
  { title: "Waiting", show: count, top: 0, of: (now) => now.sum("num_requests_waiting") },
  { title: "Tokens per second", show: rate, top: 0, of: (now, before) => perSecond("generation_tokens_total", now, before) },
  { title: "Self KV in use", show: percent, top: 1, of: (now) => now.sum("kv_cache_usage_perc", 'kind="self"') },
  { title: "Cross KV in use", show: percent, top: 1, of: (now) => now.sum("kv_cache_usage_perc", 'kind="cross"') },
  { title: "Encoder cache hits", show: percent, top: 1, of: hitRate },
];

/** Fills the list with gauges and keeps them going; `linked` hears true or false: whether the server answers. */
export function startGauges(list, linked) {
  const views = GAUGES.map((gauge) => view(list, gauge));
  let before = null;
  let timer = 0;

  async function poll() {
    clearTimeout(timer);
    if (document.hidden) return;
    const now = await scrape();
    views.forEach((draw, index) => draw(now && GAUGES[index].of(now, before ?? now)));
    before = now;
    linked(now !== null);
    timer = setTimeout(poll, 1000);
  }

  document.addEventListener("visibilitychange", poll);
  poll();
}

/** null where the server does not answer. */
async function scrape() {
  try {
    return reading(await (await request("metrics")).text());
  } catch {
    return null;
  }
}

/** Prometheus' text: a sum over the series of a metric that carry a label. */
function reading(text) {
  const lines = text.split("\n").filter((line) => line.startsWith("transduce:"));
  return {
    at: performance.now(),
    sum(name, label = "") {
      const series = lines.filter((line) => /^[^{ ]+/.exec(line)[0] === `transduce:${name}` && line.includes(label));
      return series.reduce((total, line) => total + Number(line.slice(line.lastIndexOf(" "))), 0);
    },
  };
}

/** A counter's growth; one that fell was started anew. */
function perSecond(name, now, before) {
  const seconds = (now.at - before.at) / 1000;
  return seconds > 0 ? Math.max(0, now.sum(name) - before.sum(name)) / seconds : 0;
}

function hitRate(now) {
  const queries = now.sum("encoder_cache_queries_total");
  return queries ? now.sum("encoder_cache_hits_total") / queries : 0;
}

function view(list, { title, show, top }) {
  const item = list.appendChild(document.createElement("div"));
  item.appendChild(document.createElement("dt")).textContent = title;
  const value = item.appendChild(document.createElement("dd"));
  const draw = sparkline(item.appendChild(document.createElement("dd")));
  return (number) => {
    value.textContent = number === null ? "–" : show(number);
    draw(number, top);
  };
}

function sparkline(parent) {
  const svg = parent.appendChild(document.createElementNS(SVG, "svg"));
  svg.setAttribute("viewBox", `0 0 ${POINTS - 1} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  parent.setAttribute("aria-hidden", "true");
  const [area, line] = ["area", "line"].map((name) => svg.appendChild(document.createElementNS(SVG, "path")));
  area.setAttribute("class", "area");
  line.setAttribute("class", "line");
  const past = [];
  return (number, top) => {
    past.push(number ?? 0);
    if (past.length > POINTS) past.shift();
    const scale = top || Math.max(1, ...past);
    const points = past.map((value, i) => `${POINTS - past.length + i} ${(19 - (18 * value) / scale).toFixed(2)}`);
    line.setAttribute("d", `M${points.join("L")}`);
    area.setAttribute("d", `M${POINTS - past.length} 20L${points.join("L")}L${POINTS - 1} 20Z`);
  };
}

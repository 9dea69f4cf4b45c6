// A report of `omnibus bench report`, opened from a file. Nothing of it leaves the browser.

import { el, failure, table } from "./dom.js";
import { intervals, short } from "./plots.js";

const METRICS = [
  ...["ttft", "tpot", "itl", "e2e"].flatMap((name) =>
    ["p50", "p95", "p99"].map((share) => [`${name}_${share}`, `${name.toUpperCase()} ${share}, ms`])),
  ["output_throughput", "Output tokens/s"],
  ["goodput", "Goodput, requests/s"],
  ["tokens_per_joule", "Output tokens/J"],
  ["peak_memory", "Peak memory of arrays, bytes"],
  ["cached_share", "Cached share of prompts"],
  ["accepted_drafts", "Accepted draft tokens"],
  ["encoded_media", "Encoded pictures"],
];
/** The metrics that have plots. */
const PLOTTED = ["ttft_p50", "tpot_p50", "e2e_p95", "output_throughput", "goodput", "tokens_per_joule"];

// Survives a change of the view.
let opened;

export function benchView() {
  const place = el("div", { role: "region", "aria-live": "polite", "aria-label": "Report" });
  const file = el("input", { type: "file", accept: ".json,application/json", id: "report", change: async () => {
    try {
      opened = read(JSON.parse(await file.files[0].text()));
      place.replaceChildren(...draw(opened));
    } catch (error) {
      place.replaceChildren(failure(new Error(`This file is no report: ${error.message}`)));
    }
  } });
  if (opened) place.append(...draw(opened));
  return el("section", { "aria-label": "Bench" }, el("h2", {}, "Bench"),
    el("p", {}, el("label", { for: "report" }, "report.json of omnibus bench report: "), file), place);
}

/** A report, checked. */
function read(report) {
  for (const name of ["contenders", "values"]) {
    if (!Array.isArray(report?.[name])) throw new Error(`it has no list ${name}`);
  }
  for (const [at, value] of report.values.entries()) {
    const isNumber = (number) => typeof number === "number" && Number.isFinite(number);
    if (typeof value?.contender !== "string" || typeof value.load !== "string" || typeof value.metric !== "string") {
      throw new Error(`values[${at}] needs a contender, a load and a metric`);
    }
    if (!isNumber(value.mean) || !(value.half === null || value.half === undefined || isNumber(value.half))) {
      throw new Error(`values[${at}].mean and half must be numbers`);
    }
  }
  return report;
}

function draw(report) {
  const loads = [...new Set(report.values.map(({ load }) => load))];
  const about = [["Model", report.model], ["Machine", report.machine], ["Version", report.version], ["Rounds", report.rounds],
    ["Requests of a load", report.requests]].filter(([, value]) => value !== undefined && value !== null);
  return [
    table("What was measured", ["Fact", "Value"], about.map(([name, value]) => [name, String(value)])),
    table("Servers", ["Server", "Setup"], report.contenders.map(({ name, setup }) => [String(name), String(setup)])),
    ...loads.map((load) => loadView(report, load)),
  ];
}

function loadView(report, load) {
  const names = report.contenders.map(({ name }) => String(name));
  const found = new Map(report.values.filter((value) => value.load === load)
    .map((value) => [`${value.contender}\n${value.metric}`, value]));
  const of = (name, metric) => found.get(`${name}\n${metric}`);
  const shown = METRICS.filter(([metric]) => names.some((name) => of(name, metric)));
  const cell = (value) => (value ? `${short(value.mean)}${value.half ? ` ± ${short(value.half)}` : ""}` : "–");
  const plots = shown.filter(([metric]) => PLOTTED.includes(metric)).map(([metric, label]) => {
    const rows = names.filter((name) => of(name, metric)).map((name) => [name, of(name, metric).mean, of(name, metric).half]);
    return el("section", { class: "tile", "aria-label": label }, el("h4", {}, label), intervals(label, rows));
  });
  return el("section", { "aria-label": `Load ${load}` }, el("h3", {}, load), el("div", { class: "tiles" }, plots),
    table(`Load ${load}: means, with half of the 95 % interval`, ["Metric", ...names],
      shown.map(([metric, label]) => [label, ...names.map((name) => cell(of(name, metric)))])));
}

// The engine as it runs: steps, KV blocks, cache hits, memory.

import { call } from "./api.js";
import { bytes, el, failure, number, table, whileShown } from "./dom.js";

const INTERVAL = 1000;
const POINTS = 120;

export function engineView() {
  const history = [];
  const place = el("div", { class: "tiles" });
  const view = el("section", { "aria-label": "Engine" }, el("h2", {}, "Engine"), place);
  whileShown(view, INTERVAL, async () => {
    try {
      const [status, models] = await Promise.all([call("/v1/status"), call("/v1/models")]);
      history.push({ at: performance.now(), status });
      if (history.length > POINTS) history.shift();
      place.replaceChildren(...draw(history, models.data));
    } catch (error) {
      place.replaceChildren(failure(error));
    }
  });
  return view;
}

/** Differences a second of a total. */
function rates(history, of) {
  return history.slice(1).map((point, at) => {
    const before = history[at];
    const seconds = (point.at - before.at) / 1000;
    return Math.max(0, (of(point.status.engine) - of(before.status.engine)) / seconds);
  });
}

function draw(history, models) {
  const { status } = history.at(-1);
  const { engine } = status;
  const generated = rates(history, (engine) => engine.generated_tokens_total);
  const computed = rates(history, (engine) => engine.computed_tokens_total);
  const steps = rates(history, (engine) => engine.steps_total);
  return [
    tile("Requests", `${status.running} running, ${status.queued} waiting`,
      spark("Running requests", history.map(({ status }) => status.running))),
    tile("Generated", `${number(Math.round(generated.at(-1) ?? 0))} tokens/s`, spark("Generated tokens a second", generated)),
    tile("Computed", `${number(Math.round(computed.at(-1) ?? 0))} tokens/s`, spark("Computed tokens a second", computed)),
    tile("Steps", `${number(Math.round(steps.at(-1) ?? 0))} a second`, spark("Steps a second", steps)),
    tile("KV blocks", `${number(engine.kv_blocks_used)} used, ${number(engine.kv_blocks_cached)} cached of ${number(engine.kv_blocks_total)}`,
      bar([["used", engine.kv_blocks_used], ["cached", engine.kv_blocks_cached]], engine.kv_blocks_total)),
    cacheTile(engine),
    draftTile(engine),
    memoryTile(engine, models),
    timeTile(engine),
  ].filter(Boolean);
}

function tile(title, value, ...more) {
  return el("section", { class: "tile", "aria-label": title }, el("h3", {}, title), el("p", { class: "value" }, value), more);
}

function cacheTile(engine) {
  const misses = Object.entries(engine.prefix_misses ?? {}).filter(([, count]) => count);
  const all = engine.cached_tokens_total + engine.computed_tokens_total;
  const share = all ? Math.round((100 * engine.cached_tokens_total) / all) : 0;
  return tile("Prefix cache", `${share} % of prompt and generated tokens were cached`,
    misses.length ? table("Misses by reason", ["Reason", "Tokens"], misses.map(([name, count]) => [name.replace("_", " "), number(count)])) : null);
}

function draftTile(engine) {
  if (!engine.draft_tokens_total) return null;
  const share = (100 * engine.accepted_draft_tokens_total) / engine.draft_tokens_total;
  return tile("Speculation", `${share.toFixed(0)} % of ${number(engine.draft_tokens_total)} drafted tokens were accepted`,
    bar([["accepted", engine.accepted_draft_tokens_total]], engine.draft_tokens_total));
}

function memoryTile(engine, models) {
  const planned = models.filter((model) => model.loaded && model.memory).reduce((sum, model) => sum + model.memory.bytes, 0);
  return tile("Memory", `${bytes(engine.active_memory_bytes)} in use, at most ${bytes(engine.peak_memory_bytes)} so far`,
    planned ? el("p", {}, `${bytes(planned)} planned for the loaded models`) : null,
    planned ? bar([["in use", engine.active_memory_bytes]], planned) : null);
}

function timeTile(engine) {
  if (!engine.steps_total) return null;
  const each = (seconds) => `${((1000 * seconds) / engine.steps_total).toFixed(3)} ms`;
  return tile("A step", `${number(engine.steps_total)} steps`, table("Mean times",
    ["Part", "Time"], [["planned", each(engine.plan_seconds_total)], ["dispatched", each(engine.dispatch_seconds_total)],
      ["waited for the device", each(engine.wait_seconds_total)], ["other work of the host", each(engine.host_seconds_total)]]));
}

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A line of the last values, with its largest as text. */
function spark(label, values) {
  const most = Math.max(1, ...values);
  const points = values.map((value, at) => `${(at * 240) / (POINTS - 1)},${39 - (value / most) * 36}`).join(" ");
  return el("figure", {},
    svg("svg", { viewBox: "0 0 240 40", role: "img", "aria-label": `${label}, at most ${number(Math.round(most))}` },
      svg("polyline", { points, class: "spark" })),
    el("figcaption", {}, `at most ${number(Math.round(most))} in two minutes`));
}

/** Shares of a whole. */
function bar(parts, whole) {
  let at = 0;
  const rects = parts.map(([, value], index) => {
    const width = whole ? (240 * value) / whole : 0;
    const rect = svg("rect", { x: at, y: 0, width, height: 12, class: `part-${index}` });
    at += width;
    return rect;
  });
  const text = parts.map(([name, value]) => `${name} ${whole ? Math.round((100 * value) / whole) : 0} %`).join(", ");
  return el("figure", {},
    svg("svg", { viewBox: "0 0 240 12", role: "img", "aria-label": text, class: "bar" },
      svg("rect", { x: 0, y: 0, width: 240, height: 12, class: "whole" }), ...rects),
    el("figcaption", {}, text));
}

// The engine as it runs: steps as they happen, who has which KV blocks, the queue, cache hits, memory.

import { events } from "./api.js";
import { bytes, el, failure, number, table } from "./dom.js";
import { bar, bars, spark as line } from "./plots.js";

const POINTS = 120;
const TOGETHER_MS = 100;
/** How many steps are shown, one bar each. */
const STEPS = 32;
/** Rows of a table. */
const ROWS = 10;
/** Milliseconds until a stream that has ended is opened again. */
const PAUSE = 2000;

const spark = (label, values) => line(label, values, POINTS);

export function engineView() {
  const place = el("div", { class: "tiles" });
  const view = el("section", { "aria-label": "Engine" }, el("h2", {}, "Engine"), place);
  const shown = { history: [], steps: [], lost: 0, requests: { total: 0, data: [], keys: [] } };
  let drawing;
  const draw = () => {
    drawing ??= requestAnimationFrame(() => {
      drawing = undefined;
      if (shown.history.length) place.replaceChildren(...tiles(shown));
    });
  };
  queueMicrotask(() => watch(view, (event) => {
    take(shown, event);
    draw();
  }, (error) => place.replaceChildren(failure(error))));
  return view;
}

/** Reads the stream while the view is shown and the page is seen. */
async function watch(view, take, fail) {
  while (view.isConnected) {
    if (!document.hidden) {
      const ended = new AbortController();
      const look = () => (document.hidden || !view.isConnected) && ended.abort();
      const timer = setInterval(look, 500);
      document.addEventListener("visibilitychange", look);
      try {
        for await (const event of events("/v1/status/stream", { signal: ended.signal })) take(event);
      } catch (error) {
        if (error.name !== "AbortError") fail(error);
      }
      clearInterval(timer);
      document.removeEventListener("visibilitychange", look);
    }
    if (view.isConnected) await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

/** Takes an event in; keeps what is shown and no more. */
function take(shown, event) {
  if (event.type === "steps") {
    shown.lost += event.lost;
    shown.steps.push(...event.steps);
    shown.steps.splice(0, Math.max(0, shown.steps.length - STEPS));
  } else if (event.type === "requests") {
    shown.before = shown.requests;
    shown.requests = { ...event, at: performance.now() };
  } else if (event.type === "status") {
    const at = performance.now();
    // A busy page reads several at once: there is no rate between them.
    if (at - shown.history.at(-1)?.at < TOGETHER_MS) shown.history.pop();
    shown.history.push({ at, status: event });
    if (shown.history.length > POINTS) shown.history.shift();
  }
}

/** Differences a second of a total. */
function rates(history, of) {
  return history.slice(1).map((point, at) => {
    const before = history[at];
    const seconds = (point.at - before.at) / 1000;
    return Math.max(0, (of(point.status.engine) - of(before.status.engine)) / seconds);
  });
}

function tiles(shown) {
  const { history, requests } = shown;
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
    stepsTile(shown),
    energyTile(history),
    blocksTile(engine, requests),
    queueTile(requests),
    keysTile(shown),
    cacheTile(engine),
    draftTile(engine),
    memoryTile(engine, Object.values(status.memory)),
    timeTile(engine),
  ].filter(Boolean);
}

/** Each of the last steps as a bar of what it computed, against the most that it could. */
function stepsTile({ steps, lost }) {
  if (!steps.length) return null;
  const last = steps.at(-1);
  const whole = Math.max(...steps.map(({ budget }) => budget));
  const parts = (step) => [["decodes", step.decodes], ["prefill", step.prefill], ["drafts", step.drafts], ["encodes", step.encodes]];
  const text = parts(last).map(([name, value]) => `${name} ${value}`).join(", ");
  const most = Math.max(...steps.map((step) => step.decodes + step.prefill + step.drafts));
  return tile("Tokens of a step", `${last.decodes + last.prefill + last.drafts} of at most ${number(last.budget)}`,
    bars(`The last ${steps.length} steps; the last: ${text}`, steps.map(parts), most < whole / 8 ? most : whole,
      `${text}; ${(1000 * last.seconds).toFixed(1)} ms. The last ${steps.length} steps, ${most < whole / 8 ? `the widest of ${number(most)} tokens` : "against their budget"}${lost ? `; ${number(lost)} were not seen` : ""}`));
}

/** KV blocks, by whose requests hold them. */
function blocksTile(engine, { keys }) {
  const held = keys.filter(({ kv_blocks: blocks }) => blocks);
  const rows = held.slice(0, ROWS).map((load) => [load.key ?? "without a key", number(load.kv_blocks), number(load.kv_blocks_shared)]);
  return tile("KV blocks", `${number(engine.kv_blocks_used)} used, ${number(engine.kv_blocks_cached)} cached of ${number(engine.kv_blocks_total)}`,
    bar([["used", engine.kv_blocks_used], ["cached", engine.kv_blocks_cached]], engine.kv_blocks_total),
    rows.length ? table("Blocks by key", ["Key", "Held", "Shared"], rows) : null);
}

/** Requests that wait, with the time that they have. */
function queueTile({ data, total }) {
  const waiting = data.filter(({ state }) => state === "queued");
  if (!waiting.length) return null;
  const left = ({ deadline_seconds: seconds }) => (seconds === undefined ? "no limit" : `${seconds.toFixed(1)} s left`);
  const rows = waiting.slice(0, ROWS).map((one) => [one.id, one.key ?? "", `${one.age_seconds.toFixed(1)} s`, left(one)]);
  return tile("Queue", `${waiting.length} of the oldest ${data.length}${total > data.length ? ` of ${number(total)}` : ""} wait`,
    table("The oldest that wait", ["Request", "Key", "Waits", "Deadline"], rows));
}

/** What each key gets while others want it, too. */
function keysTile({ requests, before }) {
  if (!requests.keys.length) return null;
  const seconds = (requests.at - before?.at) / 1000;
  const known = new Map((before?.keys ?? []).map((load) => [load.key, load]));
  const rate = (load, name) => {
    const earlier = known.get(load.key);
    return earlier && seconds > 0 ? number(Math.round((load[name] - earlier[name]) / seconds)) : "";
  };
  const rows = requests.keys.slice(0, ROWS).map((load) => [load.key ?? "without a key", number(load.running), number(load.queued),
    `${load.oldest_queued_seconds.toFixed(1)} s`, rate(load, "prompt_tokens"), rate(load, "completion_tokens")]);
  return tile("Fairness", `${requests.keys.length} ${requests.keys.length === 1 ? "key has" : "keys have"} requests`,
    table("By key", ["Key", "Run", "Wait", "Longest", "Prompt/s", "Generated/s"], rows));
}

/** Power, and where energy went. Absent without a sensor. */
function energyTile(history) {
  const { energy } = history.at(-1).status.engine;
  if (!energy) return null;
  const joules = (name) => energy[`${name}_millijoules_total`] / 1000;
  const all = joules("prompt") + joules("completion") + joules("idle");
  const source = energy.source === "estimate" ? "stated, not measured" : energy.source;
  return tile("Power", `${energy.watts.toFixed(1)} W (${source})`,
    spark("Watts", history.map(({ status }) => status.engine.energy?.watts ?? 0)),
    bar([["prompts", joules("prompt")], ["completions", joules("completion")], ["idle", joules("idle")]], all));
}

function tile(title, value, ...more) {
  return el("section", { class: "tile", "aria-label": title }, el("h3", {}, title), el("p", { class: "value" }, value), more);
}

function cacheTile(engine) {
  const misses = Object.entries(engine.prefix_misses ?? {}).filter(([, count]) => count);
  const all = engine.cached_tokens_total + engine.computed_tokens_total;
  const share = all ? Math.round((100 * engine.cached_tokens_total) / all) : 0;
  return tile("Prefix cache", `${share} % of prompt and generated tokens were cached`,
    misses.length ? table("Misses by reason", ["Reason", "Prompts"], misses.map(([name, count]) => [name.replace("_", " "), number(count)])) : null);
}

function draftTile(engine) {
  if (!engine.draft_tokens_total) return null;
  const share = (100 * engine.accepted_draft_tokens_total) / engine.draft_tokens_total;
  return tile("Speculation", `${share.toFixed(0)} % of ${number(engine.draft_tokens_total)} drafted tokens were accepted`,
    bar([["accepted", engine.accepted_draft_tokens_total]], engine.draft_tokens_total));
}

/** What the plans of the loaded models keep for what, against what is in use. */
function memoryTile(engine, plans) {
  const parts = [["Weights", "weights_bytes"], ["Adapters", "adapter_bytes"], ["KV cache", "kv_bytes"], ["Steps", "scratch_bytes"],
    ["Media", "media_bytes"], ["Encoders", "encoder_bytes"]].map(([name, field]) => [name, plans.reduce((sum, plan) => sum + plan[field], 0)]);
  const planned = parts.reduce((sum, [, size]) => sum + size, 0);
  return tile("Memory", `${bytes(engine.active_memory_bytes)} in use, at most ${bytes(engine.peak_memory_bytes)} so far`,
    planned ? bar([["in use", engine.active_memory_bytes]], planned) : null,
    planned ? table(`${bytes(planned)} planned`, ["For", "Planned"], parts.filter(([, size]) => size).map(([name, size]) => [name, bytes(size)])) : null);
}

function timeTile(engine) {
  if (!engine.steps_total) return null;
  const each = (seconds) => `${((1000 * seconds) / engine.steps_total).toFixed(3)} ms`;
  return tile("A step", `${number(engine.steps_total)} steps`, table("Mean times",
    ["Part", "Time"], [["planned", each(engine.plan_seconds_total)], ["dispatched", each(engine.dispatch_seconds_total)],
      ["waited for the device", each(engine.wait_seconds_total)], ["other work of the host", each(engine.host_seconds_total)]]));
}

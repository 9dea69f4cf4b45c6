// The engine as it runs: steps, KV blocks, cache hits, memory.

import { call } from "./api.js";
import { bytes, el, failure, number, table, whileShown } from "./dom.js";
import { bar, bars, spark as line } from "./plots.js";

const INTERVAL = 1000;
const POINTS = 120;
/** How many steps are shown, each the mean of a second. */
const STEPS = 16;

const spark = (label, values) => line(label, values, POINTS);

export function engineView() {
  const history = [];
  let budget;
  // A key that may not see settings sees steps without their budget.
  call("/ui/settings").then(({ settings }) => {
    budget = Number(settings.find(({ name }) => name === "max-num-batched-tokens")?.value) || undefined;
  }, () => {});
  const place = el("div", { class: "tiles" });
  const view = el("section", { "aria-label": "Engine" }, el("h2", {}, "Engine"), place);
  whileShown(view, INTERVAL, async () => {
    try {
      const [status, models] = await Promise.all([call("/v1/status"), call("/v1/models")]);
      history.push({ at: performance.now(), status });
      if (history.length > POINTS) history.shift();
      place.replaceChildren(...draw(history, models.data, budget));
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

function draw(history, models, budget) {
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
    stepsTile(history, budget),
    energyTile(history),
    tile("KV blocks", `${number(engine.kv_blocks_used)} used, ${number(engine.kv_blocks_cached)} cached of ${number(engine.kv_blocks_total)}`,
      bar([["used", engine.kv_blocks_used], ["cached", engine.kv_blocks_cached]], engine.kv_blocks_total)),
    cacheTile(engine),
    draftTile(engine),
    memoryTile(engine, models),
    timeTile(engine),
  ].filter(Boolean);
}

/** What a step computes, as the mean of each of the last seconds. */
function stepsTile(history, budget) {
  const rows = history.slice(1).map(({ status: { engine } }, at) => composition(history[at].status.engine, engine)).filter(Boolean);
  const last = rows.slice(-STEPS);
  if (!last.length) return null;
  const sum = (parts) => parts.reduce((total, [, value]) => total + value, 0);
  const whole = budget ?? Math.max(...last.map(sum));
  const text = last.at(-1).map(([name, value]) => `${name} ${value.toFixed(1)}`).join(", ");
  return tile("Tokens of a step", `${sum(last.at(-1)).toFixed(1)}${budget ? ` of at most ${number(budget)}` : ""}`,
    bars(`Tokens of steps: ${text}`, last, whole, `${text}; each bar is the mean step of a second${budget ? "" : ", the widest the largest"}`));
}

/** The tokens of the mean step between two readings, by what they are. */
function composition(before, after) {
  const grown = (name) => Math.max(0, after[name] - before[name]);
  const steps = grown("steps_total");
  if (!steps) return null;
  const drafts = grown("draft_tokens_total");
  const decodes = Math.max(0, grown("generated_tokens_total") - grown("accepted_draft_tokens_total"));
  const prefill = Math.max(0, grown("computed_tokens_total") - decodes - drafts);
  const encoded = (engine) => engine.media?.encoder_runs_total ?? 0;
  const encodes = Math.max(0, encoded(after) - encoded(before));
  const parts = [["decodes", decodes / steps], ["prefill", prefill / steps], ["drafts", drafts / steps]];
  return encodes ? [...parts, ["encodes", encodes / steps]] : parts;
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

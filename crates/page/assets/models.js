// Models: which are loaded, what they take, loading, unloading and downloads.

import { adapterForm, unloadAdapter } from "./adapters.js";
import { call, jsonLines } from "./api.js";
import { ago, button, bytes, el, failure, number, table, whileShown } from "./dom.js";

export function modelsView() {
  const list = el("div");
  const messages = el("div", { role: "status" });
  const forms = [pullForm, adapterForm].map((form) => form(messages, () => refresh()));
  const view = el("section", { "aria-label": "Models" }, el("h2", {}, "Models"), messages, list, forms);
  const act = async (model) => {
    messages.replaceChildren(`${model.loaded || model.parent ? "Unloading" : "Loading"} ${model.id} …`);
    try {
      if (model.parent) await unloadAdapter(model.id);
      else await call(`/v1/models/${model.loaded ? "unload" : "load"}`, { method: "POST", body: { model: model.id } });
      messages.replaceChildren();
    } catch (error) {
      messages.replaceChildren(failure(error));
    }
    refresh();
  };
  const refresh = async () => {
    try {
      const { data } = await call("/v1/models");
      list.replaceChildren(table(`${data.length} models and adapters`,
        ["Model", "State", "Memory", "Requests", "Last used", "Context", "Kind", ""], data.map((model) => row(model, act))));
    } catch (error) {
      list.replaceChildren(failure(error));
    }
  };
  whileShown(view, 3000, refresh);
  return view;
}

function row(model, act) {
  const memory = model.memory ?? {};
  const state = model.status?.value ?? (model.loaded ? "loaded" : "");
  const kind = [model.architecture, model.quantization, model.task].filter(Boolean).join(", ");
  const requests = `${memory.active_requests ?? 0}${memory.waiting_requests ? ` + ${memory.waiting_requests} waiting` : ""}`;
  const verb = model.loaded || model.parent ? "Unload" : "Load";
  const action = button(verb, () => act(model), { "aria-label": `${verb} ${model.id}` });
  const why = model.status?.error;
  return [model.id, why ? `${state}: ${why}` : state, memory.bytes ? bytes(memory.bytes) : "", requests,
    ago(memory.last_used), model.context_length ? number(model.context_length) : "", kind, action];
}

/** What a model would need, before it is downloaded. */
function planned(plan) {
  const fits = plan.fits ? "It fits" : `It does not fit: ${plan.error ?? "no token fits beside the weights"}`;
  const instead = plan.instead ? `; in ${plan.instead.bits} bits (${bytes(plan.instead.weight_bytes)}) it would` : "";
  const rows = [["Place", plan.place], ["Download", `${bytes(plan.download_bytes)} in ${plan.download_files} files`],
    ["Weights", `${bytes(plan.weight_bytes)}, ${plan.quantization ?? "not quantized"}`],
    ["Keys and values of a token", bytes(plan.kv_token_bytes)],
    ["Tokens of all requests together", typeof plan.kv_tokens === "number" ? number(plan.kv_tokens) : "no known limit"]];
  return el("div", {}, el("p", {}, `${fits}${instead}.`), table(`Plan of ${plan.model}`, ["What", "How much"], rows));
}

/** Downloads a model from the hub, with its progress. */
function pullForm(messages, done) {
  const name = el("input", { required: true, placeholder: "org/name", pattern: "[^/ ]+/[^/ ]+", "aria-describedby": "pull-hint" });
  const progress = el("progress", { max: "1", value: "0", hidden: true, "aria-label": "Download" });
  const pull = async (event) => {
    event.preventDefault();
    progress.hidden = false;
    try {
      for await (const line of jsonLines("/api/pull", { method: "POST", body: { model: name.value } })) {
        if (line.error) throw new Error(line.error);
        if (line.total) progress.value = (line.completed ?? 0) / line.total;
        messages.textContent = line.status ?? "";
      }
    } catch (error) {
      messages.replaceChildren(failure(error));
    }
    progress.hidden = true;
    done();
  };
  const plan = async () => {
    if (!name.reportValidity()) return;
    try {
      messages.replaceChildren(planned(await call("/v1/models/plan", { method: "POST", body: { model: name.value } })));
    } catch (error) {
      messages.replaceChildren(failure(error));
    }
  };
  return el("form", { submit: pull }, el("h3", {}, "Download"),
    el("p", {}, el("label", {}, "Model on the hub ", name), " ", button("Plan", plan), " ", el("button", { type: "submit" }, "Download"), " ", progress),
    el("p", { id: "pull-hint", class: "hint" }, "Needs a server that was started with --allow-pull."));
}

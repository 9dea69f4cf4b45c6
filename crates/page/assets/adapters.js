// Adapters: loading one beside the model that it is for, and unloading.

import { call } from "./api.js";
import { el, failure } from "./dom.js";

/** Unloads an adapter, once the requests that use it have ended. */
export const unloadAdapter = (name) => call("/v1/unload_lora_adapter", { method: "POST", body: { lora_name: name } });

/** Loads an adapter from a directory of the server. */
export function adapterForm(messages, done) {
  const name = el("input", { required: true, placeholder: "sql" });
  const path = el("input", { required: true, placeholder: "/adapters/sql" });
  const base = el("input", { placeholder: "the default model", "aria-describedby": "adapter-hint" });
  const load = async (event) => {
    event.preventDefault();
    messages.replaceChildren(`Loading ${name.value} …`);
    const body = { lora_name: name.value, lora_path: path.value, base_model_name: base.value || null };
    try {
      await call("/v1/load_lora_adapter", { method: "POST", body });
      messages.replaceChildren();
    } catch (error) {
      messages.replaceChildren(failure(error));
    }
    done();
  };
  const labelled = (text, field) => [el("label", {}, text, field), " "];
  return el("form", { submit: load }, el("h3", {}, "Load an adapter"),
    el("p", {}, ...labelled("Name ", name), ...labelled("Directory on the server ", path), ...labelled("Model ", base),
      el("button", { type: "submit" }, "Load adapter")),
    el("p", { id: "adapter-hint", class: "hint" }, "Needs a server that was started with --allow-runtime-lora-updating."));
}

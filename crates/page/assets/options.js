// What a conversation asks of the model: only what is set here is sent.

import { call } from "./api.js";
import { el, failure } from "./dom.js";

const NUMBERS = [
  ["temperature", "Temperature", "0", "2", "0.1"],
  ["top_p", "Top p", "0", "1", "0.05"],
  ["top_k", "Top k", "0", "1000", "1"],
  ["min_p", "Min p", "0", "1", "0.01"],
  ["max_tokens", "Most tokens", "1", "1000000", "1"],
  ["seed", "Seed", "0", "4294967295", "1"],
];

/** The form of a conversation's options. `changed` is called after each change. */
export function optionsView(options, changed) {
  const set = (name) => (event) => {
    const { target } = event;
    if (!target.checkValidity()) return target.reportValidity();
    if (target.value === "") delete options[name];
    else options[name] = target.value;
    changed();
  };
  const labelled = (label, field) => el("p", {}, el("label", {}, label, " ", field));
  const models = el("select", { change: set("model") }, el("option", { value: "" }, "Default model"));
  fillModels(models, options.model).catch((error) => models.after(failure(error)));
  const numbers = NUMBERS.map(([name, label, min, max, step]) =>
    labelled(label, el("input", { type: "number", min, max, step, value: options[name], placeholder: "default", change: set(name) })));
  const effort = el("select", { change: set("reasoning") }, ["", "none", "low", "medium", "high"].map((value) =>
    el("option", { value, selected: value === (options.reasoning ?? "") }, value || "default")));
  const json = (name, label, example) => {
    const field = el("textarea", { rows: "5", spellcheck: "false", placeholder: example, input: (event) => check(event.target), change: set(name) });
    field.value = options[name] ?? "";
    return labelled(label, field);
  };
  const serverTools = el("input", { type: "checkbox", checked: Boolean(options.server_tools), change: ({ target }) => {
    if (target.checked) options.server_tools = true;
    else delete options.server_tools;
    changed();
  } });
  const system = el("textarea", { rows: "3", change: set("system") });
  system.value = options.system ?? "";
  return el("details", { class: "options" }, el("summary", {}, "Options"),
    labelled("Model", models), labelled("System prompt", system), el("div", { class: "numbers" }, numbers),
    labelled("Reasoning effort", effort),
    json("schema", "JSON schema of the answer", '{"type": "object", "properties": {"city": {"type": "string"}}}'),
    el("p", {}, el("label", {}, serverTools, " Tools of the server's MCP servers, which it runs")),
    json("tools", "Tools, a JSON list", '[{"type": "function", "function": {"name": "weather", "parameters": {…}}}]'));
}

/** JSON, or nothing. */
function check(field) {
  let problem = "";
  try {
    if (field.value) JSON.parse(field.value);
  } catch (error) {
    problem = error.message;
  }
  field.setCustomValidity(problem);
}

async function fillModels(select, chosen) {
  const { data } = await call("/v1/models");
  for (const { id, task } of data) {
    if (task && task !== "generate") continue;
    select.append(el("option", { value: id, selected: id === chosen }, id));
  }
}

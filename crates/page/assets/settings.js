// What the server runs with, and how other programs reach it.

import { base } from "./api.js";
import { copyButton, el, fill, table } from "./dom.js";

export function settingsView() {
  const clients = el("div");
  const settings = el("div");
  const view = el("section", { "aria-label": "Settings" }, el("h2", {}, "Connect"), clients, el("h2", {}, "Settings"), settings);
  fill(clients, "/v1/models", ({ data }) => el("div", {}, examples(data[0]?.id ?? "default").map(([name, text]) =>
    el("div", { class: "example" }, el("h3", {}, name), el("pre", { tabindex: "0" }, el("code", {}, text)), copyButton(text)))));
  fill(settings, "/ui/settings", ({ version, settings: all }) => table(`Version ${version}`, ["Setting", "Value", "From", "Changes while it runs"],
    all.map(({ name, value, source, live }) => [name, value, source, live || "no"])));
  return view;
}

function examples(model) {
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello!" }] });
  return [
    ["curl", `curl ${base()}/v1/chat/completions -H 'content-type: application/json' -d '${body}'`],
    ["OpenAI clients", `export OPENAI_BASE_URL=${base()}/v1\nexport OPENAI_API_KEY=none`],
    ["Claude Code and Anthropic clients", `export ANTHROPIC_BASE_URL=${base()}\nexport ANTHROPIC_AUTH_TOKEN=none`],
    ["Ollama clients", `export OLLAMA_HOST=${base()}`],
    ["Agents on this machine", "omnibus launch claude\nomnibus launch codex\nomnibus launch opencode"],
  ];
}

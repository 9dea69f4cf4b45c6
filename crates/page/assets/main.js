// Shows the view that the address names, and whether the server is well.

import { call } from "./api.js";
import { benchView } from "./bench.js";
import { chatView } from "./chat.js";
import { engineView } from "./engine.js";
import { modelsView } from "./models.js";
import { requestsView } from "./requests.js";
import { settingsView } from "./settings.js";

const VIEWS = {
  chat: ["Chat", chatView],
  engine: ["Engine", engineView],
  models: ["Models", modelsView],
  requests: ["Requests", requestsView],
  bench: ["Bench", benchView],
  settings: ["Settings", settingsView],
};

const main = document.getElementById("main");

function show() {
  const name = location.hash.slice(1).split("/")[0];
  if (name === "main") return;
  const [title, view] = VIEWS[name] ?? VIEWS.chat;
  document.title = `${title} – omnibus`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.textContent === title) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(view());
}

async function checkHealth() {
  const health = document.getElementById("health");
  try {
    await call("/health");
    health.textContent = "";
  } catch (error) {
    health.textContent = error.status ? error.message : "The server does not answer.";
  }
}

addEventListener("hashchange", show);
show();
checkHealth();
setInterval(() => document.hidden || checkHealth(), 10_000);

// A message of the transcript.

import { button, copyButton, el, number } from "./dom.js";
import { plain } from "./conversation.js";

const NAMES = { user: "You", assistant: "Assistant", tool: "Result of a tool" };

/** A shown message. `actions`: what can be done with it. */
export function messageView(node, { model, actions = [] } = {}) {
  const { message } = node;
  const title = message.role === "assistant" && (message.model ?? model) ? message.model ?? model : NAMES[message.role];
  const body = el("div", { class: "body" });
  const article = el("article", { class: `message ${message.role}`, "aria-label": title },
    el("h3", {}, title), body, el("p", { class: "stats" }), el("p", { class: "actions" }, actions));
  if (message.role === "assistant") answer(body, message);
  else body.append(...parts(message.content));
  statistics(article, message.stats);
  return article;
}

function parts(content) {
  if (typeof content === "string") return [el("div", { class: "plain" }, content)];
  return content.map((part) => {
    if (part.type === "text") return el("div", { class: "plain" }, part.text);
    if (part.type === "image_url") return el("img", { src: part.image_url.url, alt: "An attached image" });
    if (part.type === "input_audio") {
      return el("audio", { controls: true, src: `data:audio/${part.input_audio.format};base64,${part.input_audio.data}` });
    }
    return el("p", {}, part.type);
  });
}

/** An answer that is there: HTML that the server has made of its Markdown. */
function answer(body, message) {
  const writing = new Writing(body);
  if (message.reasoning) writing.reason(message.reasoning);
  for (const html of message.blocks ?? []) writing.block(html);
  for (const call of [...(message.server_calls ?? []), ...(message.tool_calls ?? [])]) {
    writing.call(call);
    if (call.result !== undefined) writing.result(call.id, call.result, call.failed);
  }
  for (const { name, server, approve } of message.approvals ?? []) {
    if (approve !== undefined) writing.note(`You ${approve ? "approved" : "declined"} ${name} of ${server}`);
  }
  writing.end();
}

/** The line below a message. */
export function statistics(article, stats) {
  const line = article.querySelector(".stats");
  if (!stats) return;
  const cached = stats.cached_tokens ? ` (${number(stats.cached_tokens)} cached)` : "";
  const parts = [`${number(stats.prompt_tokens)} prompt tokens${cached}`, `${number(stats.completion_tokens)} tokens`];
  if (stats.first_ms) parts.push(`first after ${Math.round(stats.first_ms)} ms`);
  if (stats.rate) parts.push(`${stats.rate.toFixed(1)} tokens/s`);
  if (stats.finish_reason && stats.finish_reason !== "stop") parts.push(stats.finish_reason.replace("_", " "));
  line.textContent = parts.join(" · ");
}

/** An answer while it is written: finished blocks stay as they are, the open one is replaced. */
export class Writing {
  constructor(body) {
    this.body = body;
    this.tailPlace = el("div", { class: "tail" });
    this.calls = new Map();
    body.append(this.tailPlace);
  }

  reason(text) {
    if (!this.reasoning) {
      this.reasoning = el("div", { class: "plain" });
      this.body.prepend(el("details", { class: "reasoning" }, el("summary", {}, "Reasoning"), this.reasoning));
    }
    this.reasoning.append(text);
  }

  block(html) {
    this.tailPlace.replaceChildren();
    const block = el("div", { class: "block" });
    block.innerHTML = html;
    for (const code of block.querySelectorAll("pre")) {
      code.tabIndex = 0;
      code.before(el("p", { class: "code-actions" }, copyButton(() => code.textContent, "Copy code")));
    }
    this.tailPlace.before(block);
  }

  tail(html) {
    this.tailPlace.innerHTML = html;
  }

  call({ id, server, function: { name, arguments: sent } }) {
    const text = el("code", {}, sent);
    this.calls.set(id, text);
    const title = server ? `The server calls ${name} of ${server}` : `Calls ${name}`;
    const call = el("div", { class: "call" }, el("p", {}, title), el("pre", { tabindex: "0" }, text));
    // Text that comes after it stays after it.
    if (server) this.tailPlace.before(call);
    else this.body.append(call);
  }

  result(id, text, failed) {
    const call = this.calls.get(id)?.closest(".call");
    call?.append(el("details", {}, el("summary", {}, failed ? "It failed" : "Result"), el("pre", { tabindex: "0" }, text)));
  }

  note(text) {
    this.tailPlace.before(el("p", { class: "hint" }, text));
  }

  argument(id, piece) {
    this.calls.get(id)?.append(piece);
  }

  end() {
    this.tailPlace.replaceChildren();
  }
}

/** A field in which a message is edited. */
export function editor(message, done) {
  const field = el("textarea", { rows: "4", "aria-label": "Message" });
  field.value = plain(message.content);
  const form = el("div", { class: "editor" }, field,
    button("Send as a new branch", () => done(field.value)), button("Cancel", () => done(null)));
  queueMicrotask(() => field.focus());
  return form;
}

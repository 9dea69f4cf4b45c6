// The chat: conversations, the transcript and the field below it.

import { events } from "./api.js";
import { add, empty, markdown, path, plain, requestOf, show, siblings } from "./conversation.js";
import { announce, button, copyButton, download, el, failure } from "./dom.js";
import { editor, messageView, statistics, Writing } from "./message.js";
import { optionsView } from "./options.js";
import { conversations, forget, keep } from "./store.js";

// Survives a change of the view: an answer goes on while another view is shown.
const state = { current: empty(), running: null };

export function chatView() {
  const list = el("ul", { class: "conversations" });
  const transcript = el("div", { class: "transcript", role: "log", "aria-live": "off", "aria-label": "Conversation" });
  const options = el("div");
  const view = el("section", { class: "chat", "aria-label": "Chat" },
    el("aside", { "aria-label": "Conversations" }, button("New chat", () => open(empty())), list),
    el("div", { class: "column" }, options, transcript, composer()));
  const open = (conversation) => {
    state.current = conversation;
    options.replaceChildren(optionsView(conversation.options, () => save()));
    draw();
    queueMicrotask(() => view.querySelector("#message").focus());
  };
  const draw = () => {
    drawTranscript(transcript);
    drawList(list, open);
  };
  state.redraw = () => view.isConnected && draw();
  state.transcript = transcript;
  open(state.current);
  return view;
}

/** Keeps a conversation. A browser may have no room for it, or keep nothing at all. */
async function save(conversation = state.current) {
  try {
    await keep(structuredClone(conversation));
  } catch (error) {
    state.failure = new Error(`This browser did not keep the conversation: ${error.message}`);
    state.redraw();
  }
}

async function drawList(list, open) {
  // A browser that keeps nothing has nothing to list.
  const all = await conversations().catch(() => []);
  list.replaceChildren(...all.map((conversation) => {
    const isCurrent = conversation.id === state.current.id;
    return el("li", {},
      button(conversation.title || "Untitled", () => open(conversation), { class: "title", "aria-current": isCurrent && "true" }),
      el("details", { class: "menu" }, el("summary", { "aria-label": `More for ${conversation.title}` }, "…"),
        button("Export JSON", () => download("conversation.json", JSON.stringify(conversation, null, 1))),
        button("Export Markdown", () => download("conversation.md", markdown(conversation))),
        button("Delete", async () => {
          await forget(conversation.id);
          if (isCurrent) open(empty());
          else drawList(list, open);
        })));
  }));
}

function drawTranscript(transcript) {
  const nodes = path(state.current);
  transcript.replaceChildren(...nodes.map((node) => messageView(node, { actions: actionsOf(node) })));
  const last = nodes.at(-1)?.message;
  const open = (last?.tool_calls ?? []);
  const pending = (last?.approvals ?? []).some(({ approve }) => approve === undefined);
  if (pending && !state.running) transcript.append(approvalForm(nodes.at(-1)));
  if (last?.role === "assistant" && open.length && !state.running) transcript.append(resultForm(nodes.at(-1), open));
  if (state.failure) transcript.append(failure(state.failure));
  transcript.scrollTop = transcript.scrollHeight;
}

function actionsOf(node) {
  const { message } = node;
  const actions = [copyButton(() => plain(message.content))];
  const branches = siblings(state.current, node);
  if (branches.length > 1) {
    const at = branches.indexOf(node);
    const go = (to) => () => {
      show(state.current, branches[to]);
      save();
      state.redraw();
    };
    actions.push(button("‹", go(at - 1), { disabled: at === 0, "aria-label": "Previous branch" }),
      ` ${at + 1} of ${branches.length} `,
      button("›", go(at + 1), { disabled: at === branches.length - 1, "aria-label": "Next branch" }));
  }
  if (message.role === "user") {
    actions.push(button("Edit", (event) => edit(node, event.target.closest("article"))));
  }
  if (message.role === "assistant") actions.push(button("Regenerate", () => generate(node.parent)));
  return actions;
}

function edit(node, article) {
  article.append(editor(node.message, (text) => {
    if (text === null) return state.redraw();
    const { content } = node.message;
    const others = typeof content === "string" ? [] : content.filter((part) => part.type !== "text");
    send(node.parent, text, others);
  }));
}

/** Calls that wait for the user: each is made as it is shown, or declined. */
function approvalForm(node) {
  const { approvals } = node.message;
  const decide = (approval, approve) => {
    approval.approve = approve;
    announce(approve ? "The call is approved." : "The call is declined.");
    if (approvals.every((one) => one.approve !== undefined)) return generate(node.id, approvals);
    save();
    state.redraw();
  };
  return el("section", { class: "results approvals", "aria-label": "Approvals" },
    el("p", {}, "The model waits for your approval."),
    approvals.filter(({ approve }) => approve === undefined).map((approval) => el("div", {},
      el("p", {}, `It wants to call ${approval.name} of ${approval.server}:`),
      el("pre", { tabindex: "0" }, el("code", {}, approval.arguments)),
      el("p", {}, button("Approve", () => decide(approval, true), { "aria-label": `Approve ${approval.name}` }), " ",
        button("Decline", () => decide(approval, false), { "aria-label": `Decline ${approval.name}` })))));
}

/** Results for calls of tools that the page cannot run: the user writes them. */
function resultForm(node, calls) {
  const fields = calls.map((call) => el("textarea", { rows: "3", "aria-label": `Result of ${call.function.name}` }));
  return el("div", { class: "results" },
    el("p", {}, "The model waits for the results of its calls."),
    calls.map((call, at) => el("p", {}, el("label", {}, `${call.function.name} `, fields[at]))),
    button("Send the results", () => {
      let parent = node.id;
      calls.forEach((call, at) => {
        parent = add(state.current, parent, { role: "tool", content: fields[at].value, tool_call_id: call.id }).id;
      });
      generate(parent);
    }));
}

/** The field for the next message. */
function composer() {
  const attached = [];
  const shown = el("p", { class: "attached" });
  const field = el("textarea", { id: "message", rows: "3", "aria-label": "Message", placeholder: "Write a message" });
  const files = el("input", { type: "file", multiple: true, accept: "image/*,audio/*", class: "unseen", id: "files" });
  const drawAttached = () => shown.replaceChildren(...attached.map((part, at) =>
    button(`${part.type === "image_url" ? "Image" : "Sound"} ${at + 1} ×`, () => {
      attached.splice(at, 1);
      drawAttached();
    }, { "aria-label": `Remove attachment ${at + 1}` })));
  const attach = async (list) => {
    for (const file of list) attached.push(await partOf(file));
    drawAttached();
  };
  files.addEventListener("change", () => attach(files.files));
  field.addEventListener("paste", (event) => event.clipboardData.files.length && attach(event.clipboardData.files));
  const submit = () => {
    const text = field.value.trim();
    if (state.running || (!text && !attached.length)) return;
    field.value = "";
    send(state.current.leaf, text, attached.splice(0));
    drawAttached();
  };
  field.addEventListener("keydown", (event) => {
    const breaks = event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches;
    if (event.key !== "Enter" || breaks) return;
    event.preventDefault();
    submit();
  });
  const stop = button("Stop", () => state.running?.abort(), { class: "stop", hidden: !state.running });
  state.stopButton = stop;
  return el("form", { class: "composer", submit: (event) => (event.preventDefault(), submit()),
    dragover: (event) => event.preventDefault(),
    drop: (event) => (event.preventDefault(), attach(event.dataTransfer.files)) },
    shown, field, el("p", {}, el("button", { type: "submit" }, "Send"), stop,
      el("label", { class: "button", for: "files" }, "Attach"), files));
}

/** A file as a part of a message. */
async function partOf(file) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  if (file.type.startsWith("image/")) return { type: "image_url", image_url: { url } };
  const format = file.name.split(".").pop().toLowerCase();
  return { type: "input_audio", input_audio: { data: url.split(",")[1], format } };
}

function send(parent, text, attachments) {
  const content = attachments.length ? [...attachments, ...(text ? [{ type: "text", text }] : [])] : text;
  const node = add(state.current, parent, { role: "user", content });
  generate(node.id);
}

/** Generates the answer to a message, with what the user decided about calls. Pieces go where the conversation is shown; what it is in the end is kept. */
async function generate(parent, decided) {
  const conversation = state.current;
  const running = new AbortController();
  state.running = running;
  state.failure = null;
  let body;
  try {
    body = requestOf(conversation, path(conversation, parent));
    if (decided) body.approvals = decided.map(({ id, approve }) => ({ id, approve }));
  } catch (error) {
    return ended(conversation, new Error(`Options: ${error.message}`));
  }
  const message = { role: "assistant", content: "", reasoning: "", blocks: [], tool_calls: [], server_calls: [], approvals: [] };
  const node = add(conversation, parent, message);
  save();
  state.redraw();
  const article = state.transcript.lastElementChild;
  article.setAttribute("aria-busy", "true");
  state.stopButton.hidden = false;
  const place = article.querySelector(".body");
  place.replaceChildren();
  const writing = new Writing(place);
  const since = performance.now();
  const stats = { prompt_tokens: 0, completion_tokens: 0, cached_tokens: 0 };
  message.stats = stats;
  let problem;
  try {
    for await (const event of events("/ui/chat", { method: "POST", body, signal: running.signal })) {
      take(event, message, writing, stats, since);
      statistics(article, stats);
      follow();
      if (event.type === "error") throw new Error(event.message);
    }
  } catch (error) {
    if (error.name !== "AbortError") problem = error;
    else stats.finish_reason = "stopped";
  }
  if (!message.content && !message.tool_calls.length && !message.server_calls.length && !message.approvals.length
    && !message.reasoning) {
    delete conversation.nodes[node.id];
    conversation.leaf = parent;
  } else if (stats.finish_reason === "stopped" && writing.tailPlace.innerHTML) {
    message.blocks.push(writing.tailPlace.innerHTML);
  }
  ended(conversation, problem);
}

function ended(conversation, problem) {
  state.running = null;
  state.failure = problem ?? null;
  state.stopButton.hidden = true;
  save(conversation);
  state.redraw();
  announce(problem ? problem.message : "The answer is complete.");
}

/** Follows the end of the transcript only where it is in view. */
function follow() {
  const { transcript } = state;
  const left = transcript.scrollHeight - transcript.scrollTop - transcript.clientHeight;
  if (left < 120) transcript.scrollTop = transcript.scrollHeight;
}

/** One event of an answer. */
function take(event, message, writing, stats, since) {
  const now = performance.now();
  switch (event.type) {
    case "model":
      message.model = event.model;
      break;
    case "text":
      stats.first_ms ??= now - since;
      message.content += event.text;
      break;
    case "reasoning":
      stats.first_ms ??= now - since;
      message.reasoning += event.text;
      writing.reason(event.text);
      break;
    case "block":
      message.blocks.push(event.html);
      writing.block(event.html);
      break;
    case "tail":
      writing.tail(event.html);
      break;
    case "call": {
      // Calls that the server makes need no result from here.
      const calls = event.server ? message.server_calls : message.tool_calls;
      calls.push({ id: event.id, type: "function", server: event.server, function: { name: event.name, arguments: "" } });
      writing.call(calls.at(-1));
      break;
    }
    case "arguments": {
      const call = [...message.tool_calls, ...message.server_calls].find(({ id }) => id === event.id);
      if (call) call.function.arguments += event.text;
      writing.argument(event.id, event.text);
      break;
    }
    case "result": {
      const call = message.server_calls.find(({ id }) => id === event.id);
      if (call) Object.assign(call, { result: event.text, failed: event.failed });
      writing.result(event.id, event.text, event.failed);
      break;
    }
    case "approval":
      message.approvals.push({ id: event.id, server: event.server, name: event.name, arguments: event.arguments });
      break;
    case "note":
      writing.note(event.text);
      break;
    case "usage":
      Object.assign(stats, event.usage);
      if (event.finish_reason) stats.finish_reason = event.finish_reason;
      break;
  }
  const seconds = (now - since - (stats.first_ms ?? 0)) / 1000;
  if (stats.completion_tokens > 1 && seconds > 0) stats.rate = (stats.completion_tokens - 1) / seconds;
}

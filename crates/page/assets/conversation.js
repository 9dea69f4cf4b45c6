// A conversation as a tree of messages: an edited or regenerated message is another branch. No document is needed here.

/** A conversation without messages. */
export function empty() {
  return { id: crypto.randomUUID(), title: "", changed: Date.now(), options: {}, nodes: {}, leaf: null };
}

/** Adds a message below another one (null: at the beginning), and makes it the shown one. Returns its node. */
export function add(conversation, parent, message) {
  const node = { id: crypto.randomUUID(), parent, message, at: Date.now() };
  conversation.nodes[node.id] = node;
  conversation.leaf = node.id;
  conversation.changed = node.at;
  if (!conversation.title && message.role === "user") conversation.title = plain(message.content).slice(0, 60);
  return node;
}

/** The nodes from the first to the shown one. */
export function path(conversation, leaf = conversation.leaf) {
  const nodes = [];
  for (let node = conversation.nodes[leaf]; node; node = conversation.nodes[node.parent]) nodes.unshift(node);
  return nodes;
}

/** The nodes with the same parent, in the order they were made. */
export function siblings(conversation, node) {
  return Object.values(conversation.nodes).filter((other) => other.parent === node.parent).sort((a, b) => a.at - b.at);
}

/** Shows a branch: the latest message below a node. */
export function show(conversation, node) {
  let leaf = node;
  for (;;) {
    const below = Object.values(conversation.nodes).filter((other) => other.parent === leaf.id);
    if (!below.length) break;
    leaf = below.reduce((last, other) => (other.at >= last.at ? other : last));
  }
  conversation.leaf = leaf.id;
}

/** The text of a content, without what is no text. */
export function plain(content) {
  if (typeof content === "string") return content;
  return (content ?? []).filter((part) => part.type === "text").map((part) => part.text).join("\n");
}

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

/** The body of a request for the next answer. Only what was set is sent: the server's defaults hold for the rest. */
export function requestOf(conversation, nodes) {
  const { options } = conversation;
  const body = { messages: nodes.map(({ message }) => sent(message)) };
  if (options.system) body.messages.unshift({ role: "system", content: options.system });
  if (options.model) body.model = options.model;
  for (const name of NUMBERS) {
    if (options[name] !== undefined && options[name] !== "") body[name] = Number(options[name]);
  }
  if (options.reasoning) body.reasoning_effort = options.reasoning;
  if (options.schema) {
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(options.schema) } };
  }
  if (options.tools) body.tools = JSON.parse(options.tools);
  else if (options.server_tools) body.tools = "auto";
  return body;
}

/** A message without what only the page knows. */
function sent({ role, content, tool_calls, tool_call_id }) {
  const message = { role, content: content ?? "" };
  if (tool_calls?.length) message.tool_calls = tool_calls;
  if (tool_call_id) message.tool_call_id = tool_call_id;
  return message;
}

/** The shown branch as Markdown. */
export function markdown(conversation) {
  const parts = path(conversation).map(({ message }) => `## ${message.role}\n\n${plain(message.content)}\n`);
  return `# ${conversation.title}\n\n${parts.join("\n")}`;
}

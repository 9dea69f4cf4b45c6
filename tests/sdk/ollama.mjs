// Ollama's JavaScript library, against a server with `tests/clients/scripted_model.py`.
//
// usage: node ollama.mjs URL FILE WORD, where URL is the server's root, such as http://127.0.0.1:8000

import assert from "node:assert/strict";
import { Ollama } from "ollama";

const [root, file, word] = process.argv.slice(2);
const ollama = new Ollama({ host: root });
const { model } = (await ollama.list()).models[0];
const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const tools = [{ type: "function", function: { name: "read_file", description: "Reads a file.", parameters } }];
const question = { role: "user", content: "Which word is in the file?" };

async function chat() {
  const first = await ollama.chat({ model, messages: [question], tools });
  const [call] = first.message.tool_calls;
  assert.deepEqual([call.function.name, call.function.arguments], ["read_file", { path: file }]);
  const result = { role: "tool", tool_name: "read_file", content: `The word is ${word}.` };
  let text = "";
  let last;
  for await (const line of await ollama.chat({ model, messages: [question, first.message, result], tools, stream: true })) {
    text += line.message.content;
    last = line;
  }
  assert.ok(text.includes(word) && last.done && last.done_reason === "stop" && last.eval_count > 0);
}

async function generate() {
  const answer = await ollama.generate({ model, prompt: "Hello!" });
  assert.equal(answer.response, "A short answer.");
  const shown = await ollama.show({ model });
  assert.ok(shown.capabilities.includes("tools"));
  assert.equal((await ollama.ps()).models[0].model, model);
  assert.equal((await ollama.pull({ model })).status, "success");
}

async function vectors() {
  const { embeddings } = await ollama.embed({ model, input: ["a", "b"] });
  assert.equal(embeddings.length, 2);
}

async function errors() {
  await assert.rejects(ollama.chat({ model: "missing", messages: [question] }), /not found/);
  await assert.rejects(ollama.embed({ model: "missing", input: "a" }), /not found/);
}

const checks = [chat, generate, vectors, errors];
for (const check of checks) {
  await check();
  console.log("ok", check.name);
}
console.log(`${checks.length} checks with Ollama's JavaScript library`);

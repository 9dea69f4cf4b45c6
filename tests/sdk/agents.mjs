// Tool calls and streams through the JavaScript SDKs of OpenAI and Anthropic, against a server with
// `tests/clients/scripted_model.py`.
//
// usage: node agents.mjs URL FILE WORD, where URL is the server's root, such as http://127.0.0.1:8000

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [root, file, word] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${root}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: root, apiKey: "none", maxRetries: 0 });
const schema = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const tool = { name: "read_file", description: "Reads a file.", parameters: schema };
const question = "Which word is in the file?";
const result = `The word is ${word}.`;
const model = (await openai.models.list()).data[0].id;

async function chat() {
  const tools = [{ type: "function", function: tool }];
  const messages = [{ role: "user", content: question }];
  const first = await openai.chat.completions.create({ model, messages, tools });
  const { message, finish_reason: reason } = first.choices[0];
  assert.equal(reason, "tool_calls");
  assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { path: file });
  messages.push(message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: result });
  const second = await openai.chat.completions.create({ model, messages, tools });
  assert.ok(second.choices[0].message.content.includes(word));
  assert.ok(second.usage.prompt_tokens_details.cached_tokens > 0);
}

async function chatStream() {
  const tools = [{ type: "function", function: tool }];
  const stream = openai.chat.completions.stream({ model, messages: [{ role: "user", content: question }], tools });
  const call = (await stream.finalChatCompletion()).choices[0].message.tool_calls[0];
  assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["read_file", { path: file }]);
}

async function runTools() {
  const runnable = { ...tool, parse: JSON.parse, function: ({ path }) => (path === file ? result : "no such file") };
  const runner = openai.chat.completions.runTools({
    model, messages: [{ role: "user", content: question }], tools: [{ type: "function", function: runnable }],
  });
  assert.ok((await runner.finalContent()).includes(word));
}

async function parsed() {
  const format = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"], additionalProperties: false };
  const answer = await openai.chat.completions.parse({
    model, messages: [{ role: "user", content: "Is it?" }], max_tokens: 60,
    response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema: format } },
  });
  assert.equal(typeof answer.choices[0].message.parsed.ok, "boolean");
}

async function responses() {
  const tools = [{ type: "function", strict: true, ...tool }];
  const first = await openai.responses.create({ model: "any-name", input: question, tools });
  const call = first.output.find((item) => item.type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { path: file });
  const output = { type: "function_call_output", call_id: call.call_id, output: result };
  const request = { model: "any-name", input: [output], tools, previous_response_id: first.id };
  const stream = openai.responses.stream(request);
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  const last = await stream.finalResponse();
  assert.ok(last.output_text.includes(word));
  assert.deepEqual([kinds[0], kinds.at(-1)], ["response.created", "response.completed"]);
  assert.equal((await openai.responses.retrieve(last.id)).output_text, last.output_text);
  await openai.responses.delete(last.id);
}

async function background() {
  const events = [];
  const stream = await openai.responses.create({ model: "any-name", input: question, background: true, stream: true });
  for await (const event of stream) events.push(event);
  const again = await openai.responses.retrieve(events[0].response.id, { stream: true, starting_after: 1 });
  const rest = [];
  for await (const event of again) rest.push(event);
  assert.deepEqual(rest, events.slice(2));
}

async function messages() {
  const tools = [{ name: "read_file", description: "Reads a file.", input_schema: schema }];
  const turns = [{ role: "user", content: question }];
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const request = { model: "claude-of-the-client", max_tokens: 2000, tools, thinking };
  const first = await anthropic.messages.create({ ...request, messages: turns });
  assert.deepEqual(first.content.map((block) => block.type), ["thinking", "tool_use"]);
  assert.deepEqual([first.stop_reason, first.content[1].input], ["tool_use", { path: file }]);
  const answer = { type: "tool_result", tool_use_id: first.content[1].id, content: result };
  turns.push({ role: "assistant", content: first.content }, { role: "user", content: [answer] });
  const counted = await anthropic.messages.countTokens({ model: "m", messages: turns, tools, thinking });
  const second = await anthropic.messages.stream({ ...request, messages: turns }).finalMessage();
  assert.ok(second.content[0].text.includes(word));
  const { input_tokens: read, cache_read_input_tokens: cached } = second.usage;
  assert.ok(cached > 0);
  assert.equal(read + cached, counted.input_tokens);
}

async function errors() {
  const turns = [{ role: "user", content: "hi" }];
  await assert.rejects(
    anthropic.messages.create({ model: "m", max_tokens: 1e9, messages: turns }, { timeout: 60_000 }),
    (error) => error instanceof Anthropic.BadRequestError && error.message.includes("exceed context limit"),
  );
  await assert.rejects(
    openai.responses.create({ model: "m", input: "hi", max_output_tokens: 1e9 }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded",
  );
}

/** The SDK decodes base64, which it requests by default. */
async function vectors() {
  const { data } = await openai.embeddings.create({ model, input: ["a", "b"] });
  assert.equal(data.length, 2);
  const length = data[0].embedding.reduce((sum, number) => sum + number * number, 0);
  assert.ok(Math.abs(length - 1) < 1e-4, `${length}`);
}

const checks = [chat, chatStream, runTools, parsed, responses, background, vectors, messages, errors];
for (const check of checks) {
  await check();
  console.log("ok", check.name);
}
console.log(`${checks.length} checks with the JavaScript SDKs of OpenAI and Anthropic`);

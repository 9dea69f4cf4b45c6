// What a user does on the page, in a real browser against a real server.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import AxeBuilder from "@axe-core/playwright";
import { chromium } from "playwright-core";

const { BINARY, CHROMIUM, MODEL, SCREENSHOTS } = process.env;
const KEYS = `[[key]]
name = "operator"
key = "sk-operator"
role = "admin"

[[key]]
name = "reader"
key = "sk-reader"
role = "infer"
`;

let browser;
const started = [];

/** A server with these flags; its address. */
async function serve(...flags) {
  const server = spawn(BINARY, ["serve", "--port", "0", "--log", "error", "--kv-cache-memory", "256MiB", ...flags]);
  started.push(server);
  let log = "";
  return new Promise((resolve, reject) => {
    server.on("exit", () => reject(new Error(log)));
    server.stderr.on("data", (data) => {
      log += data;
      const address = /http:\/\/[^ /\n]+/.exec(log);
      if (address) resolve(address[0]);
    });
  });
}

/** A page that may do nothing wrong: no error, no refused load, no other host. */
async function open(address, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A failed call is written to the console by the browser itself.
    if (message.type() === "error" && !message.text().includes("Failed to load resource")) wrong.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !/^(data|blob):/.test(request.url())) wrong.push(`request: ${request.url()}`);
  });
  await page.addInitScript(() => document.addEventListener("securitypolicyviolation",
    (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  page.wrong = wrong;
  return page;
}

async function picture(page, name) {
  if (!SCREENSHOTS) return;
  mkdirSync(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
}

/** No serious fault of accessibility. */
async function accessible(page) {
  const found = await new AxeBuilder({ page }).withTags(["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]).analyze();
  const serious = found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), []);
}

async function say(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
  await finished(page);
}

/** The answer is complete. The button is there as soon as one begins. */
const finished = (page) => page.getByRole("button", { name: "Stop", exact: true }).waitFor({ state: "hidden" });

/** Sets an option of the conversation. */
async function option(page, label, value) {
  const field = page.getByLabel(label);
  if (!(await field.isVisible())) await page.locator("details.options summary").click();
  await field.fill(value);
  await field.blur();
}

before(async () => {
  // Names below `test` are this machine's for the browser, as a foreign page's name is after DNS rebinding.
  const names = "--host-resolver-rules=MAP *.test 127.0.0.1";
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", names] });
});

after(async () => {
  await browser?.close();
  for (const server of started) server.kill();
});

test("a chat: an answer, a branch, options and an export", async () => {
  const address = await serve();
  const page = await open(address, { viewport: { width: 1200, height: 800 } });
  await page.goto(`${address}/ui`);
  await option(page, "Most tokens", "60");
  await say(page, "Where does the bus stop?");
  const answer = page.locator("article.assistant").last();
  assert.ok((await answer.locator(".block").first().innerText()).length > 0);
  await accessible(page);
  await picture(page, "chat");
  await answer.getByRole("button", { name: "Regenerate" }).click();
  await page.getByText("2 of 2").waitFor();
  await finished(page);
  await page.getByRole("button", { name: "Previous branch" }).click();
  await page.getByText("1 of 2").waitFor();
  await option(page, "Most tokens", "5");
  await say(page, "Tell me a story.");
  assert.match(await page.locator("article.assistant .stats").last().innerText(), / 5 tokens .*length/);
  await page.locator(".menu summary").first().click();
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export JSON" }).first().click()]);
  assert.equal(file.suggestedFilename(), "conversation.json");
  // It is there after a reload, and its HTML with it.
  await page.reload();
  await page.getByRole("button", { name: "Where does the bus stop?" }).click();
  await page.locator("article.assistant .block").first().waitFor();
  assert.deepEqual(page.wrong, []);
});

test("an answer that is stopped keeps what it has, and the next one works", async () => {
  const address = await serve();
  const page = await open(address);
  await page.goto(`${address}/ui`);
  await option(page, "Most tokens", "4000");
  await option(page, "JSON schema of the answer", '{"type": "array", "items": {"type": "integer"}, "minItems": 2000}');
  await page.getByLabel("Message", { exact: true }).fill("Count.");
  await page.getByLabel("Message", { exact: true }).press("Enter");
  await page.locator("article.assistant .tail *").first().waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.locator(".stats", { hasText: "stopped" }).waitFor();
  await option(page, "JSON schema of the answer", "");
  await option(page, "Most tokens", "4");
  await say(page, "And now?");
  assert.deepEqual(page.wrong, []);
});

test("a call of a tool waits for its result", async () => {
  const address = await serve();
  const page = await open(address);
  await page.goto(`${address}/ui`);
  const tool = { type: "function", function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } };
  await option(page, "Tools, a JSON list", JSON.stringify([tool]));
  await page.getByLabel("Message", { exact: true }).fill("What is the weather in Paris?");
  await page.getByLabel("Message", { exact: true }).press("Enter");
  await page.getByLabel("Result of get_weather").fill("Sunny, 21 degrees.");
  await page.getByRole("button", { name: "Send the results" }).click();
  await page.locator("article.tool").waitFor();
  await page.locator("article.assistant .stats", { hasText: "tokens" }).nth(1).waitFor();
  assert.deepEqual(page.wrong, []);
});

/** A configuration of one MCP server, whose tool `folder` needs an approval. */
function careful(folder) {
  const file = join(folder, "mcp.json");
  const script = process.env.MCP_SERVER;
  writeFileSync(file, JSON.stringify({ mcpServers: { s: { command: "python3", args: [script] } }, omnibus: { auto: ["s/folder"] } }));
  return file;
}

test("a call of a tool waits for an approval, and is made or declined", async () => {
  const folder = mkdtempSync(join(tmpdir(), "omnibus-page-"));
  const address = await serve("--mcp-config", careful(folder));
  const page = await open(address, { viewport: { width: 1200, height: 800 } });
  // The model has to call the tool; the page does not ask for that.
  await page.route("**/ui/chat", (route) => {
    const body = route.request().postDataJSON();
    if (!body.approvals) body.tool_choice = { type: "function", function: { name: "s__folder" } };
    route.continue({ postData: JSON.stringify(body) });
  });
  await page.goto(`${address}/ui`);
  await page.locator("details.options summary").click();
  await page.getByLabel("Tools of the server's MCP servers, which it runs").check();
  await option(page, "Most tokens", "60");
  await say(page, "Where am I?");
  await page.getByText("It wants to call folder of s:").waitFor();
  await accessible(page);
  await picture(page, "approval");
  await page.getByRole("button", { name: "Approve folder" }).click();
  await page.getByText("The server calls folder of s").waitFor();
  await finished(page);
  await page.getByText("You approved folder of s").waitFor();
  assert.match(await page.locator(".call details pre").first().textContent(), /omnibus-mcp-/);
  // A declined one is not made.
  await page.getByRole("button", { name: "New chat" }).click();
  await page.locator("details.options summary").click();
  await page.getByLabel("Tools of the server's MCP servers, which it runs").check();
  await option(page, "Most tokens", "60");
  await say(page, "And where now?");
  await page.getByRole("button", { name: "Decline folder" }).click();
  await finished(page);
  await page.getByText("You declined folder of s").waitFor();
  assert.equal(await page.locator(".call").count(), 0);
  assert.deepEqual(page.wrong, []);
  rmSync(folder, { recursive: true });
});

/** A report as `bench report` writes it, with a name that is no HTML. */
const REPORT = {
  version: "0.1.0", model: "m", machine: "x", rounds: 2, requests: 4,
  contenders: [{ name: "omnibus", setup: "--draft auto" }, { name: "no <b>cache</b>", setup: "--prefix-cache off" }],
  values: [
    { contender: "omnibus", load: "closed", metric: "ttft_p50", mean: 12.5, half: 1.25 },
    { contender: "no <b>cache</b>", load: "closed", metric: "ttft_p50", mean: 40, half: null },
    { contender: "omnibus", load: "closed", metric: "output_throughput", mean: 1234.5, half: 10 },
  ],
};

test("a report is opened from a file", async () => {
  const address = await serve();
  for (const viewport of [{ width: 1200, height: 800 }, { width: 320, height: 640 }]) {
    const page = await open(address, { viewport });
    await page.goto(`${address}/ui/#bench`);
    const file = (text) => page.getByLabel("report.json of omnibus bench report:")
      .setInputFiles({ name: "report.json", mimeType: "application/json", buffer: Buffer.from(text) });
    await file(JSON.stringify(REPORT));
    await page.getByRole("heading", { name: "closed" }).waitFor();
    await page.getByRole("cell", { name: "12.5 ± 1.25" }).waitFor();
    await page.getByRole("columnheader", { name: "no <b>cache</b>" }).waitFor();
    assert.equal(await page.locator(".tiles circle").count(), 3);
    await accessible(page);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide at ${viewport.width}`);
    if (viewport.width > 1000) await picture(page, "bench");
    for (const wrong of ["{", "[]", '{"contenders":[],"values":[{}]}', '{"contenders":[],"values":[{"contender":"a","load":"b","metric":"c","mean":"d"}]}']) {
      await file(wrong);
      await page.getByText("This file is no report").waitFor();
    }
    assert.deepEqual(page.wrong, []);
  }
});

test("the engine shows steps, who has what, and power", async () => {
  const address = await serve("--power-model", "25");
  const enough = new AbortController();
  after(() => enough.abort());
  const working = keepBusy(address, enough.signal);
  const page = await open(address, { viewport: { width: 1200, height: 1250 } });
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.goto(`${address}/ui/#engine`);
  // As long as requests run, their key is there.
  await page.getByRole("rowheader", { name: "without a key" }).first().waitFor();
  await page.getByRole("heading", { name: "Tokens of a step" }).waitFor();
  await page.getByText(/The last \d+ steps/).waitFor();
  await page.getByRole("heading", { name: "Fairness" }).waitFor();
  await page.getByText(/25\.0 W \(stated, not measured\)/).waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".spark")[1]?.getAttribute("points").split(" ").length > 6);
  await accessible(page);
  await picture(page, "engine");
  enough.abort();
  await working;
  // One stream, and no polling.
  assert.equal(asked.filter((path) => path === "/v1/status/stream").length, 1);
  assert.equal(asked.filter((path) => path === "/v1/status").length, 0);
  // Nobody looks any more: the stream is closed.
  const closed = page.waitForEvent("requestfailed", (request) => request.url().endsWith("/v1/status/stream"));
  await page.goto(`${address}/ui/#settings`);
  await closed;
  assert.deepEqual(page.wrong, []);
});

test("the engine's lines have no gap where a busy page reads two events at once", async () => {
  const address = await serve();
  const page = await open(address);
  // By this clock most events come at the time of the one before.
  await page.addInitScript(() => {
    const now = performance.now.bind(performance);
    performance.now = () => Math.floor(now() / 3000) * 3000;
  });
  await page.goto(`${address}/ui/#engine`);
  const drawn = () => document.querySelector("polyline")?.getAttribute("points").split(" ").length >= 3;
  await page.waitForFunction(drawn);
  assert.deepEqual(page.wrong, []);
});

test("a recorded request is opened from its file and sent again", async () => {
  const address = await serve();
  const page = await open(address);
  await page.goto(`${address}/ui/#requests`);
  const body = { messages: [{ role: "user", content: "Hello" }], max_tokens: 4, ignore_eos: true, stream: true };
  const record = { version: 1, path: "/v1/chat/completions", request_id: "r-1", model: null, body,
    answer: { status: 200, prompt_tokens: 9, completion_tokens: 4, total_s: 0.5 } };
  const file = (text) => page.getByLabel("Files of omnibus serve --record:")
    .setInputFiles({ name: "r-1.json", mimeType: "application/json", buffer: Buffer.from(text) });
  await file(JSON.stringify(record));
  await page.getByRole("button", { name: "Send r-1 again" }).click();
  await page.getByText(/recorded 0\.50 s\), 4 tokens \(recorded 4\)/).waitFor();
  await accessible(page);
  await file("[]");
  await page.getByText("This is no record").waitFor();
  assert.deepEqual(page.wrong, []);
});

/** Work for the engine until `signal` says that it is enough. */
async function keepBusy(address, signal) {
  // A test that fails stops the server before it says so.
  while (!signal.aborted) await work(address).catch(() => new Promise((wait) => setTimeout(wait, 100)));
}

/** Some work for the engine; a promise of its end. */
function work(address) {
  const body = { messages: [{ role: "user", content: "Tell me of the bus." }], max_tokens: 300, ignore_eos: true };
  const send = () => fetch(`${address}/v1/chat/completions`, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });
  return Promise.all(Array.from({ length: 12 }, send));
}

test("views show the server, in the dark and on a phone", async () => {
  const address = await serve();
  const working = work(address);
  for (const [scheme, viewport] of [["light", { width: 1200, height: 800 }], ["dark", { width: 320, height: 640 }]]) {
    const page = await open(address, { colorScheme: scheme, viewport });
    await page.goto(`${address}/ui/#engine`);
    await page.getByRole("heading", { name: "KV blocks" }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".spark")[1]?.getAttribute("points").split(" ").length > 4);
    for (const [view, heading] of [["engine", "Engine"], ["models", "Models"], ["requests", "Requests"], ["bench", "Bench"], ["settings", "Connect"], ["chat", null]]) {
      await page.goto(`${address}/ui/#${view}`);
      if (heading) await page.getByRole("heading", { name: heading, exact: true }).waitFor();
      if (["models", "requests", "settings"].includes(view)) await page.locator("table").first().waitFor();
      await accessible(page);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${view} is ${overflow} pixels too wide at ${viewport.width}`);
      if (scheme === "light" && !["chat", "bench", "engine"].includes(view)) await picture(page, view);
    }
    assert.deepEqual(page.wrong, []);
  }
  await working;
});

test("a running request can be cancelled from the page", async () => {
  const address = await serve();
  const page = await open(address);
  const schema = { type: "array", items: { type: "integer" }, minItems: 3000 };
  const body = { messages: [{ role: "user", content: "Count." }], max_tokens: 3900, stream: true, response_format: { type: "json_schema", json_schema: { name: "n", schema } } };
  const running = await fetch(`${address}/v1/chat/completions`, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });
  const rest = running.text().catch(() => "cut");
  await page.goto(`${address}/ui/#requests`);
  await page.getByRole("button", { name: "Cancel" }).first().click();
  await page.getByText("0 running and waiting").waitFor();
  await rest;
  assert.deepEqual(page.wrong, []);
});

test("keys: the page asks, and a key that may not is told so", async () => {
  const folder = mkdtempSync(join(tmpdir(), "omnibus-page-"));
  const file = join(folder, "keys.toml");
  writeFileSync(file, KEYS);
  const address = await serve("--api-key-file", file);
  const page = await open(address);
  await page.goto(`${address}/ui/#models`);
  await page.getByLabel("API key").fill("sk-reader");
  await page.getByRole("button", { name: "Use this key" }).click();
  await page.getByRole("cell", { name: /loaded/ }).first().waitFor();
  // The engine's totals are there, steps of all keys are not.
  await page.goto(`${address}/ui/#engine`);
  await page.getByRole("heading", { name: "KV blocks" }).waitFor();
  assert.equal(await page.getByRole("heading", { name: "Tokens of a step" }).count(), 0);
  await page.goto(`${address}/ui/#settings`);
  await page.locator(".error").first().waitFor();
  await page.goto(`${address}/ui/#chat`);
  await option(page, "Most tokens", "8");
  await say(page, "Hello!");
  assert.deepEqual(page.wrong, []);
  rmSync(folder, { recursive: true });
});

/** The folder of an adapter that changes nothing: its second matrix is zero. */
function adapter(folder) {
  const { hidden_size: hidden, num_attention_heads: heads, head_dim } = JSON.parse(readFileSync(join(MODEL, "config.json")));
  const module = "base_model.model.model.layers.0.self_attn.q_proj";
  const shapes = [[`${module}.lora_A.weight`, [2, hidden]], [`${module}.lora_B.weight`, [heads * (head_dim ?? hidden / heads), 2]]];
  let end = 0;
  const tensors = shapes.map(([name, shape]) => {
    const begin = end;
    end += 4 * shape[0] * shape[1];
    return [name, { dtype: "F32", shape, data_offsets: [begin, end] }];
  });
  const header = Buffer.from(JSON.stringify(Object.fromEntries(tensors)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  writeFileSync(join(folder, "adapter_model.safetensors"), Buffer.concat([length, header, Buffer.alloc(end)]));
  const config = { peft_type: "LORA", r: 2, lora_alpha: 4, target_modules: ["q_proj"] };
  writeFileSync(join(folder, "adapter_config.json"), JSON.stringify(config));
}

test("an adapter is loaded, used and unloaded", async () => {
  const folder = mkdtempSync(join(tmpdir(), "omnibus-page-"));
  adapter(folder);
  const address = await serve("--allow-runtime-lora-updating");
  const page = await open(address);
  await page.goto(`${address}/ui/#models`);
  await page.getByLabel("Directory on the server").fill(join(folder, "missing"));
  await page.getByLabel("Name", { exact: true }).fill("quiet");
  await page.getByRole("button", { name: "Load adapter" }).click();
  await page.locator(".error", { hasText: "missing" }).waitFor();
  await page.getByLabel("Directory on the server").fill(folder);
  await page.getByRole("button", { name: "Load adapter" }).click();
  const unload = page.getByRole("button", { name: "Unload quiet" });
  await unload.waitFor();
  await accessible(page);
  await picture(page, "adapters");
  const body = { model: "quiet", messages: [{ role: "user", content: "Hello!" }], max_tokens: 4 };
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${address}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) });
  assert.equal((await answer.json()).model, "quiet");
  await unload.click();
  await unload.waitFor({ state: "detached" });
  assert.deepEqual(page.wrong, []);
  rmSync(folder, { recursive: true });
});

test("the keyboard is enough", async () => {
  const address = await serve();
  const page = await open(address);
  await page.goto(`${address}/ui`);
  await page.getByLabel("Message", { exact: true }).waitFor();
  await page.keyboard.type("Hello!");
  await page.keyboard.press("Enter");
  await page.locator("article.assistant .stats", { hasText: "tokens" }).waitFor();
  await page.keyboard.press("Shift+Tab");
  const focused = await page.evaluate(() => document.activeElement.textContent);
  assert.ok(focused.length > 0, "focus went to a control");
  assert.deepEqual(page.wrong, []);
});

test("a page of an allowed origin gets an answer, one of a foreign origin or with a rebound name does not", async () => {
  const elsewhere = createServer((_, response) => response.setHeader("content-type", "text/html").end("<title>A page</title>"));
  await new Promise((listening) => elsewhere.listen(0, "127.0.0.1", listening));
  const { port } = elsewhere.address();
  const address = await serve("--allowed-origins", `http://allowed.test:${port}`);
  /** What a script gets that asks the server at `target` from a page of that host. */
  const asked = async (host, target) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`http://${host}:${port}/`);
    const result = await page.evaluate(async (url) => {
      const body = JSON.stringify({ messages: [{ role: "user", content: "Hello" }], max_tokens: 4 });
      const headers = { "content-type": "application/json" };
      try {
        return (await (await fetch(url, { method: "POST", headers, body })).json()).object;
      } catch (error) {
        return error.name;
      }
    }, `${target}/v1/chat/completions`);
    await context.close();
    return result;
  };
  const rebound = address.replace("127.0.0.1", "rebound.test");
  assert.equal(await asked("allowed.test", address), "chat.completion");
  assert.equal(await asked("localhost", address), "chat.completion");
  assert.equal(await asked("foreign.test", address), "TypeError");
  assert.equal(await asked("allowed.test", rebound), "TypeError");
  const page = await browser.newPage();
  assert.equal((await page.goto(`${rebound}/v1/models`)).status(), 403);
  elsewhere.close();
});

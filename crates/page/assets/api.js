// Calls of the server's API. The key stays in this tab.

const KEY = "omnibus-key";
// The path that the server was given below another one, as /ui is below it.
const ROOT = location.pathname.replace(/\/ui\/?$/, "");

function headers(more) {
  const key = sessionStorage.getItem(KEY);
  return key ? { authorization: `Bearer ${key}`, ...more } : { ...more };
}

let asking;

/** Asks for a key, once however many calls need it. */
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("key-dialog");
    const field = document.getElementById("key");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, field.value.trim());
      field.value = "";
      asking = undefined;
      resolve();
    }, { once: true });
    dialog.showModal();
    field.focus();
  });
  return asking;
}

/** An answer that is not a success. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function refusal(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    return new Refused(response.status, body.error?.message ?? body.error ?? text);
  } catch {
    return new Refused(response.status, text || `status ${response.status}`);
  }
}

async function request(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const type = sent === undefined ? {} : { "content-type": "application/json" };
    const response = await fetch(ROOT + path, { method, body: sent, headers: headers(type), signal });
    if (response.status === 401) {
      await askForKey();
      continue;
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

/** The JSON that a call gives. */
export async function call(path, options) {
  const response = await request(path, options);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** The lines of an answer as they come. */
async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
  if (rest) yield rest;
}

/** The JSON of each server-sent event of an answer. */
export async function* events(path, options) {
  for await (const line of lines(await request(path, options))) {
    if (line.startsWith("data:") && !line.includes("[DONE]")) yield JSON.parse(line.slice(5));
  }
}

/** The JSON of each line of an answer. */
export async function* jsonLines(path, options) {
  for await (const line of lines(await request(path, options))) {
    if (line.trim()) yield JSON.parse(line);
  }
}

/** The address of the API for other clients. */
export const base = () => location.origin + ROOT;

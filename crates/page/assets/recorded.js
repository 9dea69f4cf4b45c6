// Requests that `omnibus serve --record DIR` wrote, opened from their files, to be sent again. Nothing but that is sent.

import { call } from "./api.js";
import { button, el, failure, number, table } from "./dom.js";

/** Records that are shown: the newest. */
const SHOWN = 50;

/** The record of a file, checked. */
async function read(file) {
  const record = JSON.parse(await file.text());
  if (typeof record?.path !== "string" || !record.path.startsWith("/") || typeof record.answer !== "object" || !record.answer) {
    throw new Error(`${file.name} has no path and answer`);
  }
  return record;
}

/** How two answers compare, as far as an answer of any API says. */
function compared(record, sent, seconds) {
  const usage = sent?.usage ?? {};
  const tokens = usage.completion_tokens ?? usage.output_tokens ?? sent?.eval_count;
  const { total_s: before, completion_tokens: recorded } = record.answer;
  const length = tokens === undefined ? "" : `, ${number(tokens)} tokens${recorded === null || recorded === undefined ? "" : ` (recorded ${number(recorded)})`}`;
  return `${seconds.toFixed(2)} s (recorded ${before?.toFixed?.(2) ?? "unknown"} s)${length}`;
}

async function replay(record, place) {
  place.replaceChildren(el("p", { role: "status" }, "Sent …"));
  const since = performance.now();
  try {
    // The whole answer at once: it is compared, not read along.
    const sent = await call(record.path, { method: "POST", body: { ...record.body, stream: false } });
    place.replaceChildren(el("h4", {}, `Answer of ${record.path}`), el("p", { role: "status" }, compared(record, sent, (performance.now() - since) / 1000)),
      el("pre", { tabindex: "0" }, el("code", {}, JSON.stringify(sent, null, 2))));
  } catch (error) {
    place.replaceChildren(failure(error));
  }
}

/** A form for the files of records. */
export function recordedRequests() {
  const list = el("div");
  const answer = el("div", { "aria-live": "polite" });
  const draw = (records) => table(`${records.length} recorded requests${records.length > SHOWN ? `, the newest ${SHOWN} of them` : ""}`,
    ["Request", "Route", "Model", "Status", "Prompt", "Generated", ""],
    records.toSorted((one, other) => (other.time_ms ?? 0) - (one.time_ms ?? 0)).slice(0, SHOWN).map((record) => [record.request_id ?? "", record.path, record.model ?? "", String(record.answer.status ?? ""),
      number(record.answer.prompt_tokens), number(record.answer.completion_tokens),
      record.body ? button("Send again", () => replay(record, answer), { "aria-label": `Send ${record.request_id ?? record.path} again` }) : "no JSON"]));
  const file = el("input", { type: "file", accept: ".json,application/json", multiple: true, id: "records", change: async () => {
    answer.replaceChildren();
    try {
      list.replaceChildren(draw(await Promise.all([...file.files].map(read))));
    } catch (error) {
      list.replaceChildren(failure(new Error(`This is no record: ${error.message}`)));
    }
  } });
  return el("div", {}, el("h3", {}, "Recorded requests"),
    el("p", {}, el("label", { for: "records" }, "Files of omnibus serve --record: "), file), list, answer);
}

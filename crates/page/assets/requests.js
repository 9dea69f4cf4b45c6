// What runs and waits, with a way to end it; sessions; what keys have used.

import { call } from "./api.js";
import { button, el, failure, fill, number, table, whileShown } from "./dom.js";
import { recordedRequests } from "./recorded.js";

export function requestsView() {
  const places = { running: el("div"), sessions: el("div"), usage: el("div") };
  const view = el("section", { "aria-label": "Requests" }, el("h2", {}, "Requests"), Object.values(places), recordedRequests());
  const act = async (path) => {
    try {
      await call(path, { method: "DELETE" });
    } catch (error) {
      view.prepend(failure(error));
    }
    refresh();
  };
  const refresh = () => Promise.all([
    fill(places.running, "/v1/requests", ({ data }) => table(`${data.length} running and waiting`,
      ["Request", "Model", "State", "Key", "Prompt", "Generated", "Age", "Deadline", ""],
      data.map((one) => [one.id, one.model, one.state, one.key ?? "", number(one.prompt_tokens),
        number(one.generated_tokens), `${one.age_seconds.toFixed(1)} s`,
        one.deadline_seconds === undefined ? "" : `in ${one.deadline_seconds.toFixed(1)} s`,
        button("Cancel", () => act(`/v1/requests/${encodeURIComponent(one.id)}`))]))),
    fill(places.sessions, "/v1/sessions", ({ data }) => table(`${data.length} sessions`, ["Session", "Tokens", "Blocks", "Idle", ""],
      data.map((one) => [one.id, number(one.tokens), number(one.blocks), `${Math.round(one.idle_seconds)} s`,
        button("Drop", () => act(`/v1/sessions/${encodeURIComponent(one.id)}`))]))),
    fill(places.usage, "/v1/usage", ({ data }) => table("Use by key",
      ["Key", "Requests", "Prompt tokens", "Cached", "Generated", "Streams"],
      data.map((one) => [one.key ?? "without a key", number(one.requests), number(one.prompt_tokens), number(one.cached_tokens),
        number(one.completion_tokens), number(one.streams)]))),
  ]);
  whileShown(view, 2000, refresh);
  return view;
}

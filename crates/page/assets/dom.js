// Elements, numbers and what views share.

import { call } from "./api.js";

/** An element with attributes (functions are listeners), and children. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

export const button = (label, click, attributes = {}) => el("button", { type: "button", click, ...attributes }, label);

/** Tells a screen reader, once. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

export const number = (value) => (value ?? 0).toLocaleString("en");

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [size, unit] = [value ?? 0, 0];
  while (size >= 1024 && unit < units.length - 1) [size, unit] = [size / 1024, unit + 1];
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

/** Seconds since a moment, in words. */
export function ago(unixSeconds) {
  if (!unixSeconds) return "never";
  const seconds = Math.max(0, Date.now() / 1000 - unixSeconds);
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

/** A table with named columns. */
export function table(caption, columns, rows) {
  const cells = (row) => row.map((cell, at) => el(at ? "td" : "th", at ? {} : { scope: "row" }, cell));
  return el("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, cells(row))))));
}

/** Runs `refresh` now and every `interval` milliseconds while the view is shown and the page is seen. */
export function whileShown(view, interval, refresh) {
  let timer;
  const tick = async () => {
    if (!view.isConnected) return;
    if (!document.hidden) await refresh();
    timer = setTimeout(tick, interval);
  };
  queueMicrotask(tick);
  return () => clearTimeout(timer);
}

/** What a failed call says, in a view. */
export function failure(error) {
  return el("p", { class: "error", role: "alert" }, error.message);
}

/** Shows what a call gives, or why it failed. */
export async function fill(place, path, draw) {
  try {
    place.replaceChildren(draw(await call(path)));
  } catch (error) {
    place.replaceChildren(failure(error));
  }
}

/** Offers a text as a file. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text]));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A button that copies a text. */
export function copyButton(text, label = "Copy") {
  const copy = button(label, async () => {
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = label), 1500);
  });
  return copy;
}

// Plots as SVG, without styles of their own.

import { el, number } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A line of the last `points` values, with its largest as text. */
export function spark(label, values, points) {
  const most = Math.max(1, ...values);
  const line = values.map((value, at) => `${(at * 240) / (points - 1)},${39 - (value / most) * 36}`).join(" ");
  return el("figure", {},
    svg("svg", { viewBox: "0 0 240 40", role: "img", "aria-label": `${label}, at most ${number(Math.round(most))}` },
      svg("polyline", { points: line, class: "spark" })),
    el("figcaption", {}, `at most ${number(Math.round(most))} in two minutes`));
}

/** Shares of a whole, side by side. */
function shares(parts, whole, height) {
  let at = 0;
  const rects = parts.map(([, value], index) => {
    const width = whole ? Math.min(240 - at, (240 * value) / whole) : 0;
    const rect = svg("rect", { x: at, y: 0, width, height, class: `part-${index}` });
    at += width;
    return rect;
  });
  return [svg("rect", { x: 0, y: 0, width: 240, height, class: "whole" }), ...rects];
}

/** Shares of a whole, and the same as text. */
export function bar(parts, whole) {
  const text = parts.map(([name, value]) => `${name} ${whole ? Math.round((100 * value) / whole) : 0} %`).join(", ");
  return el("figure", {},
    svg("svg", { viewBox: "0 0 240 12", role: "img", "aria-label": text, class: "bar" }, ...shares(parts, whole, 12)),
    el("figcaption", {}, text));
}

/** A bar for each row, the last one at the bottom. Rows are lists of parts. */
export function bars(label, rows, whole, caption) {
  const height = 4;
  const groups = rows.map((parts, at) =>
    svg("g", { transform: `translate(0 ${at * (height + 1)})` }, ...shares(parts, whole, height)));
  return el("figure", {},
    svg("svg", { viewBox: `0 0 240 ${Math.max(1, rows.length) * (height + 1)}`, role: "img", "aria-label": label }, ...groups),
    el("figcaption", {}, caption));
}

/** Means with their intervals, one below the other. Rows: a name, a mean, half of its interval or null. */
export function intervals(label, rows) {
  const most = Math.max(...rows.map(([, mean, half]) => mean + (half ?? 0)), Number.MIN_VALUE);
  const x = (value) => 2 + (Math.max(0, value) / most) * 234;
  const marks = rows.flatMap(([, mean, half], at) => {
    const y = 8 + at * 12;
    const line = svg("line", { x1: x(mean - (half ?? 0)), x2: x(mean + (half ?? 0)), y1: y, y2: y, class: "spark" });
    return [svg("line", { x1: 2, x2: 236, y1: y, y2: y, class: "rule" }), line, svg("circle", { cx: x(mean), cy: y, r: 3, class: "part-0" })];
  });
  const names = rows.map(([name]) => name).join(", ");
  return el("figure", {},
    svg("svg", { viewBox: `0 0 240 ${rows.length * 12 + 4}`, role: "img", "aria-label": `${label}: ${names}` }, ...marks),
    el("figcaption", {}, `from 0 to ${short(most)}; from the top: ${names}`));
}

/** A number with three digits that count. */
export const short = (value) => (Math.abs(value) >= 1000 ? number(Math.round(value)) : String(Number(value.toPrecision(3))));

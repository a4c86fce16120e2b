"use strict";
// Draws steps per second over time, as SVG: of the run, and of its slowest rank.

const PLOT_HEIGHT = 150;
const PLOT_EDGES = {left: 44, right: 10, top: 8, bottom: 22};
const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// The next of 1, 2, 5, 10, ... times a power of ten.
function niceTop(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return power * [1, 2, 5, 10].find((step) => step * power >= most * 0.999);
}

// `rates`: of /steps. `restarts`: their times. Returns the parts of the path of one line: it is broken at restarts.
function linePath(points, restarts, xOf, yOf) {
  let path = "";
  points.forEach(([at, value], i) => {
    const isBroken = i === 0 || restarts.some((restart) => restart > points[i - 1][0] && restart <= at);
    path += `${isBroken ? "M" : "L"}${xOf(at).toFixed(1)} ${yOf(value).toFixed(1)}`;
  });
  return path;
}

// `until`: the right end of the time axis: now, or the end of the run.
function drawPlot(box, steps, restarts, until, width) {
  const half = steps.interval_seconds * 500;
  const middle = (rate) => Math.min(Date.parse(rate.at) + half, until);
  const begin = Date.parse(steps.rates[0].at);
  const end = Math.max(until, begin + 2 * half);
  const top = niceTop(Math.max(...steps.rates.map((rate) => rate.steps_per_second)));
  const right = width - PLOT_EDGES.right;
  const low = PLOT_HEIGHT - PLOT_EDGES.bottom;
  const xOf = (at) => PLOT_EDGES.left + (right - PLOT_EDGES.left) * (at - begin) / (end - begin);
  const yOf = (value) => low - (low - PLOT_EDGES.top) * Math.min(value, top) / top;
  const last = steps.rates.at(-1);
  const image = svg("svg", {viewBox: `0 0 ${width} ${PLOT_HEIGHT}`, width, height: PLOT_HEIGHT, role: "img",
    "aria-label": `Steps per second over ${span((end - begin) / 1000)}: at last ${rateText(last.steps_per_second)}, ` +
      `its slowest rank ${rateText(last.slowest)}`});
  for (const part of [0, 0.5, 1]) {
    const y = yOf(top * part);
    image.append(svg("line", {x1: PLOT_EDGES.left, x2: right, y1: y, y2: y, class: "grid"}),
      svg("text", {x: PLOT_EDGES.left - 6, y: y + 4, "text-anchor": "end"}, rateText(top * part)));
  }
  image.append(svg("text", {x: PLOT_EDGES.left, y: PLOT_HEIGHT - 4}, ago((Date.now() + clockAhead - begin) / 1000)),
    svg("text", {x: right, y: PLOT_HEIGHT - 4, "text-anchor": "end"}, ago((Date.now() + clockAhead - end) / 1000).replace("just now", "now")));
  const seen = restarts.filter((at) => at >= begin && at <= end);
  for (const at of seen) {
    const line = svg("line", {x1: xOf(at), x2: xOf(at), y1: PLOT_EDGES.top, y2: low, class: "restart"});
    line.append(svg("title", {}, `restart, ${fullUtc(at)}`));
    image.append(line);
  }
  const lines = [["slowest", (rate) => rate.slowest], ["mean", (rate) => rate.steps_per_second]];
  for (const [name, value] of lines) {
    const points = steps.rates.map((rate) => [middle(rate), value(rate)]);
    image.append(svg("path", {d: linePath(points, seen, xOf, yOf), class: name}));
    if (points.length === 1) image.append(svg("circle", {cx: xOf(points[0][0]), cy: yOf(points[0][1]), r: 3, class: name}));
  }
  box.replaceChildren(image);
}

/* Curves and columns over rounds, drawn in the pixels there are. Each has a title and says in words what it shows. */

import { draw } from "./words.js";

const LETTER = 7.2; // pixels of a letter in an axis, at most
const TOP = 10;
const BOTTOM = 24;
const SLIMMEST = 3; // pixels of a column with its gap
let drawn = 0;

/** A drawing of series over rounds: lines, bands, areas and columns, with the chosen round marked; or a note why there
    is nothing to draw. */
export function chart(figure, { title, words, rounds, low = 0, high, label, marks, chosen, end, note }) {
  const wide = Math.max(figure.clientWidth, 120);
  const tall = figure.clientHeight;
  const first = rounds[0];
  const last = Math.max(rounds.at(-1), first + 1);
  const marked = ticks(low, high, tall > 200 ? 5 : 4);
  const left = 10 + LETTER * Math.max(...marked.map((value) => label(value).length));
  const right = end ? 14 + LETTER * end.words.length : 10;
  const slot = (wide - left - right) / (last - first + 1);
  const place = {
    slot,
    x: (round) => left + (round - first + 0.5) * slot,
    y: (value) => tall - BOTTOM - ((value - low) / (high - low || 1)) * (tall - TOP - BOTTOM),
  };
  const name = `chart-${++drawn}`;
  const svg = draw(
    "svg",
    { width: wide, height: tall, role: "img", "aria-labelledby": `${name}-title ${name}-words` },
    draw("title", { id: `${name}-title` }, title),
    draw("desc", { id: `${name}-words` }, words),
  );
  for (const value of marked) {
    svg.append(draw("line", { class: "grid", x1: left, x2: wide - right, y1: place.y(value), y2: place.y(value) }));
    svg.append(draw("text", { class: "right", x: left - 6, y: place.y(value) + 4 }, label(value)));
  }
  for (const round of ticks(first, last, Math.min(8, Math.floor(wide / 60)), 1)) {
    svg.append(draw("text", { class: "middle", x: place.x(round), y: tall - 6 }, round));
  }
  if (rounds[chosen] !== undefined) {
    const x = place.x(rounds[chosen]);
    svg.append(draw("line", { class: "rule", x1: x, x2: x, y1: TOP, y2: tall - BOTTOM }));
  }
  for (const mark of marks) svg.append(...mark(place, rounds, chosen));
  if (end) svg.append(draw("text", { class: "end", x: place.x(end.round) + 9, y: place.y(end.value) + 4 }, end.words));
  if (note) svg.append(draw("text", { class: "middle note", x: (left + wide - right) / 2, y: tall / 2 }, note));
  figure.replaceChildren(svg);
  figure.nearest = (x) => nearest(rounds, first + (x - left) / slot - 0.5);
}

/** A line through what is known; what is not measured is left out. */
export function line(values, kind) {
  return ({ x, y }, rounds, chosen) => {
    const known = values.map((value, at) => [value, at]).filter(([value]) => value !== null);
    const points = known.map(([value, at]) => `${x(rounds[at]).toFixed(1)},${y(value).toFixed(1)}`);
    const made = [draw("polyline", { class: `line ${kind}`, points: points.join(" ") })];
    for (const [value, at] of known) {
      if (known.length > 1 && at !== chosen) continue;
      made.push(draw("circle", { class: kind, cx: x(rounds[at]), cy: y(value), r: 4 }));
    }
    return made;
  };
}

/** What lies between two series. */
export function area(lower, upper, kind) {
  return ({ x, y }, rounds) => {
    const known = rounds.map((_, at) => at).filter((at) => lower[at] !== null && upper[at] !== null);
    const edge = (values) => (at) => `${x(rounds[at]).toFixed(1)},${y(values[at]).toFixed(1)}`;
    const points = [...known.map(edge(upper)), ...known.reverse().map(edge(lower))];
    return [draw("polygon", { class: `area ${kind}`, points: points.join(" ") })];
  };
}

/** One column a round, series upon series. */
export function columns(series) {
  return (place, rounds) => {
    const { x, y, slot } = place;
    if (slot < SLIMMEST) return steps(series)(place, rounds);
    const wide = Math.min(Math.max(slot * 0.78, 0.8), 26);
    const made = [];
    rounds.forEach((round, at) => {
      let below = 0;
      for (const [kind, values] of series) {
        const [top, bottom] = [y(below + values[at]), y(below)];
        const size = { x: x(round) - wide / 2, y: top, width: wide, height: Math.max(bottom - top, 0) };
        made.push(draw("rect", { class: kind, ...size }));
        below += values[at];
      }
    });
    return made;
  };
}

/** Columns that would be slimmer than what a screen can show, as one shape. */
function steps(series) {
  return ({ x, y, slot }, rounds) => {
    let below = rounds.map(() => 0);
    return series.map(([kind, values]) => {
      const above = below.map((value, at) => value + values[at]);
      const edge = (heights, at) =>
        [-1, 1].map((side) => `${(x(rounds[at]) + (side * slot) / 2).toFixed(1)},${y(heights[at]).toFixed(1)}`);
      const ways = rounds.map((_, at) => at);
      const points = [...ways.flatMap((at) => edge(above, at)), ...ways.reverse().flatMap((at) => edge(below, at).reverse())];
      below = above;
      return draw("polygon", { class: kind, points: points.join(" ") });
    });
  };
}

/** The least round number that is not smaller: where an axis may end. */
export function above(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.9999);
}

function ticks(low, high, most, least = 0) {
  const rough = (high - low) / Math.max(most, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.9999));
  const whole = least ? Math.ceil(step) : step;
  const found = [];
  for (let at = Math.ceil(low / whole - 1e-9); at * whole <= high + whole * 1e-9; at++) found.push(at * whole);
  return found;
}

function nearest(rounds, wanted) {
  let best = 0;
  rounds.forEach((round, at) => {
    if (Math.abs(round - wanted) < Math.abs(rounds[best] - wanted)) best = at;
  });
  return best;
}

/* The rounds that are closed: three ways to see them, one round picked in all of them, and the same in numbers. */

import { above, area, chart, columns, line } from "./charts.js";
import { showTold } from "./told.js";
import { across, bytes, make, moment, percent, say, span, tooFew } from "./words.js";

const figures = [...document.querySelectorAll("figure.chart")];
const pick = document.getElementById("pick");
const numbers = document.getElementById("numbers");
let points = [];
let now = 0;
let fewest = 0; // over fewer sites a mean is not told
let picked = null; // a round; null follows the newest
let before = "";

/** Show the curve of a run; drawn again only when there is something new. */
export function showCurves(curve, clock, least) {
  document.getElementById("curves").hidden = curve.length === 0;
  [now, fewest] = [clock, least];
  const told = JSON.stringify(curve);
  if (told === before || curve.length === 0) return;
  before = told;
  points = curve;
  if (picked !== null && picked < points[0].round) picked = null; // another run
  refresh();
}

/** Bytes up to each round; of rounds that are left out, those between two shown ones count as the later one. */
export function summed(curve) {
  let total = 0;
  return curve.map((point, at) => {
    const rounds = at === 0 ? 1 : point.round - curve[at - 1].round;
    return (total += rounds * (point.bytes_down + point.bytes_up));
  });
}

/** Whether rounds are left out of a curve. */
export function isThinned(curve) {
  return curve.length > 1 && curve.at(-1).round - curve[0].round >= curve.length;
}

function refresh() {
  const found = points.findIndex((point) => point.round === picked);
  const chosen = found < 0 ? points.length - 1 : found;
  pick.max = points.length - 1;
  pick.value = chosen;
  const newest = points.findLast((point) => point.accuracy !== null);
  const said = inWords(points[chosen], newest?.round ?? 0);
  say(document.getElementById("picked"), said);
  pick.setAttribute("aria-valuetext", said);
  const rounds = points.map((point) => point.round);
  const where = rounds.length > 1 ? `rounds ${rounds[0]} to ${rounds.at(-1)}` : `round ${rounds[0]}`;
  drawAccuracy(rounds, chosen, where);
  drawBytes(rounds, chosen, where);
  drawSeconds(rounds, chosen, where);
  showTold(points[chosen]);
  if (numbers.open) writeNumbers();
}

function drawAccuracy(rounds, chosen, where) {
  const series = (name) => points.map((point) => point[name]);
  const mean = series("accuracy");
  const edge = (sign) =>
    points.map(({ accuracy, spread }) =>
      accuracy === null || spread === null ? null : Math.min(1, Math.max(0, accuracy + sign * spread)));
  const [low, high, worst] = [edge(-1), edge(1), series("worst_decile")];
  const known = [...mean, ...low, ...high, ...worst].filter((value) => value !== null);
  const newest = points.findLast((point) => point.accuracy !== null);
  const lacking = newest ? "" : tooFew(points.findLast((point) => point.measured), fewest) || "nothing is measured yet";
  chart(figures[0], {
    title: "Accuracy by round",
    words: newest
      ? `${where}: the mean over sites is now ${percent(newest.accuracy)}, the spread ${percent(newest.spread)}, ` +
        `the worst tenth ${percent(newest.worst_decile)}. All values are in the table below.`
      : `${where}: ${lacking}.`,
    note: lacking,
    rounds,
    chosen,
    low: newest ? Math.max(0, Math.floor(10 * Math.min(0.8, ...known)) / 10) : 0,
    high: newest ? Math.min(1, Math.ceil(10 * Math.max(0.2, ...known)) / 10) : 1,
    label: (value) => `${(100 * value).toFixed(0)} %`,
    marks: [area(low, high, "band"), line(worst, "worst"), line(mean, "mean")],
    end: newest && { round: newest.round, value: newest.accuracy, words: percent(newest.accuracy) },
  });
}

function drawBytes(rounds, chosen, where) {
  const [up, down] = ["bytes_up", "bytes_down"].map((name) => points.map((point) => point[name]));
  const totals = summed(points);
  const about = isThinned(points) ? "about " : "";
  const shared = { rounds, chosen, label: (value) => (value ? bytes(value).replace(".0 ", " ") : "0") };
  chart(figures[1], {
    ...shared,
    title: "Bytes by round",
    words: `${where}: in the last one ${bytes(up.at(-1))} from the sites and ${bytes(down.at(-1))} to them.`,
    high: above(Math.max(...points.map((point) => point.bytes_up + point.bytes_down))),
    marks: [columns([["up", up], ["down", down]])],
  });
  chart(figures[2], {
    ...shared,
    title: "Bytes in all",
    words: `${where}: ${about}${bytes(totals.at(-1))} both ways.`,
    high: above(totals.at(-1)),
    marks: [area(totals.map(() => 0), totals, "total"), line(totals, "total")],
  });
}

function drawSeconds(rounds, chosen, where) {
  const seconds = points.map((point) => point.seconds);
  chart(figures[3], {
    title: "Seconds by round",
    words: `${where}: the last one took ${span(seconds.at(-1))}, the longest ${span(Math.max(...seconds))}.`,
    rounds,
    chosen,
    high: above(Math.max(...seconds)),
    label: (value) => (value >= 1000 ? span(value) : `${+value.toPrecision(3)} s`),
    marks: [columns([["time", seconds]])],
  });
}

function inWords(point, newest) {
  const measured =
    point.accuracy === null
      ? tooFew(point, fewest) || `accuracy not measured${point.round > newest ? " yet" : ""}`
      : `mean ${percent(point.accuracy)} ${across(point)}, worst tenth ${percent(point.worst_decile)}`;
  return (
    `${point.round}, closed ${moment(point.ended, now)}: ${measured}; ${point.counted} of ${point.cohort} counted; ` +
    `${bytes(point.bytes_up)} from the sites, ${bytes(point.bytes_down)} to them; ${span(point.seconds)}`
  );
}

function writeNumbers() {
  const rows = points.map((point) => {
    const cells = [percent(point.accuracy), percent(point.spread), percent(point.worst_decile), point.counted, point.lost,
      bytes(point.bytes_down), bytes(point.bytes_up), point.seconds.toFixed(2)];
    return make("tr", {}, make("th", { scope: "row" }, point.round), make("td", {}, moment(point.ended, now)),
      ...cells.map((value) => make("td", { class: "n" }, value)));
  });
  document.getElementById("rounds").tBodies[0].replaceChildren(...rows.reverse());
}

function choose(at) {
  picked = at >= points.length - 1 ? null : points[at].round;
  refresh();
}

pick.addEventListener("input", () => choose(Number(pick.value)));
numbers.addEventListener("toggle", () => numbers.open && writeNumbers());
for (const figure of figures) {
  figure.addEventListener("pointermove", (event) => {
    if (points.length) choose(figure.nearest(event.clientX - figure.getBoundingClientRect().left));
  });
  figure.addEventListener("pointerleave", () => points.length && choose(points.length - 1));
}
new ResizeObserver(() => points.length && refresh()).observe(document.getElementById("curves"));

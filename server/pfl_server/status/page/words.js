/* How numbers and moments are said, and how they get into the document: as text, never as markup. */

const SIZES = ["B", "kB", "MB", "GB", "TB"];

/** An element with attributes and text or elements inside. */
export function make(tag, attributes = {}, ...inside) {
  return fill(document.createElement(tag), attributes, inside);
}

/** The same for drawings. */
export function draw(tag, attributes = {}, ...inside) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, inside);
}

function fill(element, attributes, inside) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside.map((part) => (part instanceof Node ? part : String(part))));
  return element;
}

/** Change an element's words only if they are others: what is selected or read aloud stays. */
export function say(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

export function percent(ratio, digits = 1) {
  return ratio === null || ratio === undefined ? "–" : `${(100 * ratio).toFixed(digits)} %`;
}

export function bytes(size) {
  let step = 0;
  for (; size >= 999.5 && step < SIZES.length - 1; step++) size /= 1000;
  return `${step === 0 || size >= 99.95 ? size.toFixed(0) : size.toFixed(1)} ${SIZES[step]}`;
}

/** A span of time in at most two units. */
export function span(seconds) {
  if (seconds < 0.0995) return `${Math.max(0, seconds * 1000).toFixed(0)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 100) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

export function ago(seconds) {
  if (seconds < 1.5) return "now";
  return `${seconds < 99.5 ? `${Math.round(seconds)} s` : span(seconds)} ago`;
}

export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

/** Over how many sites a point's mean is, and how far they are apart, in the words of `pfl status`. */
export function across(point) {
  if (point.measured === 1) return "of 1 site";
  return `± ${(100 * point.spread).toFixed(1)} over ${point.measured ? count(point.measured, "site") : "the sites"}`;
}

/** Why a point has no accuracy although sites have measured, in the words of `pfl status`; empty where it has one. */
export function tooFew(point, fewest) {
  if (!point || point.accuracy !== null || !point.measured) return "";
  return `${count(point.measured, "site")}: the mean over fewer than ${fewest} is not shown`;
}

/** Names in a row; of many the first few. */
export function names(list, most = 12) {
  const shown = list.slice(0, most).join(", ");
  return list.length > most ? `${shown} and ${list.length - most} more` : shown;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** A Unix time in the viewer's zone; the day is said when it is not today's. */
export function moment(unix, now) {
  const then = new Date(unix * 1000);
  const today = then.toDateString() === new Date(now * 1000).toDateString();
  return today ? clock.format(then) : `${day.format(then)}, ${clock.format(then)}`;
}

export function time(unix, now) {
  return make("time", { datetime: new Date(unix * 1000).toISOString() }, moment(unix, now));
}

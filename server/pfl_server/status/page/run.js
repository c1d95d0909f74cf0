/* What changes seldom: where the time goes, what happened, what was agreed. */

import { showBar } from "./bars.js";
import { make, say, span, time } from "./words.js";

const FEW = 10;
const PHASES = ["wait", "seal", "download", "work", "upload", "verify", "fold", "commit"];
const SAID = {
  backbone: "network", shape: "input", classes: "classes", rounds: "rounds", sites: "sites", participation: "asked each round",
  drop: "drawn to drop out", candidates: "asked from", quorum: "enough to close", lease_seconds: "lease",
  round_seconds: "a round may take", evaluate_every: "measured every", seed: "seed", settings: "settings", chosen: "chosen by the data",
};
const SHARES = ["participation", "drop", "quorum"];
const el = (id) => document.getElementById(id);
let all = false;
let events = [];
let clock = 0;
let before = "";

/** Show the parts of a page that are read, not watched. */
export function showRun(status, now) {
  showTime(status.phases);
  [events, clock] = [status.events, now];
  showEvents();
  say(el("agreed-name"), status.run ? "What was agreed" : "What is asked for");
  showSpec(status.spec);
}

function showTime(phases) {
  el("time").hidden = Object.keys(phases).length === 0;
  const known = PHASES.filter((name) => name in phases);
  const names = [...known, ...Object.keys(phases).filter((name) => !known.includes(name))];
  const parts = names.map((name) => [name, phases[name]]);
  showBar("phases", Object.fromEntries(parts), span);
}

function showEvents() {
  el("happened").hidden = events.length === 0;
  el("more").hidden = events.length <= FEW;
  say(el("more"), all ? `The newest ${FEW}` : `All ${events.length}`);
  const shown = all ? events : events.slice(0, FEW);
  const told = JSON.stringify([shown, new Date(clock * 1000).toDateString()]);
  if (told === before) return;
  before = told;
  el("events").replaceChildren(...shown.map(({ at, level, words }) =>
    make("li", { class: level === "info" ? "" : level === "error" ? "error" : "warning" }, time(at, clock),
      make("span", {}, ...(level === "info" ? [] : [make("b", {}, `${level}: `)]), words))));
}

function showSpec(spec) {
  el("agreed").hidden = Object.keys(spec).length === 0;
  const known = Object.keys(SAID).filter((name) => name in spec);
  const names = [...known, ...Object.keys(spec).filter((name) => !(name in SAID))];
  const list = el("spec");
  const facts = names.flatMap((name) => [SAID[name] ?? name.replaceAll("_", " "), tell(name, spec[name])]);
  if (list.children.length !== facts.length) {
    list.replaceChildren(...facts.map((_, at) => make(at % 2 ? "dd" : "dt")));
  }
  facts.forEach((fact, at) => (Array.isArray(fact) ? chips(list.children[at], fact) : say(list.children[at], fact)));
}

function chips(element, words) {
  if (element.textContent !== words.join("")) element.replaceChildren(...words.map((word) => make("code", {}, word)));
}

function tell(name, value) {
  if (value === null || value === "") return "–";
  if (name.endsWith("_seconds")) return span(value);
  if (name === "shape") return value.join(" × ");
  if (name === "evaluate_every") return value === 1 ? "round" : `${value} rounds`;
  if (value === "majority") return "more than half, at least two";
  if (SHARES.includes(name)) return shares(value);
  if (typeof value !== "object") return String(value);
  const parts = Object.entries(value).map(([key, part]) => `${key} = ${typeof part === "object" ? JSON.stringify(part) : part}`);
  return parts.length ? parts : "the method's own";
}

el("more").addEventListener("click", () => {
  all = !all;
  showEvents();
});

/** A share, or a range of shares, in percent; names stay as they are. */
function shares(value) {
  const parts = String(value).split("..");
  if (!parts.every((part) => /^[\d.]+$/.test(part))) return String(value);
  return `${parts.map((part) => +(100 * Number(part)).toFixed(2)).join(" to ")} %`;
}

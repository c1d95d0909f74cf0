/* The story: ask the coordinator every two seconds, show what it says, and say so when it does not answer. */

import { showBar } from "./bars.js";
import { isThinned, showCurves, summed } from "./curves.js";
import { showSites } from "./sites.js";
import { showRun } from "./run.js";
import { countClosed, countHere, findAbsent, tellPatience, tellPlace, tellSentence, tellTroubles, tellWarnings } from "./standing.js";
import { across, ago, bytes, make, moment, names, percent, say, span, tooFew } from "./words.js";

const EVERY = 2000;
const SLOWEST = 30000;
const PATIENCE = 10000;
const HANGING = 5; // times as long as a round usually takes: what the alert PflRoundTooLong calls too long
const el = (id) => document.getElementById(id);
const STATES = {
  gathering: "Gathering sites",
  running: "Running",
  finishing: "Finishing",
  finished: "Finished",
  stopped: "Stopped",
  failed: "Failed",
};
let timer = 0;
let asking = false;
let misses = 0;
let answered = Date.now();
let latest = null;

async function ask() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  let status = null;
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    status = await answer.json();
  } catch {
    miss();
  } finally {
    asking = false;
  }
  if (status !== null) hear(status);
  if (!document.hidden) timer = setTimeout(ask, Math.min(EVERY * 2 ** misses, SLOWEST));
}

function hear(status) {
  misses = 0;
  answered = Date.now();
  latest = status;
  el("silence").hidden = true;
  el("all").classList.remove("stale");
  try {
    show(status);
  } catch (error) {
    console.error(error);
    el("silence").hidden = false;
    say(el("silence"), "The coordinator answers, but this page cannot show all it says. `pfl status` can.");
  }
}

function miss() {
  misses += 1;
  const since = moment(answered / 1000, Date.now() / 1000);
  el("silence").hidden = false;
  say(el("silence"), `The coordinator has not answered since ${since}. This page goes on asking.`);
  el("all").classList.add("stale");
  el("all").setAttribute("aria-busy", "false");
  el("hero").dataset.state = "silent";
  say(el("state"), "No answer");
  say(el("saying"), "");
  say(el("place"), latest === null ? "" : `Last known: ${[nameOf(latest), tellPlace(latest)].filter(Boolean).join(", ")}`);
  document.title = `no answer · ${document.title.replace(/^no answer · /, "")}`;
}

function show(status) {
  const now = status.now || Date.now() / 1000;
  showHead(status, now);
  showTiles(status);
  showRound(status, now);
  showCurves(status.curve, now, status.fewest_reporters);
  showSites(status.sites);
  showRun(status, now);
  showFoot(status);
  el("all").setAttribute("aria-busy", "false");
}

function nameOf(status) {
  return STATES[status.status] ?? status.status;
}

function showHead(status, now) {
  const [state, place] = [nameOf(status), tellPlace(status)];
  say(el("method"), status.method);
  say(el("run"), status.run);
  say(el("state"), state);
  say(el("place"), place && place[0].toUpperCase() + place.slice(1));
  say(el("spoken"), [state, place, status.words].filter(Boolean).join(", "));
  say(el("saying"), [tellSentence(status), ...beside(status, now), tellPatience(status)].join(" "));
  say(el("words"), status.words);
  el("words").hidden = !status.words;
  showLines("troubles", tellTroubles(status));
  showLines("oddities", tellWarnings(status));
  el("hero").dataset.state = isWrong(status) ? "failed" : status.status;
  document.title = [state, titleOf(status), status.method].filter(Boolean).join(" · ");
  showWay(status);
  const newest = status.curve.findLast((point) => point.accuracy !== null);
  const few = newest ? "" : tooFew(status.curve.findLast((point) => point.measured), status.fewest_reporters);
  el("score").hidden = !newest && !few;
  say(el("mean"), newest ? percent(newest.accuracy) : "");
  say(el("meanwords"), newest ? `mean accuracy after round ${newest.round}, ${across(newest)}` : few);
}

/** Red: what keeps a run from beginning or going on, and a result that knows nothing of a site. */
function isWrong(status) {
  return ["gathering", "running"].includes(status.status) ? Boolean(status.words) : findAbsent(status).length > 0;
}

/** Sentences below each other, peers' words among them: as text, and only touched when they change. */
function showLines(id, lines) {
  const list = el(id);
  list.hidden = lines.length === 0;
  while (list.children.length > lines.length) list.lastChild.remove();
  lines.forEach((words, at) => say(list.children[at] ?? list.appendChild(make("li")), words));
}

function titleOf(status) {
  if (status.status === "gathering") return `${countHere(status)}/${status.spec.sites ?? "?"}`;
  return status.run && `${status.round}/${status.rounds}`;
}

/** A bar of the rounds that are closed; before there are any, of the sites that have come. */
function showWay(status) {
  const gathers = status.status === "gathering";
  const [done, all] = gathers ? [countHere(status), status.spec.sites ?? 0] : [countClosed(status), status.rounds];
  const way = el("way");
  way.hidden = !all;
  way.setAttribute("aria-label", gathers ? "sites" : "rounds");
  way.setAttribute("aria-valuemax", all);
  way.setAttribute("aria-valuenow", Math.min(done, all));
  way.setAttribute("aria-valuetext", gathers ? tellPlace(status) : `${done} of ${all} rounds closed`);
  way.firstElementChild.style.width = `${Math.min(100, (100 * done) / (all || 1))}%`;
}

/** What is said beside the sentence that `pfl status` says too. */
function beside(status, now) {
  const ended = status.curve.at(-1)?.ended;
  if (["finished", "stopped"].includes(status.status)) {
    return status.started && ended ? [`It took ${span(ended - status.started)}.`] : [];
  }
  return status.status === "running" && status.opened ? left(status, now) : [];
}

/** When the last round would end at the pace of the last ten; the one under way lasts at least until now. */
function left(status, now) {
  const curve = status.curve.filter((point) => point.ended); // of rounds an older release played no time is known
  const [one, other] = [curve.at(-Math.min(11, curve.length)), curve.at(-1)];
  if (!other || one === other || other.round >= status.rounds) return [];
  const pace = (other.ended - one.ended) / (other.round - one.round);
  if (hangs(status, now, pace)) return [];
  const end = Math.max(now, other.ended + pace) + pace * (status.rounds - other.round - 1);
  return [`At the pace of the last rounds all will be done about ${moment(end, now).slice(0, -3)}.`];
}

/** Whether the round under way has left the pace, or only sites that are away can end it. */
function hangs(status, now, pace) {
  if (now - status.opened > HANGING * pace) return true;
  const here = new Set(status.sites.filter((line) => line.state === "here").map((line) => line.site));
  return status.awaited.length > 0 && !status.awaited.some((site) => here.has(site));
}

function showTiles(status) {
  const newest = status.curve.findLast((point) => point.accuracy !== null);
  const last = status.curve.at(-1);
  const gone = status.sites.filter((line) => line.phase === "left").length;
  const parted = gone ? `, ${gone} ${gone === 1 ? "has" : "have"} left` : "";
  const facts = [[`${countHere(status)} of ${status.sites.length}`, `sites are here${parted}`]];
  if (newest) facts.push([percent(newest.worst_decile), "worst tenth of sites"]);
  if (last) {
    facts.push([`${last.counted} of ${last.cohort}`, `counted in round ${last.round}`]);
    facts.push([span(last.seconds), `round ${last.round} took`]);
    const about = isThinned(status.curve) ? "about " : "";
    facts.push([about + bytes(summed(status.curve).at(-1)), "moved in closed rounds"]);
  }
  const tiles = el("tiles");
  tiles.hidden = status.sites.length === 0 || status.status === "gathering";
  while (tiles.children.length > facts.length) tiles.lastChild.remove();
  facts.forEach(([value, words], at) => {
    const tile = tiles.children[at] ?? tiles.appendChild(make("li", {}, make("b"), make("span")));
    say(tile.firstChild, value);
    say(tile.lastChild, words);
  });
}

function showRound(status, now) {
  const under = status.status === "running" && status.awaited.length > 0;
  el("live").hidden = !under;
  if (!under) return;
  const stages = { counted: status.counted ?? 0, uploading: 0, working: 0, called: 0, away: 0, lost: status.lost ?? 0 };
  const phases = new Map(status.sites.map((line) => [line.site, line.phase]));
  for (const site of status.awaited) {
    const phase = phases.get(site);
    stages[phase in stages ? phase : "called"] += 1;
  }
  say(el("live-name"), `Round ${status.round}, under way`);
  showBar("cohort", stages, (number) => String(number));
  const since = status.opened ? `Opened ${ago(now - status.opened)}. ` : "";
  const of = status.cohort ? ` of ${status.cohort}` : "";
  say(el("awaited"), `${since}Awaited: ${status.awaited.length}${of}: ${names(status.awaited, 24)}.`);
}

function showFoot(status) {
  const host = location.hostname.replace(/^\[|\]$/g, "");
  const near = host === "localhost" || host.endsWith(".localhost") || host === "::1" || host.startsWith("127.");
  const how = near ? "on this machine or through a tunnel that ends here" : "over the network";
  const veil = location.protocol === "https:" ? "" : near ? "" : ", without encryption";
  say(el("reached"), `Reached at ${location.host}, ${how}${veil}.`);
  const off = status.now ? Math.round(status.now - Date.now() / 1000) : 0;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const beside = Math.abs(off) > 2 ? ` This device's clock is ${span(Math.abs(off))} ${off > 0 ? "behind" : "ahead of"} it.` : "";
  say(el("clock"), `Times are by the coordinator's clock, shown as they are in ${zone}.${beside}`);
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : ask()));
window.addEventListener("online", ask);
ask();

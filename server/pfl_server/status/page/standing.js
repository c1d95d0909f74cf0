/* How a run stands, in the words of `pfl status`: what is changed here is changed there. */

import { count, names } from "./words.js";

const NAMED = 3; // awaited sites that are named in a sentence; of more the number is said
const OVER = ["finishing", "finished", "stopped"];

export function countHere(status) {
  return status.sites.filter((line) => line.state === "here").length;
}

export function countClosed(status) {
  return status.curve.at(-1)?.round ?? 0;
}

/** How far the run is; while it gathers, how many of its sites have come. */
export function tellPlace(status) {
  if (status.status === "gathering") return tellGathered(status);
  if (!status.run) return "";
  if (status.status !== "running" || status.opened) {
    const again = status.attempt > 1 ? `, attempt ${status.attempt}` : "";
    return `round ${status.round} of ${status.rounds}${again}`;
  }
  const closed = countClosed(status);
  return closed ? `after round ${closed} of ${status.rounds}` : `before round 1 of ${status.rounds}`;
}

/** What is waited for, or how it ended; nothing where the coordinator's own words say it. */
export function tellSentence(status) {
  switch (status.status) {
    case "gathering":
      return tellBeginning(status);
    case "running":
      return status.opened ? tellAwaited(status) : tellBetween(status);
    case "finishing": {
      const absent = status.awaited.length ? ` Not done yet: ${names(status.awaited)}.` : "";
      return `The rounds are over; every site gets its model.${absent}`;
    }
    case "finished":
      return `${tellDone(status)} ${tellModels(status)}`;
    case "stopped": {
      const models = status.run ? ` ${tellModels(status)}` : "";
      return `Ended by the operator after ${count(countClosed(status), "round")}.${models}`;
    }
    default:
      return "";
  }
}

/** For how long a run that may end early has not become better, in the coordinator's words. */
export function tellPatience(status) {
  return status.patience ? `${status.patience[0].toUpperCase()}${status.patience.slice(1)}.` : "";
}

/** Sites that no round of a run that is over has counted; an older coordinator counts nobody. */
export function findAbsent(status) {
  const never = status.sites.filter((line) => !line.counted).map((line) => line.site);
  const over = OVER.includes(status.status) && countClosed(status) > 0;
  return over && never.length < status.sites.length ? never : [];
}

/** What the operator must not overlook: sites without a part in what was trained, sites that were not taken. */
export function tellTroubles(status) {
  const never = findAbsent(status);
  const rounds = count(countClosed(status), "round");
  const told = never.length
    ? [`Counted in none of ${rounds}: ${names(never)}. The result knows nothing of their data.`]
    : [];
  const waiting = Object.entries(status.waiting ?? {});
  return [
    ...told,
    ...waiting.map(([site, keys]) => `${site} waits to be approved, keys ${keys}: pfl approve ${site}, or pfl deny ${site}`),
    ...Object.entries(status.refused ?? {}).map(([site, words]) => `${site} was not taken: ${words}`),
  ];
}

/** What is odd about the sites' data, as they and the coordinator say. */
export function tellWarnings(status) {
  const own = status.sites.flatMap((line) => (line.warnings ?? []).map((words) => `${line.site}: ${words}`));
  return [...(status.warnings ?? []), ...own];
}

function tellDone(status) {
  const closed = countClosed(status);
  const early = closed > 0 && closed < status.rounds;
  return early ? `${closed} of ${count(status.rounds, "round")} are done.` : `All ${count(status.rounds, "round")} are done.`;
}

function tellModels(status) {
  if (!status.awaited.length) return "Every site that was here has its model.";
  const lacking = `Without the model so far: ${names(status.awaited)}.`;
  return `${lacking} A site that was away gets it when it comes back while the coordinator runs.`;
}

function tellGathered(status) {
  const wanted = status.spec.sites;
  return `${countHere(status)}${wanted ? ` of ${wanted}` : ""} ${wanted === 1 ? "site is" : "sites are"} here`;
}

function tellBeginning(status) {
  const run = status.rounds ? `The run of ${count(status.rounds, "round")}` : "The run";
  if (status.words) return `${run} does not begin yet.`;
  if (countHere(status) >= (status.spec.sites ?? Infinity)) return `All have come. ${run} is being made ready.`;
  return `${run} begins by itself when all have come.`;
}

function tellAwaited(status) {
  if (!status.awaited.length) return "The round is being closed.";
  const many = status.awaited.length > NAMED;
  return `Waiting for ${many ? count(status.awaited.length, "site") : names(status.awaited)}.`;
}

function tellBetween(status) {
  if (countClosed(status) >= status.rounds) return "The last round is closed.";
  const here = countHere(status);
  if (here === status.sites.length) return "The next round is about to begin.";
  return `The next round begins when enough sites are here: now ${here} of ${status.sites.length}.`;
}

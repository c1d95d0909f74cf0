/* The table of sites: sorted, sifted, and never longer than a page can bear. */

import { ago, make, say } from "./words.js";

const MOST = 200;
const FEW = 12;
const ORDER = ["uploading", "working", "called", "waiting", "away", "left"];
const KEYS = {
  site: (line) => line.site,
  state: (line) => line.state,
  phase: (line) => ORDER.indexOf(line.phase),
  seen: (line) => (line.seen_seconds < 0 ? Infinity : line.seen_seconds),
  doing: (line) => line.doing,
  counted: (line) => line.counted ?? 0,
};
const table = document.getElementById("roster");
const body = table.tBodies[0];
const sought = document.getElementById("sought");
const phase = document.getElementById("phase");
let lines = [];
const more = document.getElementById("more-sites");
const narrow = matchMedia("(max-width: 600px)"); // a row is a card there: many of them would hide what stands below
let all = false;
let by = "site";
let down = false;

/** Show the sites as they are now. */
export function showSites(sites) {
  lines = sites;
  const known = [...phase.options].map((option) => option.value);
  for (const name of new Set(sites.map((line) => line.phase))) {
    if (name && !known.includes(name)) phase.append(make("option", { value: name }, name));
  }
  document.getElementById("sieve").hidden = sites.length <= FEW;
  refresh();
}

function refresh() {
  const words = sought.value.trim().toLowerCase();
  const found = lines.filter((line) => matches(line, words) && (!phase.value || line.phase === phase.value));
  found.sort((one, other) => (down ? -1 : 1) * compare(KEYS[by](one), KEYS[by](other)) || compare(one.site, other.site));
  const shown = found.slice(0, narrow.matches && !all ? FEW : MOST);
  while (body.rows.length > shown.length) body.deleteRow(-1);
  shown.forEach((line, at) => write(body.rows[at] ?? body.appendChild(row()), line));
  say(document.getElementById("shown"), note(found.length, shown.length));
  more.hidden = !narrow.matches || found.length <= FEW;
  say(more, all ? `The first ${FEW}` : found.length > MOST ? `The first ${MOST}` : `All ${found.length}`);
  table.hidden = lines.length === 0;
}

function matches(line, words) {
  return !words || `${line.site}\n${line.doing}`.toLowerCase().includes(words);
}

function compare(one, other) {
  return typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
}

function note(found, shown) {
  if (lines.length === 0) return "No site has come yet. `pfl invite NAME`, on the coordinator's machine, lets one in from another.";
  if (found > shown) return `${shown} of ${found} sites are shown: name one, or choose a phase, to see others.`;
  return lines.length > FEW ? `${found} of ${lines.length} sites.` : "";
}

function row() {
  const cells = [0, 1, 2, 3, 4, 5].map(() => make("td", { role: "cell" }));
  cells[2].append(make("i", { class: "mark", "aria-hidden": "true" }), make("span"));
  cells[1].className = cells[3].className = "dim";
  return make("tr", { role: "row" }, ...cells);
}

function write(tr, line) {
  const [name, state, badge, seen, doing, counted] = tr.cells;
  say(name, line.site);
  say(state, line.state);
  say(badge.lastChild, line.phase);
  badge.firstChild.className = `mark ${ORDER.slice(0, 3).includes(line.phase) || line.phase === "away" ? line.phase : "none"}`;
  say(seen, line.seen_seconds < 0 ? "not since the restart" : ago(line.seen_seconds));
  say(doing, line.doing === line.phase ? "" : line.doing);
  say(counted, String(line.counted ?? 0));
}

table.tHead.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  down = by === button.dataset.by && !down;
  by = button.dataset.by;
  for (const head of table.tHead.rows[0].cells) {
    const mine = head.contains(button);
    head.setAttribute("aria-sort", mine ? (down ? "descending" : "ascending") : "none");
  }
  refresh();
});
more.addEventListener("click", () => {
  all = !all;
  refresh();
});
narrow.addEventListener("change", refresh);
sought.addEventListener("input", refresh);
phase.addEventListener("change", refresh);
document.getElementById("sieve").addEventListener("submit", (event) => event.preventDefault());

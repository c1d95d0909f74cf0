/* What the coordinator's half of the method told of a round, where it tells anything. */

import { make, say } from "./words.js";

const card = document.getElementById("told");
const list = document.getElementById("told-facts");

/** Show the numbers of one round, a family of them in a row: "overlap/mean" and "overlap/most" belong together. */
export function showTold(point) {
  const told = Object.entries(point.diagnostics ?? {});
  card.hidden = told.length === 0;
  say(document.getElementById("told-name"), `Told by the method, round ${point.round}`);
  const families = new Map();
  for (const [name, value] of told) {
    const [family, part] = name.split(/\/(.*)/s);
    families.set(family, [...(families.get(family) ?? []), part ? `${part} ${tell(value)}` : tell(value)]);
  }
  const facts = [...families].flatMap(([family, parts]) => [family.replaceAll("_", " "), parts.join(", ")]);
  if (list.children.length !== facts.length) list.replaceChildren(...facts.map((_, at) => make(at % 2 ? "dd" : "dt")));
  facts.forEach((fact, at) => say(list.children[at], fact));
}

function tell(value) {
  return Number.isInteger(value) ? String(value) : String(+value.toPrecision(3));
}

/* A bar made of parts. */

import { make, say } from "./words.js";

const el = (id) => document.getElementById(id);

/** A bar of parts with its key in words, which is what is read aloud. */
export function showBar(id, parts, tell) {
  const shown = Object.entries(parts);
  const whole = shown.reduce((sum, [, value]) => sum + value, 0);
  const [bar, key] = [el(id), el(`${id}-key`)];
  if (bar.children.length !== shown.length) {
    bar.replaceChildren(...shown.map(() => make("i")));
    key.replaceChildren(...shown.map(() => make("li", {}, make("i", { "aria-hidden": "true" }), make("span"))));
  }
  shown.forEach(([name, value], at) => {
    const part = bar.children[at];
    const kind = /^[a-z]+$/.test(name) ? name : "none";
    part.className = kind;
    part.style.flexGrow = value / (whole || 1);
    part.hidden = !value;
    key.children[at].firstChild.className = `mark ${kind}`;
    say(key.children[at].lastChild, `${name} ${tell(value)}`);
  });
}

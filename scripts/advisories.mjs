// Known faults (RustSec) of the crates in Cargo.lock, by a checkout of the list: `advisories.mjs DIRECTORY`. Exit 1: there
// are some; 77: there is no list.

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const directory = join(process.argv[2] ?? "", "crates");
if (!existsSync(directory)) {
  console.log(
    "not checked: no list of known faults (git clone https://github.com/rustsec/advisory-db ~/.cargo/advisory-db)",
  );
  process.exit(77);
}

/** A version as numbers, and its prerelease words (null: a release). */
function version(text) {
  const [core, ...pre] = text.trim().split("+")[0].split("-");
  const numbers = core.split(".").map(Number);
  const given = numbers.length;
  while (numbers.length < 3) numbers.push(0);
  return {
    numbers,
    given,
    pre: pre.length > 0 ? pre.join("-").split(".") : null,
  };
}

/** Whether a comes before b (negative), after it (positive), or neither. */
function compare(a, b) {
  for (let i = 0; i < 3; i++)
    if (a.numbers[i] !== b.numbers[i]) return a.numbers[i] - b.numbers[i];
  if (!a.pre || !b.pre) return (a.pre ? 0 : 1) - (b.pre ? 0 : 1);
  for (let i = 0; i < Math.max(a.pre.length, b.pre.length); i++) {
    const [x, y] = [a.pre[i], b.pre[i]];
    if (x === undefined || y === undefined) return x === undefined ? -1 : 1;
    const both = /^\d+$/.test(x) && /^\d+$/.test(y);
    if (x !== y) return both ? Number(x) - Number(y) : x < y ? -1 : 1;
  }
  return 0;
}

/** Whether a version satisfies a requirement of Cargo (`>= 1.2, < 2`, `^1.2`, `~1.2`). */
function satisfies(text, requirement) {
  const have = version(text);
  return requirement.split(",").every((part) => {
    const [, sign, wanted] = part.trim().match(/^(>=|<=|>|<|=|\^|~)?\s*(.+)$/);
    if (wanted === "*") return true;
    const bound = version(wanted);
    const order = compare(have, bound);
    if (sign === ">=") return order >= 0;
    if (sign === "<=") return order <= 0;
    if (sign === ">") return order > 0;
    if (sign === "<") return order < 0;
    if (sign === "=") return order === 0;
    const first = bound.numbers.findIndex((number) => number > 0);
    let at = first < 0 ? bound.given - 1 : Math.min(first, bound.given - 1);
    if (sign === "~") at = Math.min(1, bound.given - 1);
    return (
      order >= 0 &&
      bound.numbers
        .slice(0, at + 1)
        .every((number, i) => number === have.numbers[i])
    );
  });
}

const locked = [
  ...readFileSync("Cargo.lock", "utf8").matchAll(
    /name = "(.+)"\nversion = "(.+)"\nsource/g,
  ),
];
const list = (text, key) => [
  ...(
    text.match(new RegExp(`^${key} = \\[([^\\]]*)\\]`, "m"))?.[1] ?? ""
  ).matchAll(/"([^"]+)"/g),
];
let [known, newest, broken] = [0, "", 0];
for (const crate of readdirSync(directory)) {
  for (const file of readdirSync(join(directory, crate)).filter((name) =>
    name.endsWith(".md"),
  )) {
    const text = readFileSync(join(directory, crate, file), "utf8");
    const date = text.match(/^date = "(.+)"/m)?.[1] ?? "";
    known++;
    if (date > newest) newest = date;
    if (/^withdrawn = /m.test(text)) continue;
    const fine = [...list(text, "patched"), ...list(text, "unaffected")].map(
      ([, requirement]) => requirement,
    );
    for (const [, name, have] of locked.filter(([, name]) => name === crate)) {
      if (fine.some((requirement) => satisfies(have, requirement))) continue;
      // Who keeps a crate is no fault of it.
      const told = text.match(/^informational = "(.+)"/m)?.[1];
      if (told !== "unmaintained" && told !== "notice") broken++;
      console.log(
        `${file.slice(0, -3)}: ${name} ${have} ${told ?? "is vulnerable"}: ${text.match(/^# (.*)/m)?.[1] ?? ""}`,
      );
    }
  }
}
console.log(
  `${locked.length} crates, ${known} advisories, the newest of ${newest}: ${broken} faults`,
);
process.exit(broken === 0 && known > 0 && locked.length > 0 ? 0 : 1);

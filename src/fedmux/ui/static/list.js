// The list of runs: filter, selection, and rows that follow what is on the disk.
import { morph, parse, tellTimes } from "./morph.js";

const EVERY = 2000; // milliseconds between two requests
const rows = document.getElementById("rows");
const filter = document.getElementById("filter");
const all = document.getElementById("all");
const compare = document.getElementById("compare");
const status = document.getElementById("status");
const boxes = () => [...rows.querySelectorAll("input[name=run]")];
const chosen = () => boxes().filter((box) => box.checked);

let counted = ""; // what was last said of the rows; said again once it changes, or after trouble

function say(text) {
  if (status.textContent !== text) status.textContent = text;
}

function complain(text) {
  counted = "";
  say(text);
}

function show() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows.rows) {
    const text = [...row.cells].slice(1, 5).map((cell) => cell.textContent).join(" ").toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  const count = chosen().length;
  compare.textContent = count ? `Compare ${count}` : "Compare";
  const total = rows.rows.length;
  document.getElementById("empty").hidden = total > 0;
  const text = `${shown === total ? total : `${shown} of ${total}`} run${total === 1 ? "" : "s"}${count ? `, ${count} selected` : ""}`;
  if (text !== counted) say((counted = text));
  const visible = boxes().filter((box) => !box.closest("tr").hidden);
  all.checked = visible.length > 0 && visible.every((box) => box.checked);
  all.indeterminate = !all.checked && visible.some((box) => box.checked);
}

function take(html) {
  const known = new Map([...rows.rows].map((row) => [row.dataset.key, row]));
  const fresh = [...parse(html).querySelectorAll("tr")];
  fresh.forEach((row, place) => {
    let shown = known.get(row.dataset.key);
    known.delete(row.dataset.key);
    if (shown) morph(shown, row);
    else shown = row;
    if (rows.rows[place] !== shown) rows.insertBefore(shown, rows.rows[place] ?? null);
  });
  for (const gone of known.values()) gone.remove();
  show();
}

async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/rows", { cache: "no-cache" });
      if (answer.ok) take(await answer.text());
      else complain("The list could not be read again.");
    } catch {
      complain("fedmux ui does not answer any more; start it again and this page goes on.");
    }
    tellTimes(rows);
  }
  setTimeout(refresh, EVERY);
}

filter.addEventListener("input", show);
rows.addEventListener("change", show);
all.addEventListener("change", () => {
  for (const box of boxes()) if (!box.closest("tr").hidden) box.checked = all.checked;
  show();
});
document.getElementById("runs-form").addEventListener("submit", (event) => {
  if (chosen().length < 2) {
    event.preventDefault();
    say("Select two runs or more, then compare them.");
  }
});
filter.addEventListener("keydown", (event) => {
  if (event.key === "Enter") event.preventDefault(); // filters as one types; Enter is for the button
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && document.activeElement !== filter) {
    event.preventDefault();
    filter.focus();
  }
});

show();
tellTimes(rows);
setTimeout(refresh, EVERY);

"use strict";
// The page is complete without this script. It adds sorting, a choice of the reference method, copying of tables, a
// search among the trials, dialogs for cells and figures, and reloading while a sweep is running.

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const words = (node) => node.textContent.trim().replace(/\s+/g, " ");

function element(tag, options = {}, ...children) {
  const node = Object.assign(document.createElement(tag), options);
  node.append(...children);
  return node;
}

// Sorting

const originalRows = new Map(); // table body -> its rows in their original order

function dataRows(body) {
  return [...body.rows].filter((row) => !row.classList.contains("group"));
}

function sortTable(table, column, descending) {
  const heads = [...table.querySelector("tr.heads").cells];
  heads.forEach((head, index) => {
    head.setAttribute("aria-sort", index !== column ? "none" : descending ? "descending" : "ascending");
  });
  for (const body of table.tBodies) {
    const rows = column === null ? originalRows.get(body) : dataRows(body);
    if (column !== null) rows.sort((a, b) => compare(a.cells[column], b.cells[column], descending));
    body.append(...rows);
  }
  const button = table.parentElement.previousElementSibling?.querySelector(".by-result");
  if (button) button.setAttribute("aria-pressed", String(column === 1 && descending === (table.dataset.best !== "lowest")));
}

function compare(a, b, descending) {
  const [first, second] = [a, b].map((cell) => cell.dataset.sort ?? words(cell));
  // Empty cells come last in either direction.
  if (first === "" || second === "") return (first === "") - (second === "");
  const numbers = [Number(first), Number(second)];
  const order = numbers.every(Number.isFinite) ? numbers[0] - numbers[1] : first.localeCompare(second, "en", { numeric: true });
  return descending ? -order : order;
}

for (const table of all("table.sortable")) {
  for (const body of table.tBodies) originalRows.set(body, dataRows(body));
  [...table.querySelector("tr.heads").cells].forEach((head, column) => {
    const values = all("tbody tr:not(.group)", table).map((row) => row.cells[column]?.dataset.sort);
    // Numbers start with the highest, names with A.
    const descendingFirst = values.some((value) => value);
    head.setAttribute("aria-sort", "none");
    const button = element("button", { type: "button" }, ...head.childNodes);
    button.addEventListener("click", () => {
      const current = head.getAttribute("aria-sort");
      sortTable(table, column, current === "none" ? descendingFirst : current !== "descending");
    });
    head.append(button);
  });
}

// Copying: a table as displayed, with the chosen order and reference

function grid(table) {
  const groups = all("thead th[scope=colgroup]", table).flatMap((head) => Array(head.colSpan).fill(words(head)));
  const heads = [...table.querySelector("tr.heads").cells].map((head, index) => {
    const group = groups[index - 1];
    return { text: group ? `${group}, ${words(head)}` : words(head) };
  });
  const rows = all("tbody:not([hidden]) tr", table).map((row) => [...row.cells].map((cell) => ({
    text: words(cell), best: Boolean(cell.querySelector(".best")), tied: Boolean(cell.querySelector(".tied")),
  })));
  return { heads, rows };
}

const TEX = {
  "\\": "\\textbackslash{}", "&": "\\&", "%": "\\%", $: "\\$", "#": "\\#", _: "\\_", "{": "\\{", "}": "\\}", "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$", "±": "$\\pm$", "−": "$-$", "≥": "$\\geq$", "≤": "$\\leq$",
  "ε": "$\\varepsilon$", "\u03bb": "$\\lambda$", "α": "$\\alpha$", "\u03b2": "$\\beta$", "Δ": "$\\Delta$", "–": "--", "—": "---", "†": "$^\\dagger$",
  "‡": "$^\\ddagger$", "§": "$^\\S$", "¶": "$^\\P$", "▲": "", "▼": "", "[": "{[}", "]": "{]}",
};

const forms = {
  LaTeX(table) {
    const { heads, rows } = grid(table);
    const cell = ({ text, best, tied }) => {
      const safe = [...text].map((sign) => TEX[sign] ?? sign).join("");
      return best ? `\\textbf{${safe}}` : tied ? `\\underline{${safe}}` : safe;
    };
    const line = (cells) => `${cells.map(cell).join(" & ")} \\\\`;
    const body = rows.map((row) => row.length > 1 ? line(row) : `\\midrule\n\\multicolumn{${heads.length}}{l}{${cell(row[0])}} \\\\`);
    return ["% needs \\usepackage{booktabs}", `\\begin{tabular}{l${"r".repeat(heads.length - 1)}}`, "\\toprule", line(heads), "\\midrule",
      ...body, "\\bottomrule", "\\end{tabular}", ""].join("\n");
  },
  CSV(table) {
    const { heads, rows } = grid(table);
    const cell = ({ text }) => {
      // A leading sign could make a spreadsheet run a name as a formula; a number may have one.
      const safe = /^[=+@-]/.test(text) && !/^[+-][\d.]+(±[\d.]+)?$/.test(text) ? `'${text}` : text;
      return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    return [heads, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  },
  Markdown(table) {
    const { heads, rows } = grid(table);
    const cell = ({ text, best, tied }) => {
      const safe = text.replace(/[\\`*_{}[\]<>|#~]/g, "\\$&");
      return best ? `**${safe}**` : tied ? `<u>${safe}</u>` : safe;
    };
    const line = (row) => `| ${[...row.map(cell), ...Array(heads.length - row.length).fill("")].join(" | ")} |`;
    return [line(heads), `|:--${"|--:".repeat(heads.length - 1)}|`, ...rows.map(line), ""].join("\n");
  },
};

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { value: text, className: "offscreen" });
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

for (const table of all("table.copied")) {
  const tools = element("div", { className: "tools" });
  if (table.classList.contains("results") && all("tbody tr:not(.group)", table).length > 2) {
    const button = element("button", { type: "button", className: "by-result" }, "Sort by result");
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") === "true";
      sortTable(table, pressed ? null : 1, table.dataset.best !== "lowest");
    });
    tools.append(button);
  }
  tools.append(element("span", {}, "Copy as"));
  for (const [name, form] of Object.entries(forms)) {
    const button = element("button", { type: "button", className: "copy" }, name);
    button.addEventListener("click", async () => {
      button.textContent = (await copy(form(table))) ? "Copied" : "Not allowed";
      setTimeout(() => { button.textContent = name; }, 1500);
    });
    tools.append(button);
  }
  table.parentElement.before(tools);
}

// The reference method

for (const select of all("select.reference")) {
  const table = document.getElementById(select.dataset.table);
  const notes = all("[data-of]").filter((note) => note.dataset.of === table.id);
  const choose = () => {
    for (const part of [...table.tBodies, ...notes]) part.hidden = part.dataset.reference !== select.value;
  };
  select.addEventListener("change", choose);
  select.closest("[hidden]").hidden = false;
  choose();
}

// Search among the trials of a study

for (const list of all(".all-trials")) {
  const trials = [...list.children];
  const statuses = [...new Set(trials.flatMap((trial) => trial.dataset.status.split(" ")))];
  const search = element("input", { type: "search", placeholder: "method, value, commit, device …" });
  const status = element("select", {}, ...["any status", ...statuses].map((name) => new Option(name, name)));
  const order = element("select", {}, new Option("as in the tables", ""), new Option("by result", "result"));
  const count = element("output", {});
  // The text is long, so it is read once, when a search starts.
  let texts = null;
  const update = () => {
    texts ??= new Map(trials.map((trial) => [trial, words(trial).toLowerCase()]));
    const query = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const sorted = order.value ? [...trials].sort((a, b) => compare(a, b, true)) : trials;
    list.append(...sorted);
    for (const trial of trials) {
      const hasStatus = status.selectedIndex === 0 || trial.dataset.status.split(" ").includes(status.value);
      trial.hidden = !(hasStatus && query.every((word) => texts.get(trial).includes(word)));
    }
    count.textContent = `${trials.filter((trial) => !trial.hidden).length} of ${trials.length} shown`;
  };
  for (const field of [search, status, order]) field.addEventListener("input", update);
  count.textContent = `${trials.length} of ${trials.length} shown`;
  list.before(element("div", { className: "filter", role: "search" }, element("label", {}, "Search ", search),
    element("label", {}, "Status ", status), element("label", {}, "Order ", order), count));
}

// Dialogs

function show(dialog) {
  dialog.showModal();
  dialog.scrollTop = 0;
}

const dialog = document.getElementById("dialog");
for (const link of all("a.cell")) {
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    const source = document.querySelector(`#${CSS.escape(link.hash.slice(1))} > .inside`);
    event.preventDefault();
    document.getElementById("dialog-title").textContent = link.dataset.title;
    document.getElementById("dialog-values").textContent = link.dataset.values || "No result yet.";
    document.getElementById("dialog-body").replaceChildren(source.cloneNode(true));
    show(dialog);
  });
}

const enlarged = document.getElementById("enlarged");
for (const image of all("figure img")) {
  const button = element("button", { type: "button", className: "enlarge", title: "Enlarge" });
  button.setAttribute("aria-label", `Enlarge: ${image.dataset.title}`);
  image.parentElement.replaceWith(button);
  button.append(image.parentElement);
  button.addEventListener("click", () => {
    document.getElementById("enlarged-title").textContent = image.dataset.title;
    document.getElementById("enlarged-body").replaceChildren(element("img", { src: image.src, alt: image.alt }));
    show(enlarged);
  });
}
for (const box of [dialog, enlarged]) {
  box.querySelector(".close").addEventListener("click", () => box.close());
  box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
}

// Open the details that a link points into, and show them if a search has hidden them.
function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) {
    target.hidden = false;
    target.open = true;
  }
}
addEventListener("hashchange", openTarget);
openTarget();

// Print all details, since nobody can open them on paper.
let opened = [];
addEventListener("beforeprint", () => {
  opened = all("details.more:not([open])");
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => { for (const details of opened) details.open = false; });

// Mark boxes that can scroll to the right, so that a cut-off table does not look complete.
function markCut(box) {
  box.classList.toggle("cut", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
}
const watch = new ResizeObserver((entries) => { for (const entry of entries) markCut(entry.target); });
for (const box of all(".scroll, .picture")) {
  box.addEventListener("scroll", () => markCut(box), { passive: true });
  watch.observe(box);
}

// While a sweep is running

const STALE_MINUTES = 60; // without a newer page for this long, the sweep has ended or was killed
if (document.body.dataset.refresh) {
  const age = () => (Date.now() - Date.parse(document.body.dataset.written)) / 60000;
  const busy = () => document.querySelector("dialog[open]") || all(".filter input").some((field) => field.value) || getSelection().toString();
  const refresh = () => {
    if (age() > STALE_MINUTES) {
      document.querySelector("#running span").textContent = `No newer numbers since ${document.body.dataset.written}: the sweep may have stopped.`;
      return;
    }
    if (busy()) setTimeout(refresh, 5000);
    else location.reload(); // the browser keeps the scroll position
  };
  setTimeout(refresh, Number(document.body.dataset.refresh) * 1000);
}

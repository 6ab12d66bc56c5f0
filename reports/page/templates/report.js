"use strict";
// The page is complete without this script: it adds sorting, and opens a cell's trials in place instead of jumping there.

function sortTable(table, column, head) {
  const descending = head.getAttribute("aria-sort") === "none" ? head.dataset.first === "descending"
    : head.getAttribute("aria-sort") !== "descending";
  for (const other of head.parentElement.children) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
    rows.sort((a, b) => compare(a.cells[column], b.cells[column], descending));
    body.append(...rows);
  }
}

function compare(a, b, descending) {
  const [first, second] = [a, b].map((cell) => cell.dataset.sort ?? cell.textContent.trim());
  // A hole is last in either direction.
  if (first === "" || second === "") return (first === "") - (second === "");
  const numbers = [Number(first), Number(second)];
  const order = numbers.every(Number.isFinite) ? numbers[0] - numbers[1] : first.localeCompare(second, "en", { numeric: true });
  return descending ? -order : order;
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = table.querySelector("tr.heads").cells;
  [...heads].forEach((head, column) => {
    const values = [...table.querySelectorAll("tbody tr:not(.group)")].map((row) => row.cells[column]?.dataset.sort);
    // The most of a number is what one looks for first; names start at A.
    head.dataset.first = values.some((value) => value) ? "descending" : "ascending";
    head.setAttribute("aria-sort", "none");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortTable(table, column, head));
    head.append(button);
  });
}

const dialog = document.getElementById("dialog");
for (const link of document.querySelectorAll("a.cell")) {
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    const source = document.querySelector(`${CSS.escape ? "#" + CSS.escape(link.hash.slice(1)) : link.hash} > .inside`);
    event.preventDefault();
    document.getElementById("dialog-title").textContent = link.dataset.title;
    document.getElementById("dialog-values").textContent = link.dataset.values || "No number yet.";
    document.getElementById("dialog-body").replaceChildren(source.cloneNode(true));
    dialog.showModal();
    dialog.scrollTop = 0;
  });
}
document.getElementById("dialog-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

// A link into closed details must open them, or it would lead nowhere.
function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

for (const head of document.querySelectorAll("th")) head.addEventListener("click", () => {
  const table = head.closest("table"), body = table.tBodies[0], at = head.cellIndex;
  const up = head.getAttribute("aria-sort") === "descending";
  for (const one of table.querySelectorAll("th")) one.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = row => { const cell = row.cells[at], v = cell.dataset.v; return v === undefined ? cell.textContent : Number(v); };
  const rows = [...body.rows].sort((a, b) => { const x = key(a), y = key(b); return x < y ? -1 : x > y ? 1 : 0; });
  body.append(...(up ? rows : rows.reverse()));
});

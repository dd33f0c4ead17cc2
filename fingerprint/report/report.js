"use strict";
// Tables sort by their headings and filter by a word. Without this script every table is whole and in reading order.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent.trim();
  };
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    if (!heading.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.ariaSort === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.ariaSort = down ? "descending" : "ascending";
      const order = new Intl.Collator("en", { numeric: true });
      const sorted = [...rows].sort((a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        const [p, q] = [Number(x), Number(y)];
        return x !== "" && y !== "" && !Number.isNaN(p) && !Number.isNaN(q) ? p - q : order.compare(x, y);
      });
      body.append(...(down ? sorted.reverse() : sorted));
    });
  });
  if (rows.length > 8) {
    const label = document.createElement("label");
    label.className = "filter";
    label.append("Show rows with ");
    const input = document.createElement("input");
    input.type = "search";
    label.append(input);
    table.parentElement.before(label);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }
}
for (const link of document.querySelectorAll('a[href^="#launch-"]')) {
  link.addEventListener("click", () => {
    const place = document.getElementById(link.hash.slice(1));
    for (let at = place; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  });
}

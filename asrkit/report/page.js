"use strict";

// A click on a column's title sorts the table by it; a second one turns the order round.
for (const button of document.querySelectorAll("table.sortable thead button")) {
  button.addEventListener("click", () => {
    const title = button.closest("th");
    const body = title.closest("table").tBodies[0];
    const value = (row) => {
      const cell = row.cells[title.cellIndex];
      return cell.dataset.value ?? cell.textContent;
    };
    const order = (a, b) => {
      const difference = value(a) - value(b);
      if (!Number.isNaN(difference)) return difference;
      return value(a).localeCompare(value(b), undefined, { numeric: true });
    };
    const before = title.getAttribute("aria-sort");
    const numbers = !Number.isNaN(Number(value(body.rows[0]))); // which begin with the largest
    const down = before ? before === "ascending" : numbers;
    const rows = [...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b)));
    for (const other of title.parentNode.cells) other.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  });
}

// One recording at a time.
document.addEventListener("play", (event) => {
  for (const audio of document.querySelectorAll("audio")) {
    if (audio !== event.target) audio.pause();
  }
}, true);

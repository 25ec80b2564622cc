"use strict";
(() => {
  // Moves all charts over time to one window; they share a range.
  for (const button of document.querySelectorAll("[data-begin-ms]")) {
    button.addEventListener("click", () => {
      const begin = Number(button.dataset.beginMs);
      const end = Number(button.dataset.endMs);
      const margin = Math.max((end - begin) * 0.01, 0.5);
      for (const document_ of Bokeh.documents) {
        const range = document_.get_model_by_name("time");
        if (range !== null) range.setv({start: begin - margin, end: end + margin});
      }
      for (const other of document.querySelectorAll("[data-begin-ms]"))
        other.setAttribute("aria-pressed", String(other === button));
    });
  }

  // Charts read their colours from the style sheet when they are drawn, so a change of theme draws them anew.
  const redraw = () => {
    for (const view of Bokeh.index.roots) view.request_repaint?.();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  for (const button of document.querySelectorAll("[data-copy]"))
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    });

  // A link to a record opens the list that holds it.
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const holder = target && target.closest("details");
    if (holder) { holder.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();
})();

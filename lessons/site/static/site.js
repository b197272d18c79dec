// What scrolls sideways can be reached and scrolled with the keyboard, at every width of the window.
const reach = new ResizeObserver((boxes) => {
  for (const { target } of boxes) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
addEventListener("load", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .katex-display")) reach.observe(box);
});

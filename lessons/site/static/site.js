// What scrolls sideways can be reached and scrolled with the keyboard.
addEventListener("load", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .katex-display")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
});

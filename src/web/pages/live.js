// Draws the page again when the server says that something changed. What was unfolded stays so, and nothing moves while
// somebody writes or chooses.
"use strict";
let asked = false;
async function refresh() {
  if (asked || document.hidden || document.activeElement?.closest("main form")) return;
  asked = true;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const main = document.querySelector("main");
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const focus = document.activeElement?.id;
    for (const one of main.querySelectorAll("details[id]")) {
      const other = fresh.querySelector("#" + CSS.escape(one.id));
      if (other) other.open = one.open;
    }
    main.replaceWith(document.adoptNode(fresh));
    if (focus) document.getElementById(focus)?.focus();
  } finally {
    asked = false;
  }
}
new EventSource("/events").onmessage = refresh;
document.addEventListener("visibilitychange", refresh);

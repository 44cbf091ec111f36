// Draws the page again when the server says that something changed. What was unfolded stays so, and nothing moves while
// somebody writes or chooses.
"use strict";
let busy = false, missed = false, heard;
async function refresh() {
  missed = busy;
  if (busy || document.hidden || document.activeElement?.closest("main form")) return;
  busy = true;
  try {
    // Whoever is not let in any more is told so as well.
    const answer = await fetch(location.href);
    const main = document.querySelector("main");
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (!fresh) return answer.status === 404 && location.reload();
    const reached = (where) => [...where.querySelectorAll("a, button, summary, input, select, .scroll")];
    const focus = reached(main).indexOf(document.activeElement);
    for (const one of main.querySelectorAll("details[id]")) {
      const other = fresh.querySelector("#" + CSS.escape(one.id));
      if (other) other.open = one.open;
    }
    const [graph, drawn] = [main, fresh].map((where) => where.querySelector(".scroll"));
    const left = graph?.scrollLeft;
    main.replaceWith(document.adoptNode(fresh));
    if (graph && drawn) drawn.scrollLeft = left;
    reached(fresh)[focus]?.focus({ preventScroll: true });
  } catch {
    // The server is away; the stream asks for it again, and then for the page.
  } finally {
    busy = false;
    if (missed) refresh();
  }
}
// A browser keeps few connections to one server: a page that nobody looks at takes none.
function listen() {
  heard?.close();
  if (document.hidden) return;
  heard = new EventSource("/events");
  // What changed before it heard anything is drawn as well.
  heard.onopen = heard.onmessage = refresh;
  // A browser gives up on a stream that was refused.
  heard.onerror = () => heard.readyState === EventSource.CLOSED && setTimeout(() => { listen(); refresh(); }, 5000);
}
document.addEventListener("visibilitychange", () => { listen(); refresh(); });
listen();

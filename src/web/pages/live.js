// Reloads the page's content when the server reports a change. Unfolded parts stay unfolded, and nothing is reloaded while the
// user fills in a form.
"use strict";
let busy = false, missed = false, source;
async function refresh() {
  missed = busy;
  if (busy || document.hidden || document.activeElement?.closest("main form")) return;
  busy = true;
  try {
    // A closed session gets the sign-in page.
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
    // The server is unavailable; the stream reconnects and then reloads.
  } finally {
    busy = false;
    if (missed) refresh();
  }
}
// Browsers limit connections per server, so a hidden page opens none.
function listen() {
  source?.close();
  if (document.hidden) return;
  source = new EventSource("/events");
  // Reload on open as well: something may have changed before the stream connected.
  source.onopen = source.onmessage = refresh;
  // Browsers do not retry a refused stream.
  source.onerror = () => source.readyState === EventSource.CLOSED && setTimeout(() => { listen(); refresh(); }, 5000);
}
document.addEventListener("visibilitychange", () => { listen(); refresh(); });
listen();

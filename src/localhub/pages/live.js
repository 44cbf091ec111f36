(() => {
  const page = document.getElementById("page");
  if (!page || !page.dataset.repo || !window.EventSource) return;
  let busy = false, again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const next = fresh.getElementById(part.id);
        if (!next || next.innerHTML === part.innerHTML) continue;
        const open = [...part.querySelectorAll("details")].map((d) => d.open);
        part.innerHTML = next.innerHTML;
        part.querySelectorAll("details").forEach((d, i) => { if (i in open) d.open = open[i]; });
      }
    } finally {
      busy = false;
      if (again) { again = false; setTimeout(refresh, 200); }
    }
  };
  new EventSource("/_events?repo=" + page.dataset.repo).onmessage = refresh;
})();

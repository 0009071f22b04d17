// The page works without this file. With it: sign in by a link, keys, live curves, no form sent twice.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const stored = {
    get: (name) => { try { return localStorage.getItem(name); } catch { return null; } },
    set: (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window */ } },
  };

  // Sign in by a link: what stands after # is never sent by a browser; it is taken out of the address and posted.
  const login = one("form.login");
  if (login && location.hash.startsWith("#token=")) {
    login.elements.token.value = decodeURIComponent(location.hash.slice(7));
    history.replaceState(null, "", location.pathname + location.search);
    login.requestSubmit();
  }

  // The place where one is stays in sight in a row that scrolls.
  const here = one("nav a[aria-current]");
  if (here) here.scrollIntoView({ block: "nearest", inline: "nearest" });

  // A form is sent once.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    setTimeout(() => { delete form.dataset.sent; }, 4000);
  });
  addEventListener("pageshow", () => all("form").forEach((form) => { delete form.dataset.sent; }));

  // Keys. An element says which key it answers to (data-key) and, where its own text is not enough, what it does (data-hint).
  const dialog = one("#keys");
  const keyed = () => all("[data-key]").filter((e) => !e.disabled && e.closest("[hidden]") === null);
  const title = (e) => e.dataset.hint || e.getAttribute("aria-label") || (e.labels && e.labels[0] ? e.labels[0].innerText : e.innerText);
  const on = () => stored.get("whet-keys") !== "off";
  const typing = (e) => e.closest("textarea, select, [contenteditable]") !== null
    || (e.tagName === "INPUT" && !["radio", "checkbox", "submit", "button"].includes(e.type));

  const press = (element) => {
    if (element.matches("textarea, select, input:not([type=radio], [type=checkbox])")) element.focus();
    else if (element.matches("summary, button, a, input")) { element.focus(); element.click(); }
    else element.focus();
  };

  const rows = () => all("[data-row]");
  const step = (by) => {
    const list = rows();
    if (!list.length) return;
    const at = list.findIndex((row) => row.contains(document.activeElement));
    const next = list[Math.max(0, Math.min(list.length - 1, at < 0 ? 0 : at + by))];
    (next.matches("a, [tabindex]") ? next : next.querySelector("a, button, [tabindex], summary") || next).focus();
    next.scrollIntoView({ block: "nearest" });
  };

  const help = () => {
    if (!dialog) return;
    if (dialog.open) { dialog.close(); return; }
    const list = dialog.querySelector(".keys");
    const entries = keyed().map((e) => [e.dataset.key, title(e)]);
    if (rows().length) entries.push(["j  k", "Next and previous row"]);
    all("[data-go]").forEach((e) => entries.push([`g ${e.dataset.go}`, `Go to ${e.innerText}`]));
    entries.push(["Ctrl ⏎", "Send the form"], ["?", "This list"]);
    list.replaceChildren(...entries.map(([key, text]) => {
      const row = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
      const cap = document.createElement("kbd");
      cap.textContent = key;
      dt.append(cap);
      dd.textContent = text.replace(/\s+/g, " ").trim();
      row.append(dt, dd);
      return row;
    }));
    dialog.showModal();
  };

  let gone = 0;
  document.addEventListener("keydown", (event) => {
    const at = event.target instanceof Element ? event.target : document.body;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const form = at.closest("form") || one("form[data-main]");
      if (form) { event.preventDefault(); form.requestSubmit(form.querySelector("button.main") || undefined); }
      return;
    }
    if (event.key === "Escape" && typing(at)) { at.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(at) || (dialog && dialog.open && event.key !== "?")) return;
    if (event.key === "?") { event.preventDefault(); help(); return; }
    if (!on()) return;
    if (event.key === "g") { gone = Date.now(); return; }
    if (Date.now() - gone < 1500) {
      gone = 0;
      const place = one(`[data-go="${CSS.escape(event.key)}"]`);
      if (place) { event.preventDefault(); place.click(); }
      return;
    }
    if (event.key === "j" || event.key === "k") { event.preventDefault(); step(event.key === "j" ? 1 : -1); return; }
    const found = keyed().find((e) => e.dataset.key === event.key);
    if (found) { event.preventDefault(); press(found); }
  });

  const box = one("#keys-on");
  if (box) {
    box.checked = on();
    box.addEventListener("change", () => stored.set("whet-keys", box.checked ? "on" : "off"));
  }

  // Live parts: an event stream says that there is something new, and the part is fetched again as the server draws it.
  all("[data-live]").forEach((part) => {
    const state = one(part.dataset.state), source = new EventSource(part.dataset.live);
    const say = (text, is) => { if (state) { state.textContent = text; state.classList.toggle("on", is); } };
    let waiting = null;
    const refresh = async () => {
      waiting = null;
      const answer = await fetch(part.dataset.part, { headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      part.replaceChildren(...document.adoptNode(fresh.body).childNodes);
    };
    const soon = () => { if (waiting === null) waiting = setTimeout(refresh, 400); };
    source.onopen = () => say("live", true);
    source.onerror = () => say("connection lost; trying again", false);
    ["candidate", "validated", "step", "final", "message"].forEach((kind) => source.addEventListener(kind, soon));
    source.addEventListener("end", () => { source.close(); say("finished", false); soon(); });
    addEventListener("pagehide", () => source.close());
  });
})();

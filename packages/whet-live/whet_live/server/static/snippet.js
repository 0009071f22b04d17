// Feedback out of a page of the app; docs/feedback.md says what it does and what it never does. The server sends this file
// without the lines of comment and without indentation, so every line is whole by itself. It holds no cookie and no storage.
(() => {
  const own = document.currentScript, key = own.dataset.key, url = new URL("snippet", own.src);
  const [group, good, bad, comment, send, thanks] =
    (own.dataset.labels || "Feedback|Good answer|Bad answer|Comment|Send|Thank you").split("|");
  const answers = new Map(), all = (act) => answers.forEach(act);
  let queue = [], on, timer, listening, seeing, watching;

  // Rows wait here and keep their ids, so that a row that is sent twice is stored once.
  const add = (a, kind, value, text) => queue.push({
    id: [...crypto.getRandomValues(new Uint8Array(16))].map((n) => n.toString(16).padStart(2, 0)).join(""),
    target: a.id, kind, value, text,
  });
  const soon = () => { clearTimeout(timer); timer = setTimeout(flush, 3000); };
  const flush = () => {
    all((a) => {
      if (a.thumb >= 0 && !a.voted) {
        a.voted = 1;
        add(a, "thumb", a.thumb);
        a.status.textContent = thanks;
      }
      if (a.copy > a.copied) add(a, "copy", a.copied = a.copy);
    });
    const feedback = queue.splice(0, 50), back = () => { queue = feedback.concat(queue).slice(0, 99); };
    if (!feedback[0]) return;
    const body = JSON.stringify({ key, feedback });
    if ("keepalive" in Request.prototype) {
      fetch(url, { method: "POST", body, keepalive: true, credentials: "omit" })
        .then((got) => (got.status == 429 || got.status > 499) && back(), back);
    } else navigator.sendBeacon(url, body) || back();
  };

  // Seconds count while the answer is in view and the page is in front.
  const count = (a) => {
    const now = performance.now();
    a.ms += a.from ? now - a.from : 0;
    a.from = a.view && !document.hidden ? now : 0;
  };
  const settle = (a) => {
    count(a);
    if (a.ms > 999) add(a, "dwell", Math.round(a.ms / 100) / 10);
    a.ms = 0;
  };
  const leave = () => { all(document.hidden ? settle : count); if (document.hidden) flush(); };
  const look = (seen) => seen.forEach((s) => {
    const a = answers.get(s.target);
    if (!a) return;
    a.view = s.intersectionRatio >= .5 || s.intersectionRect.height > innerHeight / 2;
    count(a);
  });
  const copy = () => all((a, e) => {
    const s = getSelection(), r = s.rangeCount && s.getRangeAt(0).cloneRange();
    if (!r || !r.intersectsNode(e)) return;
    if (!e.contains(r.startContainer)) r.setStart(e, 0);
    if (!e.contains(r.endContainer)) r.setEnd(e, e.childNodes.length);
    a.copy = Math.max(a.copy, Math.round(100 * `${r}`.length / e.textContent.length) / 100);
  });

  // Texts go in as text, styles through the style object, which a content security policy allows.
  const make = (tag, style, text, named, space = "http://www.w3.org/1999/xhtml") => {
    const e = document.createElementNS(space, tag);
    e.style.cssText = "font:inherit;color:inherit;background:none;" + style;
    e.textContent = text;
    for (const name in named) e.setAttribute(name, named[name]);
    return e;
  };
  const button = (text, label, act) => {
    const e = make("button", "border:1px solid;border-radius:6px;min-width:2.4em;min-height:2.2em;margin:4px;cursor:pointer",
      text, { type: "button", "aria-label": label, title: label });
    e.onclick = act;
    return e;
  };
  const thumb = (label, turn) => {
    const e = button("", label), space = "http://www.w3.org/2000/svg", svg = make("svg", "vertical-align:middle;" + turn, "",
      { viewBox: "0 0 24 24", width: 20, fill: "none", stroke: "currentColor", "stroke-width": 2, "aria-hidden": true }, space);
    svg.append(make("path", "", "", { d: "M3 11h4v9H3zM7 11l4-8c2 0 3 1 3 3l-1 4h6q2 0 2 2l-2 6q0 2-2 2H7" }, space));
    e.append(svg);
    return e;
  };
  const draw = (a) => {
    const thumbs = [thumb(bad, "transform:rotate(180deg)"), thumb(good, "")], mark = () => thumbs.forEach((e, n) => {
      e.setAttribute("aria-pressed", a.thumb == n);
      e.style.boxShadow = a.thumb == n ? "inset 0 0 0 2px" : "";
    });
    thumbs.forEach((e, n) => {
      e.onclick = () => { if (!a.voted) { a.thumb = a.thumb == n ? -1 : n; mark(); soon(); } };
    });
    mark();
    const text = make("textarea", "display:block;box-sizing:border-box;width:100%;border:1px solid", "", { "aria-label": comment, dir: "auto", maxlength: 2000 });
    const box = make("div"), open = button(comment, comment, () => {
      box.parentNode ? box.remove() : a.bar.append(box);
      open.setAttribute("aria-expanded", !!box.parentNode);
      (box.parentNode ? text : open).focus();
    });
    open.setAttribute("aria-expanded", false);
    box.append(text, button(send, send, () => {
      if (!text.value.trim()) return;
      add(a, "comment", null, text.value);
      text.value = "";
      a.status.textContent = thanks;
      open.click();
      soon();
    }));
    a.status = make("span", "", "", { role: "status" });
    a.bar = make("div", "", "", { role: "group", "aria-label": group });
    a.bar.append(thumbs[1], thumbs[0], open, a.status);
  };
  const drop = (a, e) => { settle(a); flush(); a.bar.remove(); seeing.unobserve(e); answers.delete(e); };
  const scan = () => {
    all((a, e) => { if (!e.isConnected || e.dataset.whet != a.id) drop(a, e); });
    document.querySelectorAll("[data-whet]").forEach((e) => {
      const id = e.dataset.whet;
      if (!id || answers.has(e)) return;
      const a = { id, ms: 0, copy: 0, copied: 0, thumb: -1 };
      answers.set(e, a);
      draw(a);
      a.bar.dir = getComputedStyle(e).direction;
      e.after(a.bar);
      seeing.observe(e);
    });
  };

  // Nothing above runs before this says so; without consent, what waits is thrown away.
  const consent = (given = true) => {
    if (given == !!on) return;
    on = given;
    if (!on) {
      clearTimeout(timer);
      [listening.abort(), seeing.disconnect(), watching.disconnect()];
      all((a) => a.bar.remove());
      answers.clear();
      queue = [];
      return;
    }
    listening = new AbortController();
    const { signal } = listening;
    seeing = new IntersectionObserver(look, { threshold: [...Array(21).keys()].map((n) => n / 20) });
    watching = new MutationObserver(scan);
    watching.observe(document, { subtree: true, childList: true, attributeFilter: ["data-whet"] });
    document.addEventListener("copy", copy, { signal });
    document.addEventListener("visibilitychange", leave, { signal });
    addEventListener("pagehide", () => { all(settle); flush(); }, { signal });
    scan();
  };
  window.whet = { consent };
  if ("consent" in own.dataset) consent();
})();

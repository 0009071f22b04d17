// What the report looks like in the present window: sizes, text without enough contrast, text off the side.
// WCAG 2.2, 1.4.3: contrast of at least 4.5, or 3 for large text (24 px, or 18.66 px and bold).
(() => {
  document.querySelectorAll("details").forEach((d) => { d.open = d.closest(".candidates") === null; });
  const first = document.querySelector(".candidate");
  if (first) first.open = true;

  const channels = (text) => {
    const found = text.match(/[\d.]+/g).map(Number);
    return found.length < 4 ? [...found, 1] : found;
  };
  const over = (top, low) => [0, 1, 2].map((i) => top[i] * top[3] + low[i] * (1 - top[3])).concat(1);
  const luminance = (color) => {
    const [r, g, b] = color.slice(0, 3).map((v) => {
      const unit = v / 255;
      return unit <= 0.04045 ? unit / 12.92 : ((unit + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.unshift(channels(getComputedStyle(e).backgroundColor));
    return layers.reduce((low, top) => over(top, low), channels(getComputedStyle(document.body).backgroundColor));
  };

  const weak = [], outside = [], seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(e) || !e.checkVisibility()) continue;
    if (e.closest("title, desc, .skip")) continue;
    seen.add(e);
    const style = getComputedStyle(e), size = parseFloat(style.fontSize), back = ground(e);
    const fore = over(channels(e.closest("svg") ? style.fill : style.color), back);
    const [high, low] = [luminance(fore), luminance(back)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 600);
    const name = `${e.tagName}.${e.getAttribute("class")}`;
    if (ratio < (large ? 3 : 4.5)) weak.push(`${name} ${ratio.toFixed(2)}`);
    const box = e.getBoundingClientRect();
    const off = box.right > innerWidth + 1 || box.left < -1;
    if (off && !e.closest(".scroll, .when")) outside.push(`${name} ${box.left} ${box.right}`);
  }
  const shown = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
  return {
    scroll: document.documentElement.scrollWidth,
    inner: innerWidth,
    tested: seen.size,
    weak: weak.slice(0, 10),
    outside: outside.slice(0, 10),
    hacked: window.hacked ?? null,
    title: document.title,
    pictures: shown("figure svg.wide, figure svg.narrow").map((e) => e.getAttribute("class")),
    small: shown("figure svg[role=img] text").map((e) => 13 * e.getScreenCTM().a).filter((size) => size < 10),
  };
})();

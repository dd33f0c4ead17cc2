// What an accessibility checker would complain about, as a list of sentences: landmarks, names, headings, contrast.
(() => {
  const found = [];
  const one = (selector) => document.querySelectorAll(selector).length;
  if (document.documentElement.lang !== "en") found.push("the page has no language");
  if (!document.title) found.push("the page has no title");
  for (const landmark of ["header", "main", "footer"]) if (one(landmark) !== 1) found.push(`${one(landmark)} ${landmark}`);
  if (one("h1") !== 1) found.push(`${one("h1")} first-level headings`);
  let level = 1;
  for (const heading of document.querySelectorAll("h1,h2,h3,h4")) {
    const now = Number(heading.tagName[1]);
    if (now > level + 1) found.push(`heading level ${now} after ${level}: ${heading.textContent}`);
    level = now;
  }
  const ids = new Map();
  for (const element of document.querySelectorAll("[id]")) ids.set(element.id, (ids.get(element.id) ?? 0) + 1);
  for (const [id, count] of ids) if (count > 1) found.push(`id ${id} is used ${count} times`);
  for (const link of document.querySelectorAll('a[href^="#"]'))
    if (!ids.has(link.hash.slice(1))) found.push(`link to nowhere: ${link.hash}`);
  for (const svg of document.querySelectorAll("svg")) {
    const named = (svg.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean);
    if (svg.getAttribute("role") !== "img" || named.length !== 2) found.push("a picture without a name");
    for (const id of named) if (!document.getElementById(id)?.textContent.trim()) found.push(`picture: ${id} is empty`);
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption) found.push("a table without a caption");
    for (const th of table.querySelectorAll("th")) if (!th.scope) found.push(`a heading without scope: ${th.textContent}`);
  }
  for (const field of document.querySelectorAll("input"))
    if (!field.labels.length) found.push("a field without a label");
  for (const box of document.querySelectorAll(".wide"))
    if (box.tabIndex < 0 || !box.getAttribute("aria-label")) found.push("a scrolling box that a keyboard cannot reach");

  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a),
    g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a),
    a: 1,
  });
  const background = (element) => {
    let color = { r: 0, g: 0, b: 0, a: 0 };
    const stack = [];
    for (let at = element; at; at = at.parentElement) stack.push(parse(getComputedStyle(at).backgroundColor));
    color = { r: 255, g: 255, b: 255, a: 1 };
    for (const layer of stack.reverse()) color = over(layer, color);
    return color;
  };
  const light = ({ r, g, b }) => {
    const part = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  for (const details of document.querySelectorAll("details")) details.open = true;
  const seen = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim();
    const element = walk.currentNode.parentElement;
    if (!text || ["SCRIPT", "STYLE", "TITLE", "DESC", "title", "desc"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const inPicture = element.closest("svg");
    const ink = parse(inPicture ? style.fill : style.color);
    let paper = background(inPicture ? inPicture.parentElement : element);
    if (inPicture) {
      paper = parse(getComputedStyle(inPicture.querySelector(".surface")).fill);
      const on = [...element.classList].find((name) => name.startsWith("on-"));
      if (on) paper = parse(getComputedStyle(inPicture.querySelector(`.part.${on.slice(3)}`)).fill);
    }
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = contrast(over(ink, paper), paper);
    const key = `${style.color} ${style.fill} ${element.className} ${large}`;
    if (ratio < (large ? 3 : 4.5) && !seen.has(key)) {
      seen.add(key);
      found.push(`contrast ${ratio.toFixed(2)} of “${text.slice(0, 40)}” (${element.tagName} ${element.getAttribute("class")})`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} wide in ${innerWidth}`);
  return found;
})()

"use strict";
const svg = document.getElementById("picture"), about = document.getElementById("about");
const length = Math.max(1, Number(svg.dataset.length)), left = Number(svg.dataset.left), width = Number(svg.dataset.width), right = 14;
const boxes = [...svg.querySelectorAll(".box")], edges = [...svg.querySelectorAll(".edge")];
const bands = [...svg.querySelectorAll(".band")];
const axis = svg.querySelector(".axis"), bottom = svg.viewBox.baseVal.height;
const number = (one, name) => Number(one.dataset[name]);
let from = 0, to = length;
const text = ns => {
  if (svg.dataset.timed === "no") return String(Math.round(ns));
  const [unit, scale] = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]].find(([, scale]) => ns >= scale) || ["ns", 1];
  return String(Number((ns / scale).toPrecision(6))) + unit;
};
const x = ns => left + (ns - from) / (to - from) * (width - left - right);
const limit = at => Math.min(Math.max(at, left - 4000), width + 4000);
const shape = (name, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};
const drawAxis = () => {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, (to - from) / 10)));
  const step = [1, 2, 5, 10].map(n => n * power).find(one => to - from <= one * 10);
  axis.replaceChildren();
  for (let ns = Math.ceil(from / step) * step; ns <= to; ns += step) {
    const label = shape("text", {x: x(ns), y: 14});
    label.textContent = text(ns);
    axis.append(shape("line", {x1: x(ns), x2: x(ns), y1: 20, y2: bottom}), label);
  }
};
const place = () => {
  svg.parentElement.classList.toggle("moved", from > 0 || to < length);
  drawAxis();
  for (const box of [...boxes, ...bands]) {
    const inner = box.querySelector("svg"), begin = x(number(box, "s")), end = Math.max(begin + 4, x(number(box, "e")));
    const a = Math.max(begin, left - 3), b = Math.min(end, width + 3);
    box.style.display = b > a && end > left ? "" : "none";
    if (b > a) { inner.setAttribute("x", a.toFixed(1)); inner.setAttribute("width", (b - a).toFixed(1)); }
    box.classList.toggle("thin", b - a < 22);
  }
  for (const edge of edges) {
    const x1 = limit(x(number(edge, "s"))), x2 = limit(x(number(edge, "e"))), y1 = edge.dataset.y1, y2 = edge.dataset.y2;
    const y = (Number(y1) + Number(y2)) / 2;
    edge.style.display = Math.max(x1, x2) < left || Math.min(x1, x2) > width ? "none" : "";
    edge.setAttribute("d", `M${x1} ${y1}C${x1} ${y} ${x2} ${y} ${x2} ${y2}`);
  }
};
const move = (begin, long) => {
  long = Math.min(length, Math.max(length / 1e5, long));
  from = Math.min(Math.max(0, begin), length - long); to = from + long;
  place();
};
const zoom = (factor, centre = (from + to) / 2) => move(centre - (centre - from) * factor, (to - from) * factor);
const at = event => {
  const place = svg.getBoundingClientRect(), here = (event.clientX - place.left) / place.width * width;
  return from + (here - left) / (width - left - right) * (to - from);
};
document.getElementById("in").onclick = () => zoom(.5);
document.getElementById("out").onclick = () => zoom(2);
document.getElementById("all").onclick = () => move(0, length);
svg.addEventListener("wheel", event => {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : .8, at(event));
}, {passive: false});
let held = null;
svg.addEventListener("pointerdown", event => { held = at(event); });
addEventListener("pointerup", () => { held = null; });
svg.addEventListener("pointermove", event => { if (held !== null && event.buttons) move(from + held - at(event), to - from); });
const show = box => {
  for (const one of svg.querySelectorAll(".near")) one.classList.remove("near");
  const [first, ...rest] = box.querySelector("title").textContent.split("\n"), bold = document.createElement("b");
  const id = box.id.slice(1), names = [];
  bold.textContent = first;
  for (const edge of edges) {
    const other = edge.dataset.from === id ? edge.dataset.to : edge.dataset.to === id ? edge.dataset.from : null;
    if (other === null) continue;
    const there = document.getElementById("b" + other);
    there.classList.add("near");
    names.push((edge.dataset.from === id ? "before " : "after ") + there.querySelector("title").textContent.split("\n").slice(0, 2).join(" in ") +
      " (" + edge.querySelector("title").textContent + ")");
  }
  about.replaceChildren(bold, "\n" + [rest.join(" \u00b7 "), ...names.slice(0, 8)].join("\n"));
};
for (const box of boxes) {
  box.addEventListener("pointerenter", () => show(box));
  box.addEventListener("focus", () => show(box));
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", box.querySelector("title").textContent);
  box.tabIndex = -1;
}
if (boxes.length) boxes[0].tabIndex = 0;
const middle = box => (number(box, "s") + number(box, "e")) / 2;
const go = box => {
  if (!box) return;
  for (const one of boxes) one.tabIndex = -1;
  box.tabIndex = 0;
  if (number(box, "e") < from || number(box, "s") > to) move(middle(box) - (to - from) / 2, to - from);
  box.focus({preventScroll: true});
};
const nearest = (box, lane) => {
  const there = boxes.filter(one => number(one, "lane") === lane);
  return there.reduce((best, one) => !best || Math.abs(middle(one) - middle(box)) < Math.abs(middle(best) - middle(box)) ? one : best, null);
};
svg.addEventListener("keydown", event => {
  const box = document.activeElement.closest(".box"), i = boxes.indexOf(box);
  const keys = {"+": () => zoom(.5, box ? middle(box) : undefined), "-": () => zoom(2), "0": () => move(0, length),
    ArrowRight: () => go(boxes[i + 1]), ArrowLeft: () => go(boxes[i - 1]),
    ArrowDown: () => go(nearest(box, number(box, "lane") + 1)), ArrowUp: () => go(nearest(box, number(box, "lane") - 1)),
    Home: () => go(boxes[0]), End: () => go(boxes[boxes.length - 1])};
  if (!keys[event.key] || !box) return;
  event.preventDefault();
  keys[event.key]();
});

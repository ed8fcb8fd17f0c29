"use strict";
const units = ["B", "KiB", "MiB", "GiB", "TiB"];
const size = bytes => { let i = 0; while (bytes >= 1024 && i < 4) { bytes /= 1024; i++; } return `${+bytes.toFixed(1)} ${units[i]}`; };
const ago = ns => ns >= 1e9 ? `${(ns / 1e9).toFixed(1)} s` : `${Math.round(ns / 1e6)} ms`;
for (const section of document.querySelectorAll("section.gpu")) {
  const data = JSON.parse(section.querySelector("script").textContent), about = section.querySelector(".about");
  const show = part => {
    const at = part * data.length_ns;
    let i = 0;
    while (i + 1 < data.moments.length && data.moments[i + 1][0] <= at) i++;
    const [, ...columns] = data.moments[i];
    const lines = [`${ago(data.length_ns - at)} before the end: ${size(columns[0].reduce((a, b) => a + b, 0))} of ${size(data.capacity_bytes)} held`];
    data.names.forEach((name, job) => {
      const [held, away, wanted] = columns.map(column => column[job]);
      if (held || away || wanted) lines.push(`${name}: ${size(held)} on the gpu` + (away ? `, ${size(away)} on the host` : "") + (wanted ? `, waits for ${size(wanted)}` : ""));
    });
    about.textContent = lines.join("\n");
    for (const line of section.querySelectorAll(".here"))
      for (const end of ["x1", "x2"]) line.setAttribute(end, data.left + part * (data.right - data.left));
  };
  for (const chart of section.querySelectorAll(".chart")) chart.addEventListener("pointermove", event => {
    const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * data.width;
    show(Math.min(1, Math.max(0, (x - data.left) / (data.right - data.left))));
  });
}

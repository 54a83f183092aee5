// All ranks over the whole run: a cell's colour mixes the shares of computing and of exposed communication.

const heat = DATA.overview && { ...DATA.overview, compute: unpack(DATA.overview.compute), exposed: unpack(DATA.overview.exposed) };

function unpack(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

const parseColour = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

function drawHeat() {
  const rows = heat.labels.length, bins = heat.edges_ns.length - 1, canvas = byId("heat");
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  const idle = dark ? [52, 54, 58] : [236, 236, 236];
  const [computing, exposed] = ["compute_ns", "exposed_comm_ns"].map((key) => parseColour(DATA.shares.find((each) => each.key === key).colour));
  canvas.width = bins;
  canvas.height = rows;
  const image = new ImageData(bins, rows);
  for (let cell = 0; cell < rows * bins; cell++) {
    const a = heat.compute[cell] / 255, b = heat.exposed[cell] / 255, rest = Math.max(1 - a - b, 0);
    for (let i = 0; i < 3; i++) image.data[4 * cell + i] = a * computing[i] + b * exposed[i] + rest * idle[i];
    image.data[4 * cell + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.style.height = `${Math.min(Math.max(rows * 14, 40), 320)}px`;
  const swatches = [computing, exposed, idle].map((parts) => `rgb(${parts})`);
  const words = ["computing", "exposed communication", "idle"];
  const between = legendEntry(`linear-gradient(90deg, ${swatches.join()})`, "between: parts of the cell's time");
  byId("heat-legend").replaceChildren(...words.map((word, at) => legendEntry(swatches[at], word)), between);
}

// Every rank's name where there is room, otherwise those of the first and the last row; on a phone without the word.
function nameRows() {
  const { labels } = heat, names = labels.length <= 22 ? labels : [labels[0], labels[labels.length - 1]];
  byId("heat-ranks").append(...names.map((name) => element("span", innerWidth < 600 ? name.replace("ranks ", "") : name)));
}

function heatCell(event) {
  const box = byId("heat").getBoundingClientRect(), bins = heat.edges_ns.length - 1;
  const bin = Math.min(Math.floor((event.clientX - box.left) / box.width * bins), bins - 1);
  const row = Math.min(Math.floor((event.clientY - box.top) / box.height * heat.labels.length), heat.labels.length - 1);
  return bin < 0 || row < 0 ? null : { bin, row, cell: row * bins + bin };
}

function showHeatNote(event) {
  const at = heatCell(event);
  if (!at) return;
  const percent = (level) => `${Math.round(level / 2.55)}%`;
  byId("heat-note").textContent = `${heat.labels[at.row]}, ${formatTime(heat.edges_ns[at.bin])} to ${formatTime(heat.edges_ns[at.bin + 1])}: `
    + `${percent(heat.compute[at.cell])} computing, ${percent(heat.exposed[at.cell])} exposed communication`;
}

if (heat) {
  byId("overview").hidden = false;
  byId("heat").addEventListener("pointermove", showHeatNote);
  byId("heat").addEventListener("click", (event) => {
    const at = heatCell(event);
    if (at) show(heat.edges_ns[Math.max(at.bin - 2, 0)], heat.edges_ns[Math.min(at.bin + 3, heat.edges_ns.length - 1)]);
  });
  window.addEventListener("resize", drawHeat);
  nameRows();
  drawHeat();
}

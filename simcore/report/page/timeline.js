// The interactive timeline. Slices of a track are disjoint and ascending, so a pixel's slices are found by bisection
// and their share of it by prefix sums: drawing costs as much for a million slices as for a thousand.

const ROW = 18, RULER = 30, MOST_HEIGHT = 640;
const canvas = byId("canvas"), tip = byId("tip"), pen = canvas.getContext("2d");
const view = { start: DATA.start_ns, end: DATA.end_ns, top: 0 };
const shown = { width: 0, gutter: 0, height: 0, matching: null, matches: [], current: -1, hover: null, selected: null };
let tracks = [], partner = null;  // partner: the slice at the other end of a slice's message, plus one; 0 = none

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function load() {
  const buffer = await inflate(byId("columns").textContent);
  const count = DATA.num_slices;
  const start = new Float64Array(buffer, 0, count), end = new Float64Array(buffer, 8 * count, count);
  const kind = new Uint32Array(buffer, 16 * count, count);
  const messages = new Uint32Array(buffer, 20 * count, 2 * DATA.num_messages);
  partner = new Uint32Array(messages.length ? count : 0);
  for (let i = 0; i < messages.length; i += 2) {
    partner[messages[i]] = messages[i + 1] + 1;
    partner[messages[i + 1]] = messages[i] + 1;
  }
  let at = 0, y = 0;
  tracks = DATA.tracks.map((track) => {
    if (track.heading) y += ROW;
    const range = [at, at + track.count];
    at += track.count;
    const made = { ...track, y, first: range[0], start: start.subarray(...range), end: end.subarray(...range), kind: kind.subarray(...range) };
    made.before = prefixSums(made);
    y += ROW + (track.last ? 8 : 0);
    return made;
  });
  shown.content = y;
  resize();
  document.documentElement.dataset.ready = "yes";
}

function prefixSums({ start, end }) {
  const sums = new Float64Array(start.length + 1);
  for (let i = 0; i < start.length; i++) sums[i + 1] = sums[i] + end[i] - start[i];
  return sums;
}

// The first index of an ascending array whose value is at least `value`.
function bisect(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

const toX = (time) => shown.gutter + (time - view.start) / (view.end - view.start) * (shown.width - shown.gutter);
const toTime = (x) => view.start + (x - shown.gutter) / (shown.width - shown.gutter) * (view.end - view.start);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function resize() {
  const ratio = window.devicePixelRatio || 1;
  shown.width = canvas.clientWidth;
  shown.gutter = Math.round(Math.min(Math.max(0.24 * shown.width, 84), 170));
  document.documentElement.style.setProperty("--gutter", `${shown.gutter}px`);
  shown.height = Math.min(RULER + shown.content + 8, MOST_HEIGHT);
  canvas.style.touchAction = shown.content + 8 > shown.height - RULER ? "none" : "pan-y";
  canvas.style.height = `${shown.height}px`;
  canvas.width = Math.round(shown.width * ratio);
  canvas.height = Math.round(shown.height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  redraw();
}

// The pointer no longer stands on what it stood on.
function forget() {
  shown.hover = null;
  tip.hidden = true;
}

let pending = false;
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
}

function draw() {
  const began = performance.now();
  const ink = style("--ink"), soft = style("--soft"), paper = style("--paper"), line = style("--line");
  pen.fillStyle = paper;
  pen.fillRect(0, 0, shown.width, shown.height);
  pen.textBaseline = "middle";
  pen.save();
  pen.beginPath();
  pen.rect(0, RULER, shown.width, shown.height - RULER);
  pen.clip();
  for (const track of tracks) {
    const y = RULER + track.y - view.top;
    if (y < RULER - ROW || y > shown.height + ROW) continue;
    if (track.heading) label(track.heading, y - ROW, ink, "bold 12px system-ui, sans-serif");
    drawTrack(track, y);
    label(track.title, y, soft, "11.5px system-ui, sans-serif");
  }
  pen.beginPath();
  pen.rect(shown.gutter, RULER, shown.width - shown.gutter, shown.height - RULER);
  pen.clip();
  for (const place of pointedAt()) drawArrow(place, ink);
  pen.restore();
  drawRuler(ink, soft, line, paper);
  drawScrollbar(soft);
  canvas.dataset.drawMs = (performance.now() - began).toFixed(1);
}

// Slices that are hovered, selected or found.
function pointedAt() {
  return [shown.hover, shown.selected, shown.matches[shown.current]].filter(Boolean);
}

// The slice at the other end of a message, null where there is none.
function otherEnd({ track, index }) {
  const slice = (partner[track.first + index] || 0) - 1;
  if (slice < 0) return null;
  const found = tracks.find((each) => slice >= each.first && slice < each.first + each.count);
  return { track: found, index: slice - found.first };
}

// From the beginning of a send to the end of its receive.
function drawArrow(place, ink) {
  const other = otherEnd(place);
  if (!other) return;
  const sends = DATA.kinds[place.track.kind[place.index]].kind === "send", [from, to] = sends ? [place, other] : [other, place];
  const [x, toward] = [toX(from.track.start[from.index]), toX(to.track.end[to.index])];
  const [y, below] = [from, to].map(({ track }) => RULER + track.y - view.top + ROW / 2);
  const bend = Math.max(Math.abs(toward - x) / 2, 30);
  pen.strokeStyle = pen.fillStyle = ink;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.bezierCurveTo(x + bend, y, toward - bend, below, toward - 6, below);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(toward, below);
  pen.lineTo(toward - 8, below - 4);
  pen.lineTo(toward - 8, below + 4);
  pen.fill();
}

function drawScrollbar(colour) {
  const room = shown.height - RULER, whole = shown.content + 8;
  if (whole <= room + 1) return;
  pen.globalAlpha = 0.5;
  pen.fillStyle = colour;
  pen.fillRect(shown.width - 6, RULER + view.top / whole * room, 5, room / whole * room);
  pen.globalAlpha = 1;
}

function label(text, y, colour, font) {
  pen.fillStyle = style("--paper");
  pen.fillRect(0, y, shown.gutter - 2, ROW);
  pen.fillStyle = colour;
  pen.font = font;
  pen.fillText(fitted(text), 6, y + ROW / 2);
}

// As much of a label as the gutter holds.
function fitted(text) {
  let shorter = text;
  while (shorter.length > 4 && pen.measureText(shorter).width > shown.gutter - 12) shorter = shorter.slice(0, -2);
  return shorter === text ? text : `${shorter.slice(0, -1)}\u2026`;
}

function drawTrack(track, y) {
  const { start, end, kind } = track;
  const perPixel = (view.end - view.start) / (shown.width - shown.gutter);
  let index = Math.max(bisect(start, view.start) - 1, 0);
  while (index < start.length && start[index] < view.end) {
    if (end[index] - start[index] >= perPixel) {
      drawSlice(track, index, y);
      index += 1;
      continue;
    }
    const pixel = Math.floor((start[index] - view.start) / perPixel), until = view.start + (pixel + 1) * perPixel;
    const next = Math.max(bisect(start, until), index + 1);
    // a wide slice that begins in this pixel is drawn on its own
    const last = end[next - 1] - start[next - 1] >= perPixel ? next - 1 : next;
    const share = Math.min((track.before[last] - track.before[index]) / perPixel, 1);
    fill(shown.gutter + pixel, y, 1, DATA.kinds[kind[index]].colour, Math.max(share, 0.3) * emphasis(track, index, last));
    index = last;
  }
}

// 1, or less where a search is on and none of the slices matches.
function emphasis(track, from, to) {
  if (!shown.matching) return 1;
  for (let i = from; i < Math.min(to, from + 64); i++) if (shown.matching[track.kind[i]]) return 1;
  return 0.15;
}

function fill(x, y, width, colour, alpha) {
  pen.globalAlpha = alpha;
  pen.fillStyle = colour;
  pen.fillRect(x, y + 1, width, ROW - 3);
  pen.globalAlpha = 1;
}

function drawSlice(track, index, y) {
  const left = Math.max(toX(track.start[index]), shown.gutter), right = Math.min(toX(track.end[index]), shown.width);
  const kind = DATA.kinds[track.kind[index]], { colour } = kind;
  if (right <= left) return;
  fill(left, y, Math.max(right - left - (right - left > 3 ? 0.7 : 0), 0.7), colour, emphasis(track, index, index + 1));
  const text = kind.layer || kind.name;
  if (right - left > 24) {
    pen.font = "11px system-ui, sans-serif";
    if (pen.measureText(text).width < right - left - 6) {
      pen.fillStyle = DATA.inks[colour];
      pen.fillText(text, left + 4, y + ROW / 2 - 0.5);
    }
  }
  const same = (place) => place && place.track === track && place.index === index;
  if (pointedAt().some(same)) {
    pen.strokeStyle = style("--ink");
    pen.lineWidth = same(shown.hover) ? 1 : 2;
    pen.strokeRect(left + 0.5, y + 1, Math.max(right - left - 1, 1), ROW - 3);
  }
}

function drawRuler(ink, soft, line, paper) {
  pen.fillStyle = paper;
  pen.fillRect(0, 0, shown.width, RULER);
  pen.font = "11px system-ui, sans-serif";
  const span = view.end - view.start, rough = span / Math.max((shown.width - shown.gutter) / 110, 1);
  const power = 10 ** Math.floor(Math.log10(rough)), step = Math.max([1, 2, 5, 10].find((each) => each * power >= rough) * power, 1);
  pen.fillStyle = soft;
  pen.strokeStyle = line;
  pen.lineWidth = 1;
  for (let time = Math.ceil(view.start / step) * step; time <= view.end; time += step) {
    const x = Math.round(toX(time)) + 0.5, tick = formatTick(time, step);
    if (x + 3 + pen.measureText(tick).width < shown.width) pen.fillText(tick, x + 3, 8);
    stroke(x, 0, RULER);
  }
  pen.strokeStyle = pen.fillStyle = ink;
  let free = -Infinity;
  pen.setLineDash([4, 3]);
  REPORT.iterations.forEach(({ index, start_ns }) => {
    const x = Math.round(toX(start_ns)) + 0.5;
    if (x < shown.gutter - 1 || x > shown.width) return;
    stroke(x, RULER, shown.height);
    if (x > free) { pen.fillText(`iteration ${index}`, x + 3, 22); free = x + 72; }
  });
  pen.setLineDash([]);
}

// A time on the ruler, with the digits that tell neighbours apart.
function formatTick(time, step) {
  const [factor, unit] = DATA.units.times.find(([each]) => Math.max(time, step) >= each) || DATA.units.times.at(-1);
  return `${(time / factor).toFixed(Math.max(0, Math.ceil(Math.log10(factor / step) - 1e-9)))} ${unit}`;
}

function stroke(x, from, to) {
  pen.beginPath();
  pen.moveTo(x, from);
  pen.lineTo(x, to);
  pen.stroke();
}

function show(start, end) {
  const least = 10, most = DATA.end_ns - DATA.start_ns;
  const span = Math.min(Math.max(end - start, Math.min(least, most)), most);
  const middle = (start + end) / 2;
  view.start = Math.min(Math.max(middle - span / 2, DATA.start_ns), DATA.end_ns - span);
  view.end = view.start + span;
  canvas.dataset.start = view.start;
  canvas.dataset.end = view.end;
  forget();
  redraw();
}

function zoom(factor, time = (view.start + view.end) / 2) {
  show(time - (time - view.start) * factor, time + (view.end - time) * factor);
}

function scrollBy(pixels) {
  const most = Math.max(shown.content + RULER + 8 - shown.height, 0), before = view.top;
  view.top = Math.min(Math.max(view.top + pixels, 0), most);
  forget();
  redraw();
  return view.top !== before;
}

const pan = (share) => { const by = share * (view.end - view.start); show(view.start + by, view.end + by); };
const fit = () => show(DATA.start_ns, DATA.end_ns);

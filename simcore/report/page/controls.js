// Pointer, keyboard and search of the timeline.

function placeAt(x, y) {
  const row = y - RULER + view.top, time = toTime(x);
  const track = x > shown.gutter && y > RULER && tracks.find((each) => row >= each.y && row < each.y + ROW);
  if (!track) return null;
  const near = (view.end - view.start) / (shown.width - shown.gutter);
  let index = bisect(track.start, time);
  if (index === track.start.length || track.start[index] > time + near) index -= 1;
  return index >= 0 && track.end[index] >= time - near ? { track, index } : null;
}

// What a slice is, in a few lines; `exact` adds nanoseconds and bytes.
function describe({ track, index }, exact = false) {
  const kind = DATA.kinds[track.kind[index]], start = track.start[index], end = track.end[index];
  const span = (begin, until) => `${formatTime(begin)} to ${formatTime(until)}${exact ? ` (${begin} to ${until} ns)` : ""}`;
  const lines = [kind.layer && kind.layer !== kind.name ? `${kind.layer}: ${kind.name}` : kind.name,
    `${track.group} · ${track.title}`,
    `${formatTime(end - start)}, from ${span(start, end)}`];
  if (kind.phase) lines.push(`phase ${kind.phase}`);
  if (kind.bytes) lines.push(`${formatSize(kind.bytes)}${exact ? ` (${kind.bytes} bytes)` : ""}`);
  if (kind.iteration !== undefined) lines.push(`${kind.kind}, iteration ${kind.iteration}`);
  const other = otherEnd({ track, index });
  if (other) {
    const verb = kind.kind === "send" ? "received by" : "sent by", at = other.track;
    lines.push(`${verb} ${at.group}, from ${span(at.start[other.index], at.end[other.index])}`);
  }
  return lines.join("\n");
}

function point(event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  shown.hover = placeAt(x, y);
  tip.hidden = !shown.hover;
  if (shown.hover) {
    tip.textContent = describe(shown.hover);
    tip.style.left = `${Math.min(x + 14, Math.max(shown.width - tip.offsetWidth - 4, 0))}px`;
    tip.style.top = `${y + 16}px`;
  }
  redraw();
}

function select(place) {
  shown.selected = place;
  byId("selected").textContent = place ? describe(place, true) : "";
  redraw();
}

// To the other end of the selected message, which is selected then.
function follow() {
  const other = shown.selected && otherEnd(shown.selected);
  if (!other) return;
  const start = other.track.start[other.index], end = other.track.end[other.index];
  if (end < view.start || start > view.end) pan(((start + end) / 2 - (view.start + view.end) / 2) / (view.end - view.start));
  reveal(other.track);
  select(other);
}

let grip = null, dragged = 0;
canvas.addEventListener("pointerdown", (event) => {
  grip = { x: event.clientX, y: event.clientY };
  dragged = 0;
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!grip) return point(event);
  const by = (grip.x - event.clientX) / (shown.width - shown.gutter) * (view.end - view.start);
  show(view.start + by, view.end + by);
  scrollBy(grip.y - event.clientY);
  dragged += Math.abs(event.clientX - grip.x) + Math.abs(event.clientY - grip.y);
  grip = { x: event.clientX, y: event.clientY };
});
canvas.addEventListener("pointerup", (event) => {
  const box = canvas.getBoundingClientRect();
  if (grip && dragged < 4) select(placeAt(event.clientX - box.left, event.clientY - box.top));
  grip = null;
});
canvas.addEventListener("pointercancel", () => { grip = null; });
canvas.addEventListener("pointerleave", () => { forget(); redraw(); });
canvas.addEventListener("dblclick", (event) => zoom(0.4, toTime(event.clientX - canvas.getBoundingClientRect().left)));
canvas.addEventListener("wheel", (event) => {
  const box = canvas.getBoundingClientRect();
  if (event.ctrlKey || event.metaKey) zoom(1.0015 ** event.deltaY, toTime(event.clientX - box.left));
  else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / shown.width);
  else if (!scrollBy(event.deltaY)) return;
  event.preventDefault();
}, { passive: false });

const KEYS = {
  ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), a: () => pan(-0.15), d: () => pan(0.15),
  ArrowUp: () => scrollBy(-3 * ROW), ArrowDown: () => scrollBy(3 * ROW),
  PageUp: () => scrollBy(-shown.height), PageDown: () => scrollBy(shown.height),
  "+": () => zoom(0.7), "=": () => zoom(0.7), w: () => zoom(0.7), "-": () => zoom(1 / 0.7), s: () => zoom(1 / 0.7),
  0: fit, Home: fit, n: () => nextMatch(1), p: () => nextMatch(-1),
  m: follow, Escape: () => select(null),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  KEYS[event.key]();
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.tagName === "INPUT") return;
  byId("search").focus();
  event.preventDefault();
});

function search() {
  const wanted = byId("search").value.trim().toLowerCase();
  const matches = [];
  shown.current = -1;
  shown.matching = null;
  if (wanted) {
    shown.matching = DATA.kinds.map(({ name, layer }) => `${name}\n${layer || ""}`.toLowerCase().includes(wanted));
    for (const track of tracks) {
      track.kind.forEach((kind, index) => { if (shown.matching[kind]) matches.push({ track, index }); });
    }
    matches.sort((a, b) => a.track.start[a.index] - b.track.start[b.index]);
  }
  shown.matches = matches;
  byId("matches").textContent = wanted ? `${matches.length} of ${DATA.num_slices} slices` : "";
  redraw();
}

// Scroll until a track is in sight.
function reveal(track) {
  const row = track.y - view.top;
  if (row < ROW || row > shown.height - RULER - 2 * ROW) scrollBy(row - (shown.height - RULER) / 2);
}

function nextMatch(step) {
  const { matches } = shown;
  if (!matches.length) return;
  shown.current = shown.current < 0 && step < 0 ? matches.length - 1 : (shown.current + step + matches.length) % matches.length;
  const { track, index } = matches[shown.current], start = track.start[index], end = track.end[index];
  const span = Math.max(end - start, 1), time = (start + end) / 2;
  const wide = Math.min(view.end - view.start, Math.max(span * 12, 100));
  show(time - wide / 2, time + wide / 2);
  reveal(track);
  byId("matches").textContent = `${shown.current + 1} of ${matches.length}: ${describe(matches[shown.current]).split("\n")[0]}`;
}

byId("search").addEventListener("input", search);
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") { byId("search").value = ""; search(); canvas.focus(); }
});
byId("zoom-in").addEventListener("click", () => zoom(0.6));
byId("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
byId("fit").addEventListener("click", fit);
window.addEventListener("resize", resize);
for (const [colour, text] of DATA.legend) byId("timeline-legend").append(legendEntry(colour, text));
byId("timeline-legend").append(legendEntry("linear-gradient(90deg, transparent, var(--soft))", "paler: busy for a part of the pixel"));
byId("left-out").textContent = DATA.left_out.length ? `left out: ${DATA.left_out.join("; ")}` : "";
load();

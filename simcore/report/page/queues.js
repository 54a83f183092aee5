// What queues in front of links did in each part of the run: bytes that waited, under a shade where the link stood still;
// below the axis a lane of bars for marks, and one for drops.

const QUEUE = { bytes: "waiting", still_ns: "link stands still", marks: "marked", drops: "dropped" };
const PART = 8, HIGH = 30, LANE = 9;  // how wide a part is, how high its bytes and its bars

function showQueues(count) {
  const rows = DATA.queues, runNs = REPORT.time_ns * Math.max(REPORT.iterations.length, 1);
  const most = Object.keys(QUEUE).map((kind) => [kind, Math.max(...rows.flatMap((row) => row[`curve_${kind}`]), 0)]).filter(([, highest]) => highest);
  addTable("queues", "Queues in front of links: the deepest, longest paused and those with most drops", [
    ["link", "link"], ["most waiting", "peak_bytes", formatSize], ["stood still", "still_ns", formatTime],
    ["times", "stops", count], ["marked", "marks", count], ["dropped", "drops", count], ["from the first to the last nanosecond", "curve"],
  ], rows.map((row) => ({ ...row, curve: drawQueue(row, most, runNs) })).sort((a, b) => b.peak_bytes - a.peak_bytes));
  const legend = element("div", undefined, "legend");
  for (const [kind] of most) legend.append(legendEntry(`var(--queue-${kind})`, QUEUE[kind]));
  if (rows.length) byId("queues").parentElement.before(legend);
}

function drawQueue(row, most, runNs) {
  const parts = row.curve_bytes.length, partNs = runNs / parts, lanes = most.filter(([kind]) => kind === "marks" || kind === "drops");
  const width = PART * parts, height = HIGH + LANE * lanes.length, highest = Object.fromEntries(most).bytes || 1;
  const drawn = row.curve_bytes.map((bytes, part) => {
    const bar = (kind, from, high, more = "") => `<rect class="${kind}" x="${part * PART}" y="${from}" width="${PART}" height="${high}" ${more}/>`;
    const [still, marks, drops] = [row.curve_still_ns[part], row.curve_marks[part], row.curve_drops[part]];
    const told = `${formatTime(part * partNs)} to ${formatTime((part + 1) * partNs)}: at most ${formatSize(bytes)} waiting; still for ${formatTime(still)}; ${marks} marked, ${drops} dropped`;
    return [
      bar("bytes", HIGH - HIGH * bytes / highest, HIGH * bytes / highest), bar("still_ns", 0, HIGH, `opacity="${Math.min(still / partNs, 1)}"`),
      ...lanes.map(([kind, highest], at) => bar(kind, HIGH + LANE * at + 1, (LANE - 1) * row[`curve_${kind}`][part] / highest)),
      `<g>${bar("over", 0, height)}<title>${told}</title></g>`,
    ].join("");
  });
  const picture = element("div", undefined, "queue");  // of numbers only: nothing in it is from inputs
  picture.innerHTML = `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">${drawn.join("")}<path d="M0 ${HIGH}H${width}"/></svg>`;
  return picture;
}

// What queues in front of links did in each part of the run: bytes that waited, under a shade where the link stood still;
// below the axis a line of bars for marks, and one for drops.

const PART = 8, HIGH = 30, LANE = 9;  // how wide a part is, how high its bytes and its bars

function showQueues(count) {
  const rows = DATA.queues, most = (key) => Math.max(...rows.flatMap((row) => row[key]), 0);
  if (!rows.length) return;
  const below = [["marks", most("curve_marks")], ["drops", most("curve_drops")]].filter(([, highest]) => highest);
  const picture = (row) => drawQueue(row, most("curve_bytes"), below);
  addTable("queues", "Queues in front of links: the deepest, longest paused and those with most drops", [
    ["link", "link"], ["most waiting", "peak_bytes", formatSize], ["stood still", "still_ns", formatTime],
    ["times", "stops", count], ["marked", "marks", count], ["dropped", "drops", count], ["from the first to the last nanosecond", "curve"],
  ], rows.map((row) => ({ ...row, curve: picture(row) })).sort((a, b) => b.peak_bytes - a.peak_bytes));
  const legend = element("div", undefined, "legend");
  const said = { waiting: "waiting", still: "link stands still", marks: "marked", drops: "dropped" };
  for (const kind of ["waiting", "still", ...below.map(([kind]) => kind)]) legend.append(legendEntry(`var(--queue-${kind})`, said[kind]));
  byId("queues").parentElement.before(legend);
}

function drawQueue(row, mostBytes, below) {
  const parts = row.curve_bytes.length, partNs = REPORT.time_ns * Math.max(REPORT.iterations.length, 1) / parts;
  const height = HIGH + LANE * below.length, made = element("div", undefined, "queue");
  const bar = (part, kind, from, high, more = "") => `<rect class="${kind}" x="${part * PART}" y="${from}" width="${PART}" height="${high}" ${more}/>`;
  const drawn = row.curve_bytes.map((bytes, part) => {
    const still = row.curve_still_ns[part], high = mostBytes ? HIGH * bytes / mostBytes : 0;
    const told = `${formatTime(part * partNs)} to ${formatTime((part + 1) * partNs)}: at most ${formatSize(bytes)} waiting; still for ${formatTime(still)}; ${row.curve_marks[part]} marked, ${row.curve_drops[part]} dropped`;
    return [
      bar(part, "waiting", HIGH - high, high), bar(part, "still", 0, HIGH, `opacity="${Math.min(still / partNs, 1)}"`),
      ...below.map(([kind, most], at) => bar(part, kind, HIGH + LANE * at + 1, (LANE - 1) * row[`curve_${kind}`][part] / most)),
      `<g>${bar(part, "over", 0, height)}<title>${told}</title></g>`,
    ].join("");
  });
  made.innerHTML = `<svg viewBox="0 0 ${parts * PART} ${height}" width="${parts * PART}" height="${height}">${drawn.join("")}<path d="M0 ${HIGH}H${parts * PART}"/></svg>`;  // numbers only
  return made;
}

// The page around the timeline: summary, shares, tables. Text from inputs only ever becomes text nodes.

const DATA = JSON.parse(document.getElementById("data").textContent);
const REPORT = DATA.report;
const byId = (id) => document.getElementById(id);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Four significant digits in the largest of `units` that leaves at least one, as on the terminal.
function scaled(value, units) {
  const [factor, unit] = units.find(([each]) => Math.abs(value) >= each) || units[units.length - 1];
  return `${Number((value / factor).toPrecision(4))} ${unit}`;
}
const formatTime = (ns) => scaled(ns, DATA.units.times);
const formatSize = (bytes) => scaled(bytes, DATA.units.sizes);
const formatRate = (bytesPerSecond) => `${formatSize(bytesPerSecond)}/s`;
const formatShare = (part, whole) => (whole ? `${(100 * part / whole).toFixed(1)}%` : "0.0%");

function showSummary() {
  const name = DATA.name || `${REPORT.npus} NPUs`;
  document.title = `${name}: ${formatTime(REPORT.time_ns)} · simcore`;
  byId("name").textContent = name;
  byId("headline").textContent = DATA.headline;
  byId("dominating").textContent = DATA.dominating;
  for (const warning of REPORT.warnings) byId("warnings").append(element("li", warning));
  for (const { key, label, colour, ink } of DATA.shares) {
    const value = REPORT.breakdown[key], share = formatShare(value, REPORT.time_ns);
    const part = element("div", value / REPORT.time_ns * byId("shares").clientWidth > 44 ? share : "");
    part.style.cssText = `flex: ${value} 0 0; background: ${colour}; color: ${ink}`;
    part.dataset.value = value;
    part.title = `${label}: ${formatTime(value)} (${share})`;
    byId("shares").append(part);
    byId("shares-legend").append(legendEntry(colour, `${label} ${formatTime(value)} (${share})`));
  }
  byId("shares").setAttribute("aria-label", byId("shares-legend").textContent);
}

// A bar for every change of the run: the time that would be left of it.
function showHelps() {
  const rows = REPORT.what_would_help || [];
  byId("helps").hidden = !rows.length;
  byId("helps-note").textContent = "the same run with one change, simulated again: the time that an iteration would take";
  for (const { change, time_ns, saved_ns } of rows) {
    const row = element("div", undefined, "help"), bar = element("div", undefined, "bar"), rest = element("i");
    rest.style.width = `${Math.min(100 * time_ns / REPORT.time_ns, 100)}%`;
    bar.append(rest);
    const sign = saved_ns > 0 ? "\u2212" : saved_ns < 0 ? "+" : "";
    row.append(element("span", change), bar, element("span", formatTime(time_ns)), element("b", `${sign}${formatShare(Math.abs(saved_ns), REPORT.time_ns)}`));
    row.dataset.value = time_ns;
    byId("helps").append(row);
  }
}

// What all boards draw over the run, from 0 to the most.
function showPower() {
  const power = REPORT.power, canvas = byId("watts");
  if (!power) return;
  const most = Math.max(...power.watts), bins = power.watts.length;
  byId("power").hidden = false;
  byId("power-note").textContent = `boards of ${power.accelerator}: ${Math.round(power.board_w)} W each on average, at most ${(most / 1e3).toPrecision(3)} kW all together`;
  canvas.setAttribute("aria-label", byId("power-note").textContent);
  canvas.width = bins;
  canvas.height = 100;
  const pen = canvas.getContext("2d");
  pen.fillStyle = DATA.shares[0].colour;
  power.watts.forEach((watts, bin) => pen.fillRect(bin, 100 - 100 * watts / most, 1, 100));
}

function legendEntry(colour, text) {
  const entry = element("span"), swatch = element("i");
  swatch.style.background = colour;
  if (colour.startsWith("linear")) swatch.style.width = "44px";
  entry.append(swatch, text);
  return entry;
}

// A table whose header buttons sort it; a column is [title, key, format], text columns have no format.
function addTable(id, title, columns, rows) {
  if (!rows.length) return;
  const table = element("table"), body = element("tbody"), header = element("tr");
  table.id = id;
  const state = { key: null, descending: false };
  const fill = () => body.replaceChildren(...rows.map((row) => tableRow(columns, row)));
  for (const [heading, key, format] of columns) {
    const cell = element("th", undefined, format ? "" : "text"), button = element("button", heading);
    button.type = "button";
    button.addEventListener("click", () => {
      state.descending = state.key === key ? !state.descending : Boolean(format);
      state.key = key;
      const sign = state.descending ? -1 : 1;
      rows.sort((a, b) => sign * (format ? a[key] - b[key] : String(a[key]).localeCompare(String(b[key]), "en", { numeric: true })));
      for (const other of header.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      fill();
    });
    cell.append(button);
    header.append(cell);
  }
  fill();
  const head = element("thead"), scroll = element("div", undefined, "scroll");
  head.append(header);
  table.append(head, body);
  scroll.append(table);
  scroll.tabIndex = 0;
  byId("tables").append(element("h2", title), scroll);
}

function tableRow(columns, row) {
  const made = element("tr");
  for (const [, key, format] of columns) {
    const value = row[key], cell = element("td", format ? format(value) : value, format ? "" : "text");
    cell.dataset.value = value;
    if (value instanceof Element) cell.replaceChildren(value);
    else if (key === "curve") cell.replaceChildren(...Array.from(value, (block) => element("span", block, "block")));
    if (value === 0 && /[A-Za-z%]/.test(cell.textContent)) cell.classList.add("zero");
    made.append(cell);
  }
  return made;
}

function showTables() {
  const share = (part) => formatShare(part, REPORT.time_ns), count = (value) => value.toLocaleString("en");
  const whose = REPORT.pipeline ? "the first rank of every stage" : "rank 0";
  const mean = REPORT.iterations.length > 1 ? ", mean of an iteration" : "";
  addTable("layers", `Layers (${whose}${mean})`, [
    ["#", "layer", count], ["layer", "name"], ["phase", "phase"], ["compute", "compute_ns", formatTime],
    ["communication", "comm_ns", formatTime], ["exposed", "exposed_ns", formatTime],
    ["collective", "collective"], ["size each iteration", "bytes", formatSize],
  ], DATA.layers);
  addTable("operations", "Operations (rank 0; they may overlap)", [
    ["operation", "name"], ["kind", "kind"], ["count", "count", count], ["time", "total_ns", formatTime], ["of time", "total_ns", share],
  ], DATA.operations);
  showSteps(share, count);
  addTable("dims", "Dimensions (rank 0)", [
    ["#", "index", count], ["kind", "kind"], ["NPUs", "npus", count], ["sent per NPU", "bytes_per_npu", formatSize],
    ["busy", "busy_ns", formatTime], ["of time", "busy_ns", share], ["while busy", "rate", formatRate],
    ["rated", "rated", formatRate],
  ], REPORT.dims.map((dim) => ({ ...dim, rate: dim.busy_ns ? dim.bytes_per_npu / dim.busy_ns * 1e9 : 0, rated: dim.rated_bytes_per_s || 0 })));
  addTable("links", `Hottest ${REPORT.links.hottest.length} of ${REPORT.links.count.toLocaleString("en")} links`, [
    ["link", "link"], ["carried", "bytes", formatSize], ["busy", "busy_ns", formatTime],
    ["of time", "busy_ns", share],
  ], DATA.links);
  showQueues(count);
  addTable("curves", "Use of the device over time (from the first to the last nanosecond)", [
    ["use", "name"], ["of", "of"], ["mean", "mean"], ["over time", "curve"],
  ], DATA.curves.map((row) => ({
    ...row, curve: sparkline(row.percent, 100),
    mean: `${(row.percent.reduce((sum, value) => sum + value, 0) / row.percent.length).toFixed(0)}%`,
  })));
  addTable("ranks", "Ranks", [
    ["ranks", "ranks"], ["finish", "finish_ns", formatTime], ["compute", "compute_ns", formatTime],
    ["communication", "comm_ns", formatTime], ["not computing", "exposed_comm_ns", formatTime], ["idle", "idle_ns", formatTime],
  ], REPORT.ranks);
  addTable("simai", "SimAI's summary", [["share", "name"], ["us", "us", String]],
    Object.entries(REPORT.simai || {}).map(([name, us]) => ({ name, us })));
}

// A curve as a row of blocks, the highest where it reaches `most`.
function sparkline(values, most) {
  return values.map((value) => "\u00a0▁▂▃▄▅▆▇█"[Math.ceil(value * 8 / most)]).join("");
}

// Tables that only some runs have: stages of a pipeline, steps of a wafer, faults.
function showSteps(share, count) {
  const told = REPORT.pipeline || { stages: [] };
  addTable("stages", `Pipeline (${told.schedule}, ${told.micro_batches} micro-batches)`, [
    ["stage", "stage", count], ["ranks", "ranks"], ["finish", "finish_ns", formatTime],
    ["compute alone", "compute_ns", share],
    ["compute and communication", "overlapped_ns", share], ["exposed communication", "exposed_comm_ns", share],
    ["idle (bubble)", "idle_ns", share],
  ], told.stages);
  addTable("steps", "Steps of the wafer", [
    ["step", "name"], ["time", "time_ns", formatTime], ["tokens", "tokens", count], ["tokens/s", "tokens_per_s", (value) => Math.round(value).toLocaleString("en")],
    ["most computing", "most_ns", formatTime], ["on NPU", "npu", count], ["mean computing", "mean_ns", formatTime], ["stragglers", "late"],
  ], (REPORT.wafer || { steps: [] }).steps.map(({ compute_ns, stragglers, ...step }) => ({
    ...step, most_ns: compute_ns.max, mean_ns: compute_ns.mean, npu: compute_ns.npu,
    late: (stragglers || []).slice(0, 3).map((each) => `${each.npu} (+${formatTime(each.cost_ns)})`).join(", "),
  })));
  addTable("faults", "Faults", [
    ["fault", "fault"], ["transfers slowed down", "transfers", count], ["their bytes", "bytes", formatSize], ["led around", "rerouted", count],
  ], REPORT.faults || []);
}

function showFooter() {
  const lines = [`simcore ${REPORT.version} · profile ${REPORT.profile} · network ${REPORT.network}`,
    `exposed communication, ${formatTime(REPORT.exposed_comm_ns)}, ${DATA.exposed[0]}`,
    `exposed communication, ${formatTime(REPORT.breakdown.exposed_comm_ns)}, ${DATA.exposed[1]}`,
    ...REPORT.inputs.map(({ role, path, sha256 }) => `${role}: ${path}${sha256 && ` (SHA-256 ${sha256})`}`)];
  for (const line of lines) byId("footer").append(element("div", line));
}

byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  window.dispatchEvent(new Event("resize"));
});
showSummary();
showPower();
showHelps();
showTables();
showFooter();

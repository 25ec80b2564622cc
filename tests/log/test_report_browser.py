"""The report in a real browser without a network: all is drawn, nothing complains, nothing is fetched.

Skips where there is no Chromium. `pytest --basetemp` says where the pictures are that it takes.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("bokeh", reason="the report's library is not installed")
pytest.importorskip("duckdb", reason="the report's library is not installed")

from replay.report_command import report_command
from tests.log.simulated import simulated_records, write_log
from tests.log.test_report import HOSTILE, renamed

pytestmark = pytest.mark.timeout(600)
"""A browser on a busy machine takes its time."""

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WINDOWS = ((1000, 700, "light"), (1366, 768, "dark"), (2200, 1200, "light"))
SECTIONS = ("overview", "requests", "budgets", "cohort", "tiers", "ssd", "pool", "hints", "slowest", "log")
_CANVASES = """
    const canvases = [];
    const walk = node => {
        if (node instanceof HTMLCanvasElement) canvases.push(node);
        if (node.shadowRoot) [...node.shadowRoot.children].forEach(walk);
        [...node.children].forEach(walk);
    };
    walk(chart);
"""
PAINTED = f"""chart => {{ {_CANVASES}
    return canvases.filter(canvas => canvas.width > 200).map(canvas => canvas.toDataURL()).join();
}}"""
"""What is on a chart's canvases, without those of its legend's entries."""
DRAWN = (
    f"chart => {{ {_CANVASES}"
    + """
    const count = canvas => {
        if (!canvas.width || !canvas.height) return 0;
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let drawn = 0;
        for (let i = 3; i < pixels.length; i += 4) if (pixels[i]) drawn++;
        return drawn;
    };
    return canvases.reduce((sum, canvas) => sum + count(canvas), 0);
}"""
)
"""How many pixels of a chart are drawn."""

A_BAR = """() => {
    const plot = Bokeh.documents[0].roots().find(root => root.y_range?.factors);
    const bars = plot.renderers[0].data_source.data;
    const frame = Bokeh.index.get_one(plot).frame;
    return [frame.x_scale.compute((bars.left[0] + bars.right[0]) / 2), frame.y_scale.compute(bars.label[0])];
}"""
"""Where the first bar of the slowest queries is, from their chart's corner."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser's driver is not installed")
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no Chromium here (Debian: apt install chromium)")
    with sync_api.sync_playwright() as driver:
        # Root may not use its sandbox. The page is ours, and it is shown what the log says only as text.
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=100_000)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


def report_of(kind: str, folder: Path) -> Path:
    """Of a log of this kind; made once."""
    page = folder / f"{kind}.html"
    if page.exists():
        return page
    told = [records for records in simulated_records(5, 4000) if records]
    match kind:
        case "full":
            write_log(folder / kind, told)
        case "hostile":
            write_log(folder / kind, renamed(told[:3]))
        case "empty":
            write_log(folder / kind, [told[0][:1]])
        case "damaged":
            (file,) = write_log(folder / kind, told[:1], segment_records=10_000)
            data = bytearray(file.read_bytes())
            data[len(data) * 3 // 4] ^= 0xFF
            file.write_bytes(data)
    CliRunner().invoke(report_command, [str(folder / kind), "-o", str(page)], catch_exceptions=False)
    return page


class Shown:
    """A page, and what it did beside being shown."""

    def __init__(self, context: Any, path: Path) -> None:
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri(), timeout=100_000)
        self.page.wait_for_function("Bokeh.documents.every(each => each.is_idle)", timeout=100_000)
        self.path = path

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@pytest.fixture
def show(browser: Any, folder: Path) -> Iterator[Any]:
    contexts = []

    def shown(kind: str, width: int = 1366, height: int = 768, scheme: str = "light") -> Shown:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        return Shown(context, report_of(kind, folder))

    yield shown
    for context in contexts:
        context.close()


@pytest.mark.parametrize("kind", ["full", "hostile", "empty", "damaged"])
def test_everything_is_drawn_and_nothing_is_fetched(show: Any, kind: str) -> None:
    shown = show(kind)
    for section in SECTIONS:
        assert shown.page.locator(f"#{section}").inner_text().strip(), section
    charts = shown.page.locator("[data-chart]")
    for place in range(charts.count()):
        drawn = charts.nth(place).evaluate(DRAWN)
        assert drawn > 500, charts.nth(place).get_attribute("data-chart")
    for reason in shown.page.locator(".empty").all_inner_texts():
        assert len(reason) > 10
    assert (charts.count() == 0) is (kind == "empty")
    assert shown.complaints == []
    assert shown.requests == [shown.path.as_uri()]


def test_a_full_log_has_every_picture(show: Any) -> None:
    page = show("full").page
    drawn = {each.get_attribute("data-chart") for each in page.locator("[data-chart]").all()}
    assert {"durations", "phases", "budgets", "demand", "warm", "traffic", "in_flight"} <= drawn
    assert {"pool", "resident", "evictions", "hints"} <= drawn
    assert page.locator("svg.flow path").count() >= 2


@pytest.mark.parametrize(("width", "height", "scheme"), WINDOWS)
def test_it_fits_the_window(show: Any, tmp_path: Path, width: int, height: int, scheme: str) -> None:
    page = show("full", width, height, scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture = tmp_path / f"report-{width}-{scheme}.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 50_000


def test_charts_follow_light_and_dark(show: Any) -> None:
    """Also when it changes while the page is open."""
    shown = show("full")
    light = shown.page.locator("[data-chart=budgets]").evaluate(PAINTED)
    shown.page.emulate_media(color_scheme="dark")
    changed = f"before => ({PAINTED})(document.querySelector('[data-chart=budgets]')) != before"
    shown.page.wait_for_function(changed, arg=light, timeout=100_000)
    assert shown.complaints == []
    dark = shown.page.locator("[data-chart=budgets]").evaluate(PAINTED)
    fresh = show("full", scheme="dark").page.locator("[data-chart=budgets]").evaluate(PAINTED)
    assert dark == fresh, "as if it had been opened in the dark"


def test_a_button_moves_all_charts_to_one_incarnation(show: Any) -> None:
    page = show("full").page
    button = page.get_by_role("button", name="incarnation 2", exact=True)
    button.click()
    start, end = page.evaluate(
        "(({start, end}) => [start, end])(Bokeh.documents[0].get_model_by_name('time'))"
    )
    begin_ms, end_ms = (float(button.get_attribute(f"data-{side}-ms")) for side in ("begin", "end"))
    assert start < begin_ms < end_ms < end
    assert end - start <= 1.03 * (end_ms - begin_ms) + 2


def test_a_link_to_a_record_opens_it(show: Any) -> None:
    page = show("full").page
    link = page.locator(".story a").first
    link.click()
    record = page.locator(link.get_attribute("href"))
    record.wait_for(state="visible")
    assert record.is_visible()


def test_hostile_names_are_shown_as_they_are(show: Any) -> None:
    page = show("hostile").page
    assert page.evaluate("window.hacked") is None
    assert HOSTILE in page.locator("#slowest h3").first.inner_text()
    assert page.locator("img").count() == 0
    chart = page.locator("[data-chart=phases]")
    chart.scroll_into_view_if_needed()
    corner, (x, y) = chart.bounding_box(), page.evaluate(A_BAR)
    page.mouse.move(corner["x"] + x, corner["y"] + y, steps=5)
    tooltip = page.locator(".bk-Tooltip").get_by_text(HOSTILE[:20])
    tooltip.first.wait_for(state="visible", timeout=100_000)
    assert page.evaluate("window.hacked") is None

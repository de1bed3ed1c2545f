"""The pages of `fedmux ui` as somebody sees and uses them, and the report that is one file."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w
from browsing import CHROMIUM, MARKUP, OPTIONS, Watch, ended, slow, started
from playwright.sync_api import Browser, Page, expect, sync_playwright

import fedmux
from conftest import table
from fedmux.report.page import write
from fedmux.runs.history import History

SHOTS = os.environ.get("FEDMUX_SCREENSHOTS")
expect.set_options(timeout=30000)
COMPARED = "/compare?run=random&run=mmfl-lvr"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs of two methods, one with markup for a name, and a broken folder."""
    folder = tmp_path_factory.mktemp("ui") / "runs"
    for method in ("random", "mmfl-lvr"):
        fedmux.run(fedmux.Experiment(**table(name=f"by-{method}", method=method, rounds=12)), folder / method)
    shutil.copytree(folder / "random", folder / MARKUP)
    named = folder / MARKUP / "experiment.toml"
    named.write_text(named.read_text().replace('"by-random"', json.dumps(MARKUP), 1))
    (folder / "broken").mkdir()
    (folder / "broken" / "metrics.jsonl").write_text("nonsense\n")
    return folder


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[str]:
    """Of a `fedmux ui` process, without the last slash."""
    process = started("ui", folder, "--port", 0, "--no-browser", cwd=folder.parent)
    assert process.stdout is not None
    yield process.stdout.readline().split(" at ")[1].split()[0].rstrip("/")
    ended(process)


@pytest.fixture
def going_on(folder: Path) -> Iterator[Path]:
    """A run in progress, far from its end."""
    (folder.parent / "slow.toml").write_text(tomli_w.dumps(slow(2000)))
    process = started("run", "slow.toml", "-o", folder / "going on", "--quiet", cwd=folder.parent)
    yield folder / "going on"
    ended(process)
    shutil.rmtree(folder / "going on")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that has to stay without errors, and on this machine."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(30000)
    watch = Watch(page)
    yield page
    page.close()
    assert watch.wrong == []
    assert [url for url in watch.asked if not url.startswith((f"{address}/", "data:", "blob:"))] == []


def round_of(page: Page) -> int:
    return int(page.locator("[data-fact=round]").inner_text().split()[0])


def drawings(page: Page, chart: str) -> int:
    return int(page.locator(f"#{chart}-chart").get_attribute("data-drawn") or 0)


def see_all_charts(page: Page) -> int:
    """Scroll through the page until every chart is drawn; how many there are."""
    if page.locator("#drawing").count():
        expect(page.locator("#drawing")).to_be_hidden()
    shown = page.locator("figure:visible")
    for place in range(shown.count()):
        chart = shown.nth(place).locator(".chart")
        chart.scroll_into_view_if_needed()
        expect(chart).to_have_attribute("data-drawn", re.compile(r"\d+"))
        expect(chart.locator("canvas")).to_be_visible()
    expect(page.get_by_text("cannot be drawn")).to_have_count(0)
    return shown.count()


def test_a_run_in_progress_is_listed_opened_and_followed_without_reloading(
    going_on: Path, page: Page, address: str
) -> None:
    page.goto(f"{address}/")
    row = page.locator('tr[data-key="going on"]')
    expect(row).to_be_visible()  # it began after the server, perhaps after the page
    expect(row.locator(".state")).to_have_text("running")
    before = row.locator("[data-label=round]").inner_text()
    expect(row.locator("[data-label=round]")).not_to_have_text(before)  # the list follows too

    row.get_by_role("link").click()
    page.evaluate("window.notReloaded = true")
    expect(page.locator("#task-accuracy-chart canvas")).to_be_visible()
    first, drawn = round_of(page), drawings(page, "task-accuracy")
    page.wait_for_function(
        "([round, drawn]) => parseInt(document.querySelector('[data-fact=round]').textContent) > round + 1"
        " && Number(document.getElementById('task-accuracy-chart').dataset.drawn) > drawn",
        arg=[first, drawn],
    )
    assert page.evaluate("window.notReloaded")

    last = len((going_on / "metrics.jsonl").read_bytes().splitlines()) - 1
    page.wait_for_function(
        "last => parseInt(document.querySelector('[data-fact=round]').textContent) >= last", arg=last
    )
    expect(page.locator("#said")).to_contain_text("running, round")


def test_the_end_of_a_run_is_shown(page: Page, address: str, folder: Path) -> None:
    (folder.parent / "short.toml").write_text(tomli_w.dumps(slow(8)))
    process = started("run", "short.toml", "-o", folder / "short", "--quiet", cwd=folder.parent)
    page.goto(f"{address}/")
    page.locator('tr[data-key="short"]').get_by_role("link").click()
    page.evaluate("window.notReloaded = true")
    assert process.wait(120) == 0
    expect(page.locator(".now .state")).to_have_text("finished")
    expect(page.locator("#said")).to_contain_text("finished, round 8 of 8")
    accuracy = fedmux.Run(folder / "short").summary["accuracy"]["mean"]
    expect(page.locator("[data-fact=accuracy]")).to_have_text(f"{accuracy:.1%}")
    assert page.evaluate("window.notReloaded")


def test_runs_are_chosen_and_compared(page: Page, address: str) -> None:
    page.goto(f"{address}/")
    page.get_by_role("button", name="Compare").click()
    for _ in range(2):  # the list looks again and takes what it sees, and leaves what was said
        with page.expect_response(f"{address}/rows"):
            pass
    expect(page.locator("#status")).to_have_text("Select two runs or more, then compare them.")
    page.get_by_label("Filter").fill("by- finished")
    expect(page.locator("#rows tr:visible")).to_have_count(2)
    page.get_by_label("Select all that are shown").check()
    page.get_by_role("button", name="Compare 2").click()
    expect(page.get_by_role("heading", name="2 runs compared")).to_be_visible()
    expect(page.locator("table.sides").first).to_contain_text("mmfl-lvr")
    expect(page.locator("table.sides").last).to_contain_text("method.name")
    assert see_all_charts(page) >= 5


def test_every_chart_of_a_run_is_drawn(page: Page, address: str) -> None:
    page.goto(f"{address}/run/mmfl-lvr")
    assert see_all_charts(page) >= 8


def test_the_keyboard_is_enough(page: Page, address: str) -> None:
    def focused() -> str:
        return page.evaluate(
            "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
        )

    def tab_to(text: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", focused()
            if text in focused():
                return
        raise AssertionError(f"Tab does not come to {text}")

    page.goto(f"{address}/")
    page.keyboard.press("/")
    page.keyboard.type("mmfl")
    expect(page.locator("#rows tr:visible")).to_have_count(1)
    tab_to("Compare")
    tab_to("Select by-mmfl-lvr")
    page.keyboard.press("Space")
    expect(page.locator("#compare")).to_have_text("Compare 1")
    tab_to("by-mmfl-lvr")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="by-mmfl-lvr")).to_be_visible()
    tab_to("All runs")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Filter")).to_be_visible()


def test_markup_in_a_name_is_text(page: Page, address: str) -> None:
    page.on("dialog", lambda dialog: pytest.fail("a script in a name ran"))
    page.goto(f"{address}/")
    page.get_by_role("link", name=MARKUP).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(MARKUP)
    assert see_all_charts(page) >= 5
    assert page.locator("img").count() == 0
    page.goto(f"{address}/")
    page.get_by_label(f"Select {MARKUP}").check()
    page.get_by_label("Select by-random").check()
    page.get_by_role("button", name="Compare 2").click()
    expect(page.get_by_role("link", name="random").first).to_be_visible()
    see_all_charts(page)
    assert page.locator("img").count() == 0


def test_a_broken_run_opens(page: Page, address: str) -> None:
    page.goto(f"{address}/")
    page.locator('tr[data-key="broken"]').get_by_role("link").click()
    expect(page.locator(".problem")).to_contain_text("experiment.toml: is missing")
    expect(page.locator("#drawing")).to_have_text("There is nothing to draw yet.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_pages_fit_their_window(browser: Browser, address: str, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    watch = Watch(page)
    for name, path in (("list", "/"), ("run", "/run/mmfl-lvr"), ("compare", COMPARED), ("none", "/run/none")):
        page.goto(address + path)
        see_all_charts(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=f"{SHOTS}/{name}-{width}-{scheme}.png", full_page=True)
    page.close()
    assert [line for line in watch.wrong if "404" not in line] == []


@pytest.mark.parametrize("names", [["mmfl-lvr"], ["mmfl-lvr", "random", MARKUP]])
def test_a_report_is_one_file_that_asks_for_nothing(
    browser: Browser, folder: Path, tmp_path: Path, names: list[str]
) -> None:
    report = tmp_path / "report.html"
    write([History.read(folder / name) for name in names], report, MARKUP)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    watch = Watch(page)
    page.goto(report.as_uri())
    assert see_all_charts(page) >= 5
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/report-{len(names)}.png", full_page=True)
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()
    assert watch.wrong == []
    assert [url for url in watch.asked if not url.startswith(("data:", "blob:"))] == [report.as_uri()]

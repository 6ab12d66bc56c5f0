"""The page in a real Chromium: sorting, dialog, keyboard, phone, dark, print, and nothing hostile runs."""

import shutil

import pytest
import synthetic
from hand_made import results_of

from reports.figures.draw import draw_all
from reports.page.page import write_page
from reports.tables.study import study_tables

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
HOSTILE = '</script><img src=x onerror="window.hacked=1"><svg onload=window.hacked=1>'

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt install chromium)")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    methods = {label: synthetic.METHODS[label] for label in ("at", "gairat", "sovr", "tsovr", "sovr+awp")}
    methods[HOSTILE] = (HOSTILE, "mart", {HOSTILE: 1}, *synthetic.METHODS["mart"][3:])
    synthetic.write_store(folder / "store", methods=methods, title=f"Synthetic {HOSTILE}", failed=(("gairat", 1),))
    results = results_of(folder / "store")
    drawn = draw_all(results, folder / "figures")
    return write_page(results, study_tables(results, "synthetic"), drawn, folder)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, "--disable-sync", "--no-first-run"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser, report):
    """Opens the page; at the end no error was logged and nothing was fetched but the page itself."""
    opened = []

    def start(**options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = context.new_page()
        faults: list[str] = []
        fetched: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url) if request.url[:5] != "data:" else None)
        page.goto(report.as_uri())
        opened.append((context, page, faults, fetched))
        return page

    yield start
    for context, _, faults, fetched in opened:
        assert faults == []
        assert fetched == [report.as_uri()]
        context.close()


def column(page, index: int) -> list[str]:
    rows = page.locator("#table-0 tbody tr")
    return [rows.nth(i).locator("th, td").nth(index).inner_text() for i in range(rows.count())]


def numbers(page) -> list[float]:
    return [float(text.split("±")[0]) for text in column(page, 1)]


def test_a_click_sorts_by_number_and_a_second_turns_it_round(open_page):
    page = open_page()
    before = numbers(page)
    head = page.locator("#table-0 .heads th").nth(1)
    assert head.get_attribute("aria-sort") == "none" and before != sorted(before, reverse=True)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending" and numbers(page) == sorted(before, reverse=True)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending" and numbers(page) == sorted(before)
    page.locator("#table-0 .heads th").nth(0).get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "none" and column(page, 0) == sorted(column(page, 0), key=str.lower)


def test_the_keyboard_sorts_opens_a_cell_and_comes_back_to_it(open_page):
    page = open_page()
    page.locator("#table-0 .heads button").nth(1).focus()
    page.keyboard.press("Enter")
    assert numbers(page) == sorted(numbers(page), reverse=True)
    page.keyboard.press("Space")
    assert numbers(page) == sorted(numbers(page))
    cell = page.locator("#table-0 a.cell").first
    cell.focus()
    assert cell.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.locator("#dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#dialog").is_visible()
    assert cell.evaluate("e => document.activeElement === e")


def test_a_cell_shows_the_values_and_trials_behind_it(open_page):
    page = open_page()
    page.locator("#table-0 a.cell[data-title='SOVR, AutoAttack']").click()
    text = page.locator("#dialog").inner_text()
    assert "SOVR, AutoAttack" in text and "seed 2:" in text
    for expected in ("M = 40, lam = 0.4", "torch 2.13.0", "0123456789ab", "cpu (2 threads)", "--methods sovr"):
        assert expected in text, expected
    page.locator("#dialog-close").click()
    assert not page.locator("#dialog").is_visible()


def test_hostile_names_are_shown_and_not_run(open_page):
    page = open_page()
    page.locator("#table-0 a.cell").last.click()
    assert page.evaluate("window.hacked") is None
    assert "onerror=" in page.locator("#table-0").inner_text()


def test_a_phone_scrolls_tables_and_not_the_page(open_page):
    page = open_page(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("figure img").first.evaluate("e => e.getBoundingClientRect().width") > 250
    page.locator("#table-0 a.cell").first.tap()
    box = page.locator("#dialog").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_figures_are_really_drawn(open_page):
    page = open_page()
    sizes = page.locator("figure img").evaluate_all("all => all.map(e => e.complete && e.naturalWidth)")
    assert len(sizes) >= 10 and all(size > 100 for size in sizes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_have_readable_contrast(open_page, scheme):
    page = open_page(color_scheme=scheme)
    luminance = """selector => {
        const parse = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number)
            .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const light = colour => { const [r, g, b] = parse(colour); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ground = light(getComputedStyle(document.body).backgroundColor);
        return [...document.querySelectorAll(selector)].map(e => {
            const ink = light(getComputedStyle(e).color);
            return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
        });
    }"""
    ratios = page.evaluate(luminance, "p, td, th, h2, figcaption, nav a, .verdict, .hole, small")
    assert len(ratios) > 50 and min(ratios) >= 4.5
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")


def test_print_leaves_the_navigation_out_and_is_light(open_page):
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("nav").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(page.pdf()) > 10_000


def test_without_scripts_the_page_still_shows_everything(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator("#table-0 tbody tr").count() == 6
    page.locator("#table-0 a.cell").first.click()
    assert page.url.endswith("#trials-0-0")

"""The page in a real Chromium: sorting, dialog, keyboard, phone, dark, print, and nothing hostile runs."""

import re
import shutil

import pytest
import synthetic
from hand_made import results_of

from reports import write_reports
from reports.figures.draw import draw_all
from reports.page.page import write_page
from reports.tables.study import study_tables
from sweep.store.leases import take

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
    drawn = draw_all(results, folder / "figures", pdf=False)
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


def test_on_a_phone_every_column_is_reached_and_the_hero_is_another_drawing(open_page):
    page = open_page(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    hidden = """boxes => boxes.filter(box => {
        box.scrollLeft = box.scrollWidth;
        const cells = [...box.querySelectorAll("tr")].map(row => row.lastElementChild).filter(cell => cell);
        return cells.some(cell => cell.getBoundingClientRect().right > box.getBoundingClientRect().right + 1);
    }).length"""
    assert page.locator(".scroll:visible").count() > 3
    assert page.locator(".scroll:visible").evaluate_all(hidden) == 0
    hero = page.locator("figure.redrawn img").first
    assert hero.evaluate("e => e.currentSrc !== e.src && e.getBoundingClientRect().width <= 390")
    wide = open_page()
    assert wide.locator("figure.redrawn img").first.evaluate("e => e.currentSrc === e.src")


def test_figures_are_really_drawn_and_have_one_size_of_type(open_page):
    page = open_page(viewport={"width": 1400, "height": 900})
    images = page.locator("figure img")
    sizes = images.evaluate_all("all => all.map(e => e.complete && e.naturalWidth)")
    assert len(sizes) >= 10 and all(size > 100 for size in sizes)
    # Each is drawn 10 or 4.85 inches wide with the same type: shown at one scale, it has one size.
    widths = page.locator(".figures img").evaluate_all("all => all.map(e => e.getBoundingClientRect().width)")
    scales = [width / (10 if width > 700 else 4.85) for width in widths]
    assert max(scales) < 1.03 * min(scales) and any(width > 700 for width in widths)


def test_the_contents_lead_to_every_section(open_page):
    page = open_page()
    targets = page.locator("#contents a").evaluate_all("all => all.map(e => e.hash.slice(1))")
    assert {"study-0", "study-0-results", "study-0-sure", "study-0-trials", "claims", "failed"} <= set(targets)
    tops = [page.locator(f"#{target}").bounding_box()["y"] for target in targets]
    assert tops == sorted(tops)


def test_one_table_of_tests_compares_with_the_method_that_is_chosen(open_page):
    page = open_page()
    table, choice = page.locator("#study-0-tests-table"), page.locator("select.reference")
    bodies = table.locator("tbody")
    assert bodies.count() == 6 and [bodies.nth(i).is_visible() for i in range(6)].count(True) == 1
    assert "against AT" in table.inner_text() and "Holm" in table.inner_text()
    choice.select_option(label="GAIRAT")
    text = table.inner_text()
    assert "against GAIRAT" in text and "T3" in text and "against AT" not in text
    row = table.locator("tbody:visible tr", has=page.locator("th", has_text=re.compile("^AT$")))
    assert row.inner_text().split()[1].startswith("+")  # AT is above GAIRAT, which is above nothing


def test_a_table_is_copied_as_it_stands_in_three_forms(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    tools = page.locator("#table-0").locator("xpath=../preceding-sibling::*[1]")
    tools.get_by_role("button", name="Sort by result").click()
    best = max(numbers(page))
    assert numbers(page)[0] == best
    copied = {}
    for place, form in enumerate(("LaTeX", "CSV", "Markdown")):
        button = tools.locator(".copy").nth(place)
        assert button.inner_text() == form
        button.click()
        playwright.expect(button).to_have_text("Copied")
        copied[form] = page.evaluate("navigator.clipboard.readText()")
    first = column(page, 1)[0]
    assert first in copied["CSV"].splitlines()[1] and copied["CSV"].startswith("Method,AutoAttack,PGD-20,Clean")
    assert f"**{first}**" in copied["Markdown"].splitlines()[2] and copied["Markdown"].count("\n|") == 7
    assert rf"\textbf{{{first.replace('±', '$' + chr(92) + 'pm$')}}}" in copied["LaTeX"]
    assert copied["LaTeX"].count(r"\\") == 7 and r"\bottomrule" in copied["LaTeX"]
    assert r"<img" not in copied["Markdown"].replace(r"\<img", "")  # a hostile name is no markup
    tools.get_by_role("button", name="Sort by result").click()
    assert numbers(page) != sorted(numbers(page), reverse=True)


def test_trials_are_searched_filtered_and_ordered(open_page):
    page = open_page()
    trials, box = page.locator(".all-trials > .trials"), page.locator(".filter")
    names = page.locator(".all-trials > .trials:visible > summary > b")

    def shown() -> list[str]:
        return [text.split()[0] for text in names.all_inner_texts()]

    assert trials.count() == 6 and "6 of 6" in box.inner_text()
    box.get_by_label("Search").fill("gamma 0.01")  # of the configuration
    assert shown() == ["SOVR+AWP"] and "1 of 6" in box.inner_text()
    box.get_by_label("Search").fill("")
    box.get_by_label("Status").select_option("failed")
    assert shown() == ["GAIRAT"]
    box.get_by_label("Status").select_option("any status")
    box.get_by_label("Order").select_option("result")
    assert shown()[0] == "SOVR+AWP" and shown()[-1] == "GAIRAT"


def test_a_figure_is_enlarged_and_closed_by_key(open_page):
    page = open_page(viewport={"width": 1400, "height": 900})
    small = page.locator("figure.half img").first.bounding_box()["width"]
    page.locator("figure.half .enlarge").first.click()
    image = page.locator("#enlarged img")
    image.wait_for()
    assert image.evaluate("e => e.getBoundingClientRect().width") > 1.5 * small
    page.keyboard.press("Escape")
    assert not page.locator("#enlarged").is_visible()


def test_captions_are_short_until_more_is_asked_for_or_they_are_printed(open_page):
    page = open_page()
    caption = page.locator("figcaption", has_text="PGD-20 against AutoAttack").first
    assert "takes away" not in caption.inner_text()
    caption.locator("summary").click()
    assert "takes away" in caption.inner_text()
    assert page.locator("details.more:not([open])").count() > 3
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.more:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.more:not([open])").count() > 3


def test_while_a_sweep_runs_the_page_looks_for_newer_numbers_until_there_are_none(browser, tmp_path):
    store = synthetic.write_store(tmp_path / "store", methods={"at": synthetic.METHODS["at"]}, diagnostics=False)
    with take(store, "cell"):
        write_reports(store.uri, None, tmp_path, figures=False)
    path = tmp_path / "report.html"
    running = path.read_text("utf-8").replace('data-refresh="60"', 'data-refresh="0.2"')
    path.write_text(running, "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert "A sweep is running" in page.locator("#running").inner_text()
    path.write_text(running.replace("Synthetic, small CNN", "Newer numbers"), "utf-8")
    page.locator("h2", has_text="Newer numbers").wait_for()
    path.write_text(re.sub(r'data-written="[^"]*"', 'data-written="2020-01-01T00:00:00+00:00"', running), "utf-8")
    page.get_by_text("the sweep may have stopped").wait_for()
    page.close()
    write_reports(store.uri, None, tmp_path / "after", figures=False)
    assert not (tmp_path / "after" / "report.html").exists()


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
    ratios = page.evaluate(
        luminance, "p, td, th, h2, figcaption, nav a, .verdict, .hole, small, .note, .tools button, .filter label"
    )
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

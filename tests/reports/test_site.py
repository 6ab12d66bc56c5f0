"""The site: an index and a page for each study, relative links that lead somewhere, and what can be downloaded."""

import re
import shutil
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import synthetic
from hand_made import QuickStore, add_study, results_of
from test_page import Reader

from reports.figures import draw, hero, style
from reports.site import site
from reports.site.downloads import counterexamples
from reports.site.site import write_site
from reports.tables.table import Block, Column, Row, Table
from sweep.cli import main
from sweep.errors import UserError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = '</script><img src=x onerror="window.hacked=1">'


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Two stores; one name twice, one of the names hostile, and counterexamples in one of them."""
    folder = tmp_path_factory.mktemp("site")
    methods = {label: synthetic.METHODS[label] for label in ("at", "sovr")}
    options = {"methods": methods, "components": False, "diagnostics": False, "search": False, "seeds": (0,)}
    first = synthetic.write_store(folder / "a", failed=(), **options)
    trial = first.manifest("synthetic").cells[0].trial[:16]
    first.write(f"evaluations/{trial}/best_test/attack.npz", b"images")
    second = QuickStore(folder / "b")
    add_study(second, "synthetic", {"at": [0.4]}, names={"at": HOSTILE}, title=HOSTILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "declared", lambda paper: hero.FIGURES)  # one figure stands for all
        write_site([str(folder / "a"), str(folder / "b")], folder / "site")
    return folder / "site"


def links(page: Path) -> list[str]:
    reader = Reader(page.read_text("utf-8"))
    names = ("src", "href", "srcset", "action", "data", "poster")
    found = [attributes[name] for _, attributes in reader.tags for name in names if attributes.get(name)]
    return [link for link in found if not link.startswith("data:")]


def test_every_link_is_relative_and_leads_somewhere(made):
    pages = sorted(made.rglob("*.html"))
    names = ["index.html", "studies/synthetic/report.html", "studies/synthetic-2/report.html"]
    assert [str(page.relative_to(made)) for page in pages] == names
    for page in pages:
        for link in links(page):
            address, _, place = link.partition("#")
            assert not re.match(r"[a-z]+:|/", address), link
            target = (page.parent / address).resolve() if address else page
            assert target.is_file() and target.is_relative_to(made.resolve()), link
            if place:
                assert f'id="{place}"' in target.read_text("utf-8"), link
    assert links(pages[0]).count("studies/synthetic/report.html") == 1


def test_downloads_hold_the_results_and_the_counterexamples_of_their_study(made):
    folder = made / "studies" / "synthetic"
    frame = pd.read_csv(folder / "results.csv")
    assert set(frame["study"]) == {"synthetic"} and set(frame["label"]) == {"at", "sovr"}
    assert len(pd.read_parquet(folder / "results.parquet")) == len(frame)
    with zipfile.ZipFile(folder / "counterexamples.zip") as archive:
        (name,) = archive.namelist()
        assert archive.read(name) == b"images" and name.endswith("/best_test/attack.npz")
    assert "counterexamples.zip" in (folder / "report.html").read_text("utf-8")
    with zipfile.ZipFile(folder / "figures.zip") as archive:
        assert archive.namelist() == ["synthetic-hero.pdf"]
    assert not (made / "studies" / "synthetic-2" / "counterexamples.zip").exists()
    assert list(counterexamples(results_of(made.parent / "b"))) == []


def test_a_transfer_matrix_is_linked_where_a_study_has_one(tmp_path, monkeypatch):
    store = QuickStore(tmp_path / "store")
    add_study(store, "one", {"at": [0.4]})
    monkeypatch.setattr(style, "save", lambda *_, **__: [])
    write = site.write_tables

    def with_matrix(results, out):
        written, tables = write(results, out)
        row = Row("AT", (tables[-1].blocks[0].rows[0].cells[0],))
        return written, [*tables, Table("one_transfer", "Who breaks whom", (Column("AT"),), (Block("", (row,)),))]

    index, page = write_site([store.uri], tmp_path / "without")
    assert "transfer matrix" not in index.read_text("utf-8")
    monkeypatch.setattr(site, "write_tables", with_matrix)
    index, page = write_site([store.uri], tmp_path / "with")
    (link,) = [link for link in links(index) if "#" in link and link.startswith("studies")]
    assert f'id="{link.partition("#")[2]}-title">Who breaks whom' in page.read_text("utf-8")


def test_an_unknown_study_and_an_absent_store_are_one_message(tmp_path, capsys):
    store = QuickStore(tmp_path / "store")
    add_study(store, "one", {"at": [0.4]})
    with pytest.raises(UserError, match="no store has a study 'two'; known: one"):
        write_site([store.uri], tmp_path / "site", ["two"])
    with pytest.raises(SystemExit):
        main(["site", str(tmp_path / "nowhere"), "--out", str(tmp_path / "site")])
    said = capsys.readouterr().err
    assert "there is no store at" in said and "Traceback" not in said and not (tmp_path / "site").exists()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt install chromium)")
def test_the_site_is_walked_on_a_phone(made):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
        page = context.new_page()
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto((made / "index.html").as_uri())
        fits = "document.documentElement.scrollWidth <= 390"
        assert page.evaluate(fits) and page.locator(".card").count() == 2
        assert page.locator(".card img").first.evaluate("e => e.complete && e.naturalWidth > 100")
        page.locator(".card h2 a", has_text="Synthetic").tap()
        page.wait_for_url("**/studies/synthetic/report.html")
        assert page.evaluate(fits)
        with page.expect_download() as begun:
            page.locator("#downloads a", has_text="results.csv").tap()
        assert Path(begun.value.path()).read_bytes() == (made / "studies/synthetic/results.csv").read_bytes()
        page.get_by_text("All studies").tap()
        page.wait_for_url("**/index.html")
        page.locator(".card h2 a", has_text="onerror").tap()
        page.wait_for_url("**/synthetic-2/report.html")
        assert page.evaluate("window.hacked") is None and page.evaluate(fits)
        assert faults == []
        browser.close()

"""The page: complete, self-contained, escaped, and every number leads to its trials."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import synthetic
from hand_made import QuickStore, add_study, asked, results_of, trial_hash

from reports import write_reports
from reports.comparison.protocol import differences
from reports.page.page import write_page
from reports.tables.paper import paper_tables
from reports.tables.study import study_tables
from sweep.store.records.search import SearchRecord
from sweep.studies.model import Study
from sweep.trials import cells as plan
from tests.records import manifest

HOSTILE = '</script><img src=x onerror="hacked=1">\'"&amp;{{7*7}}'


class Reader(HTMLParser):
    """Tags, attributes and text of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def page_of(store: Path, out: Path, figures: list[Path] | None = None) -> str:
    results = results_of(store)
    tables = [table for study in results.data.manifests for table in study_tables(results, study)] + paper_tables(
        results
    )
    path = write_page(results, tables, figures or [], out)
    assert path == out / "report.html"
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("page")
    synthetic.write_store(folder / "store")
    return page_of(folder / "store", folder)


def test_page_asks_the_network_for_nothing(page):
    reader = Reader(page)
    for _, attributes in reader.tags:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), attributes
    assert "@import" not in page and "url(" not in page and not reader.all("link")


def test_policy_allows_this_script_and_this_style_only(page):
    (policy,) = [tag["content"] for tag in Reader(page).all("meta") if tag.get("http-equiv")]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"<[^>]+\s(style|on\w+)=", page)


def test_every_cell_leads_to_its_trials(page):
    reader = Reader(page)
    ids = [attributes["id"] for _, attributes in reader.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    cells = [tag for tag in reader.all("a") if tag.get("class") == "cell"]
    assert len(cells) >= 3 * len(synthetic.METHODS)
    assert {tag["href"].removeprefix("#") for tag in cells} <= set(ids)
    sovr = next(tag for tag in cells if tag["data-title"] == "SOVR, AutoAttack")
    assert re.fullmatch(r"seed 0: [\d.]+, seed 1: [\d.]+, seed 2: [\d.]+", sovr["data-values"])


def test_trials_name_seed_hyperparameters_commit_versions_device_and_time(page):
    (block,) = re.findall(r'<details class="trials" id="trials-0-8" .*?</pre></details>', page, re.DOTALL)
    text = Reader(block).text
    for expected in ("M = 40, lam = 0.4", "0123456789ab", "torch 2.13.0", "cpu (2 threads)", "62 s", "--methods sovr",
                     trial_hash("synthetic", "sovr", 1)[:16]):  # fmt: skip
        assert expected in text, expected


def test_tables_show_the_numbers_of_the_report_with_methods_down(page, tmp_path):
    synthetic.write_store(tmp_path / "store")
    results = results_of(tmp_path / "store")
    main = study_tables(results, "synthetic")[0]
    (shown,) = re.findall(r'<table class="results sortable copied" id="table-0".*?</table>', page, re.DOTALL)
    rows = {row[0]: row[1] for row in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', shown, re.DOTALL)}
    assert list(rows) == [column.header for column in main.columns]
    for index, column in enumerate(main.columns):
        text = Reader(rows[column.header]).text
        for line in main.blocks[0].rows:
            assert line.cells[index].text in text
    assert "highest mean of its column" in page and "of its row" not in page


def page_without_autoattack(folder: Path, accuracies: dict[str, list[float | None]], *left: str) -> str:
    """A study that never asked for AutoAttack, nor for what else is not `left`."""
    store = QuickStore(folder / "store")
    add_study(store, "one", accuracies, attacks=asked(*left))
    for path in store.paths("evaluations"):
        if not any(attack.id in path for attack in asked(*left)):
            store.delete(path)
    return Reader(page_of(folder / "store", folder)).text


def test_the_page_names_the_attack_of_its_headline_and_tests_the_same(tmp_path):
    accuracies: dict[str, list[float | None]] = {"at": [0.480, 0.482, 0.478], "sovr": [0.494, 0.497, 0.491]}
    text = page_without_autoattack(tmp_path, accuracies, "clean", "pgd-20")
    assert "most robust under PGD-20 is SOVR with 51.4±0.3 %." in text and "under AutoAttack is" not in text
    assert "How sure is that?" in text and "PGD-20: against AT" in text and "Better than AT : SOVR" in text


def test_a_name_with_a_comma_is_one_name_among_others(tmp_path):
    accuracies: dict[str, list[float | None]] = {
        "at": [0.48, 0.481, 0.482],
        "sovr": [0.48, 0.483, 0.481],
        "ovr": [0.481, 0.48, 0.483],
    }
    add_study(QuickStore(tmp_path / "store"), "one", accuracies, names={"sovr": "SOVR, tuned"})
    write_reports(str(tmp_path / "store"), None, tmp_path, figures=False)
    assert "not decided against AT: OVR, “SOVR, tuned” (" in (tmp_path / "tables.md").read_text("utf-8")
    assert "Undecided against AT : OVR, “SOVR, tuned”." in Reader(page_of(tmp_path / "store", tmp_path)).text


def test_the_page_calls_no_clean_accuracy_robust(tmp_path):
    text = page_without_autoattack(tmp_path, {"at": [0.48], "sovr": [0.49]}, "clean")
    assert "most accurate on clean images is AT with 90.0 % (n=1), SOVR with 90.0 % (n=1)." in text


def test_the_page_underlines_nothing_that_no_test_compared(tmp_path):
    store = QuickStore(tmp_path / "store")
    add_study(store, "one", {"at": [0.48], "sovr": [0.49]})
    page = page_of(tmp_path / "store", tmp_path)
    assert "number best" in page and "number tied" not in page and "No test was possible" in page


def test_a_difference_that_rounds_to_zero_shows_its_first_digit(tmp_path):
    store = QuickStore(tmp_path / "store")
    # 0.03 points between the means.
    add_study(store, "one", {"at": [0.480, 0.482, 0.478], "sovr": [0.480, 0.482, 0.477]})
    page = page_of(tmp_path / "store", tmp_path)
    assert ">−0.03</td>" in page and "−0.0<" not in page


def test_failed_trials_are_listed_with_reason_log_and_command(page):
    (section,) = re.findall(r'<section id="failed">.*?</section>', page, re.DOTALL)
    text = Reader(section).text
    assert "RuntimeError: out of memory" in text and "epoch 3" in text
    assert "python -m sweep.run --study synthetic --methods mma --seeds 2 --retry-failed" in text


def test_searches_show_candidates_and_the_choice(page):
    text = Reader(page).text
    assert "Search: TSOVR" in text and "highest validation_pgd_accuracy of 11 candidates" in text
    assert page.count('class="chosen"') == 2


def test_page_of_an_empty_store_says_how_to_begin(tmp_path):
    (tmp_path / "store").mkdir()
    assert "python -m sweep.run" in page_of(tmp_path / "store", tmp_path)


def test_broken_records_are_listed(tmp_path):
    store = synthetic.write_store(tmp_path / "store", methods={"at": synthetic.METHODS["at"]})
    trial = trial_hash("synthetic", "at", 1)[:16]
    store.write(f"trials/{trial}/record.json", b"{half a rec")
    text = Reader(page_of(tmp_path / "store", tmp_path)).text
    assert f"trials/{trial}/record.json" in text and "Records left out" in text


def test_hostile_names_stay_text(tmp_path):
    methods = {HOSTILE: (HOSTILE, "sovr", {HOSTILE: HOSTILE}, *synthetic.METHODS["sovr"][3:])}
    store = synthetic.write_store(
        tmp_path / "store", title=HOSTILE, methods={**methods, "at": synthetic.METHODS["at"]}, failed=((HOSTILE, 1),)
    )
    for record in list(store.records(SearchRecord, store.paths("searches"))):
        evil = {"reason": HOSTILE, "label": HOSTILE, "chosen": {HOSTILE: HOSTILE}}
        store.write_record(record.model_copy(update=evil))
    for seed in (0, 1):
        evil = {"reason": HOSTILE, "command": HOSTILE, "device": HOSTILE, "commit": HOSTILE, "log": (HOSTILE,)}
        record = store.trial_record(trial_hash("synthetic", HOSTILE, seed))
        store.write_record(record.model_copy(update={**evil, "versions": {HOSTILE: HOSTILE}}))
    page = page_of(tmp_path / "store", tmp_path)
    reader = Reader(page)
    assert len(reader.all("script")) == 1 and not reader.all("img")
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert reader.text.count('onerror="hacked=1"') >= 8
    assert "{{7*7}}" in page and ">49<" not in page


def test_protocol_differences_name_the_usual_value_and_the_exceptions():
    configs = {label: synthetic.trial_config(label, {}) for label in ("at", "mart", "sovr", "trades")}
    names = {"sovr": "SOVR", "mart": "MART"}
    found = {one.setting: one for one in differences(manifest(config_by_label=configs), names)}
    assert found["initial learning rate"].usual == "0.1"
    assert found["initial learning rate"].exceptions == (("0.05", ("SOVR",)),)
    assert found["inputs standardised"].exceptions == (("no", ("trades",)),)
    assert found["BatchNorm mode during the training attack"].exceptions == (("eval", ("MART", "trades")),)
    assert found["learning-rate schedule"].usual == "×0.1 from epoch 15, ×0.01 from epoch 22 (0-based, per iteration)"
    assert "momentum" not in found


def test_protocol_differences_use_the_methods_own_attack_where_the_study_leaves_it_to_them():
    configs = {label: synthetic.trial_config("at", {}, mode="method") for label in ("at", "mart")}
    inner = {"at": {"start": "uniform", "mode": "train"}, "mart": {"start": "gauss", "mode": "eval"}}
    found = {one.setting: one for one in differences(manifest(config_by_label=configs, inner_attacks=inner), {})}
    assert found["BatchNorm mode during the training attack"].exceptions == (("eval", ("mart",)),)
    assert found["start of the training attack"].usual == "uniform"


def test_a_real_studys_manifest_tells_the_batchnorm_modes_apart():
    study = Study.load("digits")
    found = {one.setting: one for one in differences(plan.manifest(study, plan.expand(study)), {})}
    mode = found["BatchNorm mode during the training attack"]
    assert mode.usual == "train"
    ((value, rows),) = mode.exceptions
    assert value == "eval" and {"mart", "trades", "gairat"} <= set(rows) and not {"at", "sovr"} & set(rows)


def test_rows_trained_alike_have_no_differences():
    configs = {label: synthetic.trial_config("at", {"M": index}) for index, label in enumerate(("a", "b"))}
    assert differences(manifest(config_by_label=configs), {}) == []

"""The worst that is known of a model, on hand-made verdicts; who breaks whom, as percentages of what is right."""

import numpy as np
import pytest
from hand_made import QuickStore, add_study, results_of

from reports.analysis.transfers import Transfers
from reports.page.tables import page_table
from reports.tables.study import study_tables
from reports.tables.transfers import transfer_table
from sweep.store.records.transfer import Transfer
from sweep.store.verdicts import pack
from tests import records
from trainers.attacks import parse

IMAGES = 1000


def bits(*places: int, images: int = IMAGES) -> np.ndarray:
    found = np.zeros(images, bool)
    found[list(places)] = True
    return found


def tried(trial: str, fooled: np.ndarray, attack: str = "autoattack", first: int = 0, right: int = 900) -> Transfer:
    return Transfer(
        trial=trial,
        checkpoint="best_test",
        attack=attack,
        sha256="d" * 64,
        first=first,
        images=len(fooled),
        right=right,
        tried=pack(np.ones(len(fooled), bool)),
        fooled=pack(fooled),
    )


@pytest.fixture
def made(tmp_path):
    """Two columns of one seed; AutoAttack leaves images 0 to 499 of AT, and 0 to 399 of SOVR."""
    store = QuickStore(tmp_path)
    add_study(store, "small", {"at": [0.5], "sovr": [0.4]})
    results = results_of(store)
    trials = {label: results.seeds("small", label)[0].trial for label in ("at", "sovr")}
    return store, trials


def whole(store, short: str) -> str:
    return store.trial_record(short).trial


def test_images_that_transfers_break_are_counted_once_and_only_if_autoattack_left_them(made):
    store, trials = made
    found = (
        tried(whole(store, trials["sovr"]), bits(3, 4, 600)),  # 600 had fallen to AutoAttack
        tried(whole(store, trials["sovr"]), bits(4, 5), attack="pgd-20"),
    )
    store.write_record(records.transfer_record(whole(store, trials["at"]), transfers=found))
    transfers = Transfers(results_of(store), "small")
    known = transfers.worst_known(trials["at"])
    assert known.fallen == 3 and known.accuracy == pytest.approx(0.497)
    assert transfers.share(trials["sovr"], trials["at"]) == pytest.approx(100 * 4 / 900)
    assert transfers.share(trials["at"], trials["sovr"]) is None and transfers.worst_known(trials["sovr"]) is None
    rows = {row.header: row for row in study_tables(results_of(store), "small")[0].blocks[0].rows}
    texts = {cell.key.label: cell.text for cell in rows["Worst known"].cells}
    assert texts == {"at": "49.7 (3 fell)", "sovr": ""} and list(rows)[:2] == ["AutoAttack", "Worst known"]


def test_other_attacks_count_and_other_images_are_put_in_their_place(made):
    store, trials = made
    trial = whole(store, trials["at"])
    attack = parse("fgsm", images=(400, 600))
    fell = records.evaluation_record(trial, attack, 0.99, images=200, clean=1.0)
    store.write_record(fell.model_copy(update={"verdicts": pack(~bits(50, 51, images=200))}))
    moved = tried(whole(store, trials["sovr"]), bits(0, 7, images=10), first=490, right=9)
    store.write_record(records.transfer_record(trial, transfers=(moved,)))
    known = Transfers(results_of(store), "small").worst_known(trials["at"])
    assert np.flatnonzero(known.reference & ~known.left).tolist() == [450, 451, 490, 497]


def test_nothing_is_marked_where_nothing_fell(made):
    store, trials = made
    nothing = (tried(whole(store, trials["sovr"]), bits(700)),)
    store.write_record(records.transfer_record(whole(store, trials["at"]), transfers=nothing))
    rows = {row.header: row for row in study_tables(results_of(store), "small")[0].blocks[0].rows}
    assert rows["Worst known"].cells[0].text == "50.0"


def test_the_page_shows_who_breaks_whom_as_its_caption_says(made):
    """Counterexamples of a row's model, tried on a column's: other tables of the page have their methods down."""
    store, trials = made
    found = (tried(whole(store, trials["sovr"]), bits(3, 4)),)
    store.write_record(records.transfer_record(whole(store, trials["at"]), transfers=found))
    matrix = transfer_table(results_of(store), "small", ["at", "sovr"])
    page = page_table(matrix, "matrix", {})
    shown = {header: [cell.cell.text for cell in cells] for header, cells in page.bodies[0].rows}
    assert (page.corner, page.heads) == ("Counterexamples of", ("AT", "SOVR"))
    assert shown["SOVR"][0].startswith("0.2") and not shown["AT"][1].startswith("0.2")

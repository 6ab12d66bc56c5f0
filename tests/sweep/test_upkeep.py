"""retry, gc and merge: what they touch and, above all, what they leave."""

import json
import os
import time

import pytest

from sweep import merge as merging
from sweep import upkeep
from sweep.errors import UserError
from sweep.store.base import Store, open_store
from sweep.studies.model import Study
from sweep.trials import cells as plan
from trainers.checkpoint import replacing

# So that tables need `best_test` alone.
PAPER = ("selection.protocol=paper", "selection.validation=0", "evaluation.diagnostics=false")


def fill(folder, *, curve=0.5, status="done", methods=("at", "trades"), settings=()) -> tuple[Store, list[plan.Cell]]:
    store = open_store(folder)
    study = Study.load("digits", methods=methods, seeds=[0, 1], overrides=[*PAPER, *settings])
    cells = plan.expand(study)
    for cell in cells:
        place = f"trials/{cell.trial[:16]}"
        for name in ("last", "best_test", "best_validation"):
            store.write(f"{place}/{name}.safetensors", b"w" * 100)
        store.write(f"{place}/resume.pt", b"r" * 1000)
        store.write(f"{place}/log.txt", b"log")
        store.write_trial_record(trial(cell, curve=curve, status=status))
        store.write_json(f"evaluations/{cell.trial[:16]}/best_test/clean-1.json", evaluation(cell, curve))
    store.write_manifest(plan.manifest(study, cells))
    return store, cells


def trial(cell, *, curve=0.5, status="done", seconds=1.0) -> dict:
    return {
        "kind": "trial",
        "format": 1,
        "trial": cell.trial,
        "config": cell.config.model_dump(mode="json"),
        "numerics": 1,
        "status": status,
        "curve": [{"epoch": 0, "test_pgd_accuracy": curve, "seconds": seconds}],
        "checkpoints": {"last": {"epoch": 0, "sha256": "x"}},
        "wall_seconds": seconds,
    }


def evaluation(cell, accuracy) -> dict:
    return {"kind": "evaluation", "format": 1, "trial": cell.trial, "accuracy": accuracy, "wall_seconds": time.time()}


def contents(store: Store) -> dict[str, bytes]:
    return {path: store.read(path) for path in store.list()}


def age(store: Store, path: str) -> None:
    os.utime(store.local(path), (time.time() - 7200,) * 2)


# retry


def test_retry_frees_failed_trials_and_keeps_their_story(tmp_path):
    store, cells = fill(tmp_path)
    place = cells[0].trial[:16]
    store.write_trial_record(trial(cells[0], status="failed"))
    assert upkeep.retry(str(tmp_path), None, None, None, dry_run=True) == [place]
    assert store.trial_states()[place] == "failed"
    assert upkeep.retry(str(tmp_path), "digits", "at", "0") == [place]
    assert place not in store.trial_states() and len(store.trial_states()) == 3
    assert json.loads(store.read(f"trials/{place}/failed-1.json"))["status"] == "failed"
    assert store.exists(f"trials/{place}/resume.pt")
    assert plan.states(cells, store) == ["missing", "done", "done", "done"]


def test_retry_leaves_other_methods_seeds_and_outcomes_alone(tmp_path):
    store, cells = fill(tmp_path)
    store.write_trial_record(trial(cells[0], status="failed"))
    store.write_trial_record(trial(cells[1], status="collapsed"))
    assert upkeep.retry(str(tmp_path), None, "trades", None) == []
    assert upkeep.retry(str(tmp_path), None, "at", "1") == []
    with pytest.raises(UserError, match="did you mean 'trades'"):
        upkeep.retry(str(tmp_path), None, "tradse", None)
    for empty in ("", " , "):
        with pytest.raises(UserError, match="names no method"):
            upkeep.retry(str(tmp_path), None, empty, None)
    with pytest.raises(UserError, match="did you mean 'digits'"):
        upkeep.retry(str(tmp_path), "digit", None, None)


# gc


def test_gc_keeps_what_tables_and_unfinished_trials_need(tmp_path, capsys):
    store, cells = fill(tmp_path)
    unfinished = cells[3].trial[:16]
    store.delete(f"trials/{unfinished}/record.json")
    before = contents(store)
    freed = upkeep.gc(str(tmp_path), dry_run=True)
    assert contents(store) == before and freed == 3 * (1000 + 200)
    assert upkeep.gc(str(tmp_path)) == freed and f"({freed} bytes)" in capsys.readouterr().out
    left = set(store.list("trials"))
    for cell in cells[:3]:
        assert {path for path in left if cell.trial[:16] in path} == {
            f"trials/{cell.trial[:16]}/{name}" for name in ("record.json", "log.txt", "best_test.safetensors")
        }
    assert {path for path in before if unfinished in path} == {path for path in store.list() if unfinished in path}
    assert upkeep.gc(str(tmp_path)) == 0


def test_gc_keeps_every_checkpoint_that_some_study_evaluates(tmp_path):
    store, cells = fill(tmp_path, settings=["evaluation.checkpoints=[headline, last]"])
    upkeep.gc(str(tmp_path))
    kept = [path for path in store.list("trials") if path.endswith(".safetensors")]
    assert len(kept) == 2 * len(cells) and not any("best_validation" in path for path in kept)


def test_gc_with_keep_all_deletes_no_checkpoint(tmp_path):
    store, _ = fill(tmp_path)
    assert upkeep.gc(str(tmp_path), keep="all") == 4 * 1000
    assert sum(path.endswith(".safetensors") for path in store.list()) == 12


def test_gc_sweeps_old_leftovers_but_nothing_that_may_be_in_use(tmp_path):
    store, cells = fill(tmp_path)
    upkeep.gc(str(tmp_path))
    place = f"evaluations/{cells[0].trial[:16]}/best_test"
    merged, open_shard = f"{place}/clean-1/shard-0-9.json", f"{place}/pgd-1/shard-0-9.json"
    claim = {"host": "elsewhere", "pid": 1, "owner": "o"}
    live, dead = "claims/trials-live.1.json", "claims/trials-dead.1.json"
    for path, data in (
        (merged, b"1"),
        (open_shard, b"2"),
        (live, json.dumps({**claim, "expires": time.time() + 60}).encode()),
        (dead, json.dumps({**claim, "expires": 1.0}).encode()),
    ):
        store.write(path, data)
    temporary = store.local("trials/.record.json.abc.tmp")
    temporary.write_bytes(b"half")
    weights = killed_while_writing(store.local("trials/last.safetensors"))
    assert upkeep.gc(str(tmp_path)) == 0
    for path in (merged, open_shard, live, dead, "trials/.record.json.abc.tmp", f"trials/{weights.name}"):
        age(store, path)
    upkeep.gc(str(tmp_path))
    assert [store.exists(path) for path in (merged, open_shard, live, dead)] == [False, True, True, False]
    assert not temporary.exists() and not weights.exists()


def killed_while_writing(path):
    """What a training leaves that is killed while it saves."""
    with replacing(path):
        (temporary,) = path.parent.glob(f".{path.name}*")
        copy = temporary.read_bytes()
    path.unlink()
    temporary.write_bytes(copy)
    return temporary


# merge


def test_merge_brings_everything_of_disjoint_stores_together(tmp_path):
    one, _ = fill(tmp_path / "one", methods=("at",))
    two, cells = fill(tmp_path / "two", methods=("trades",))
    assert merging.merge(str(tmp_path / "all"), [one.uri, two.uri], dry_run=True) == 9
    assert not (tmp_path / "all").exists()
    assert merging.merge(str(tmp_path / "all"), [one.uri, two.uri]) == 9
    target = open_store(tmp_path / "all")
    expected = {p: d for store in (one, two) for p, d in contents(store).items() if not p.startswith("studies/")}
    found = {path: data for path, data in contents(target).items() if not path.startswith("studies/")}
    assert found == {path: data for path, data in expected.items() if not path.endswith("resume.pt")}
    assert {cell["label"] for cell in target.manifest("digits")["cells"]} == {"at", "trades"}
    assert set(target.trial_states().values()) == {"done"}
    assert merging.merge(str(tmp_path / "all"), [one.uri, two.uri]) == 0


def test_merge_takes_the_same_outcome_of_two_computations_once(tmp_path):
    one, cells = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two")
    two.write_trial_record(trial(cells[0], seconds=99.0))
    before = contents(one)
    merging.merge(one.uri, [two.uri])
    assert contents(one) == before


def test_merge_refuses_conflicts_with_both_sides_named_before_writing_anything(tmp_path):
    one, cells = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", methods=("at", "trades", "mart"))
    two.write_trial_record(trial(cells[0], curve=0.6))
    two.write_json(f"evaluations/{cells[1].trial[:16]}/best_test/clean-1.json", evaluation(cells[1], 0.7))
    before = contents(one)
    with pytest.raises(UserError) as caught:
        merging.merge(one.uri, [two.uri])
    message = str(caught.value)
    assert one.uri in message and two.uri in message
    assert f"trials/{cells[0].trial[:16]}/record.json: two different outcomes of one trial" in message
    assert f"evaluations/{cells[1].trial[:16]}" in message and message.count("two different outcomes") == 2
    assert contents(one) == before


def test_merge_sees_conflicts_between_two_sources(tmp_path):
    one, cells = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", curve=0.9)
    with pytest.raises(UserError, match="contradict each other"):
        merging.merge(str(tmp_path / "all"), [one.uri, two.uri])
    assert not (tmp_path / "all").exists()


def test_merge_prefers_what_is_done_to_what_failed(tmp_path):
    one, cells = fill(tmp_path / "one", status="failed")
    two, _ = fill(tmp_path / "two")
    merging.merge(one.uri, [two.uri])
    assert set(one.trial_states().values()) == {"done"}
    three, _ = fill(tmp_path / "three", status="failed")
    merging.merge(one.uri, [three.uri])
    assert set(one.trial_states().values()) == {"done"}


def test_merge_refuses_one_name_for_two_studies(tmp_path):
    one, _ = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", settings=["train.epochs=3"])
    with pytest.raises(UserError, match="studies/digits.json: the same name for two different studies"):
        merging.merge(one.uri, [two.uri])


def test_merge_refuses_one_column_for_two_kinds_of_trials(tmp_path):
    one, _ = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", settings=["methods.trades.hyperparameters.beta=3"])
    with pytest.raises(UserError, match="different trials under 'trades' seed 0"):
        merging.merge(one.uri, [two.uri])


def test_merge_refuses_broken_records_itself_and_the_future(tmp_path):
    one, cells = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two")
    with pytest.raises(UserError, match="into itself"):
        merging.merge(one.uri, [str(tmp_path / "two" / ".." / "one")])
    two.write_trial_record({**trial(cells[0]), "format": 99})
    with pytest.raises(UserError, match="newer version"):
        merging.merge(one.uri, [two.uri])
    two.write(f"trials/{cells[0].trial[:16]}/record.json", b"{")
    with pytest.raises(UserError, match="broken record"):
        merging.merge(one.uri, [two.uri])

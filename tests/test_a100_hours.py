"""CLUSTER.md's table of hours is what the code counts."""

from pathlib import Path

from benchmarks.a100_hours import COLUMNS, of_gpus, row

DOCUMENT = (Path(__file__).parents[1] / "CLUSTER.md").read_text()


def test_the_document_has_a_row_for_every_study_of_a_gpu_and_two_of_them_are_what_is_counted():
    lines = DOCUMENT.splitlines()
    head = lines.index("| " + " | ".join(COLUMNS) + " |")
    rows = lines[head + 2 : lines.index("", head)]
    assert [line.split(" | ")[0].removeprefix("| ") for line in rows] == of_gpus()
    for name in ("cifar10_rn18", "trajectories_svhn_rn18"):
        assert "| " + " | ".join(row(name)) + " |" in rows

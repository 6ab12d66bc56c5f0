"""A file that was asked for is there as a whole, or as it was before."""

import os
from pathlib import Path

import pytest

from sweep.store.files import replacing, write_text


def test_a_write_that_fails_leaves_the_file_as_it_was_and_names_it(tmp_path: Path) -> None:
    path = tmp_path / "tables.md"
    write_text(path, "whole")
    with pytest.raises(OSError) as caught, replacing(path) as stream:
        stream.write(b"half of")
        raise OSError(28, os.strerror(28))
    assert caught.value.filename == str(path)
    with pytest.raises(KeyboardInterrupt), replacing(path):
        raise KeyboardInterrupt
    assert path.read_text() == "whole" and os.listdir(tmp_path) == ["tables.md"]


def test_a_link_is_followed_and_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    write_text(tmp_path / "link.md", "ε")
    assert (tmp_path / "link.md").is_symlink() and (tmp_path / "real.md").read_bytes() == "ε".encode()
    write_text(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()


def test_a_name_as_long_as_a_disk_allows_can_be_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 255), "text")
    with pytest.raises(OSError, match="n{256}"):
        write_text(tmp_path / ("n" * 256), "text")
    assert len(os.listdir(tmp_path)) == 1


def test_no_planted_link_is_followed_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (tmp_path / f".tables.csv.{os.getpid()}.tmp").symlink_to("secret")
    write_text(tmp_path / "tables.csv", "text")
    assert (tmp_path / "secret").read_text() == "mine"
    assert (tmp_path / "tables.csv").read_text() == "text" and not (tmp_path / "tables.csv").is_symlink()

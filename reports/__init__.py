"""Records in; tables, tests, figures and the page out. Loads neither torch nor ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_reports(
    store_uri: str | Path,
    studies: Sequence[str] | None,
    out: Path | str = "reports",
    figures: bool = True,
    keep_current: bool = False,
    paper: str | Path | None = None,
) -> list[Path]:
    """Everything that can be said about these studies (all, if None), written to `out`; returns the files.

    With `keep_current`, figures and page are not drawn again if no record has changed since. `paper` is the name or
    folder of the one whose tables and claims are shown, else the default one.
    """
    # Imported late: `import reports` must stay light for those who only want the name.
    from reports.writing import write

    return write(store_uri, studies, Path(out), figures=figures, keep_current=keep_current, paper=paper)

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

    With `keep_current`, nothing is made again if no record has changed since, and no line of the code that shows them.
    `paper` is the name or folder of the one whose tables and claims are shown, else the default one.
    """
    # Imported late: `import reports` must stay light for those who only want the name, and a current report too.
    from reports.freshness import current_files, fingerprint, write_note

    out = Path(out)
    # Before the records are read: one that arrives meanwhile makes the next report a new one.
    source = fingerprint(store_uri, studies, paper) if figures else ""
    if figures and keep_current and (current := current_files(out, source)):
        return current
    from reports.writing import write

    written = write(store_uri, studies, out, figures=figures, paper=paper)
    if figures:
        write_note(out, source, written)
    return written

"""Turn stored records into tables, tests, figures and an HTML page. Loads neither torch nor Ray."""

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
    """Write tables, figures and the page to `out` and return the paths of the files.

    studies: names of the studies to show; None shows every study of the store.
    figures: draw the figures and the page too.
    keep_current: return the existing files if neither the records nor the code that shows them have changed.
    paper: name or folder of the paper to compare with; None uses those that the studies name.
    """
    # Imported late: neither `import reports` nor a report that is still current needs the heavy modules.
    from reports.store.freshness import current_files, fingerprint, write_note

    out = Path(out)
    # Taken before the records are read: a record that arrives meanwhile then makes this report outdated.
    source = fingerprint(store_uri, studies, paper) if figures else ""
    if figures and keep_current and (current := current_files(out, source)):
        return current
    from reports.writing import write

    written = write(store_uri, studies, out, figures=figures, paper=paper)
    if figures:
        write_note(out, source, written)
    return written

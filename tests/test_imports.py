"""Imports point one way, those inside of functions and for types alone included."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEAVES = ("sweep.bulk", "sweep.commands", "sweep.errors", "sweep.listing")
NAMES = "application run decide plan status explain new evaluate check submit retry gc merge verify_store cli __main__"
COMMANDS = (*(f"sweep.{name}" for name in [*NAMES.split(), "verify", "transfer"]), "reports.__main__")
# Each may import those before it; reports stand aside.
ORDER = (
    *(("search_spaces",), ("trainers",), LEAVES, ("sweep.repeated",), ("sweep.store",), ("sweep.studies",)),
    *(("sweep.trials",), ("sweep.search", "sweep.evaluation"), ("sweep.work",), ("sweep.cluster",)),
    *(("sweep.planning",), ("sweep.engine",), ("sweep.submission",), ("sweep.claim",), ("sweep.deciding",), COMMANDS),
)
ENGINE = ("sweep.engine", "sweep.claim", "sweep.deciding")
LEVELS = {package: level for level, packages in enumerate(ORDER) for package in packages}
ALLOWED = {package: {other for other in LEVELS if LEVELS[other] < level} for package, level in LEVELS.items()}
ALLOWED |= {package: {*ALLOWED[package], "reports"} for package in (*ENGINE, *COMMANDS)}
ALLOWED |= {package: {*ALLOWED[package], *COMMANDS} for package in COMMANDS}
# The Python interface stands above all but the commands.
ALLOWED["robustsweep"] = {*LEVELS, "reports"} - {*COMMANDS}
ALLOWED["reports"] = {"search_spaces", "trainers", "sweep.store", "sweep.studies", *LEAVES}


def imports(file: Path, *, types: bool) -> set[str]:
    """Return what a file imports anywhere, inside of functions included; `types` adds what only annotations need."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    for_types = [node for node in nodes if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    skipped = set() if types else {id(node) for block in for_types for node in ast.walk(block)}
    nodes = [node for node in nodes if id(node) not in skipped]
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    # Of a package that is imported from, its own file is loaded too.
    names = {f"{node.module}.{name.name}" for node in froms for name in node.names}
    return plain | {str(node.module) for node in froms} | names


def package(module: str) -> str | None:
    return next((name for name in ALLOWED if f"{module}.".startswith(f"{name}.")), None)


FILES = [
    file.relative_to(ROOT)
    for top in ("search_spaces", "trainers", "sweep", "reports", "robustsweep")
    for file in (ROOT / top).rglob("*.py")
]
MODULES = {".".join(file.with_suffix("").parts).removesuffix(".__init__"): file for file in FILES}


def graph(*, types: bool) -> dict[str, set[str]]:
    """Return which of our modules each of them imports."""
    every = {module: imports(ROOT / file, types=types) for module, file in MODULES.items()}
    return {module: (names & MODULES.keys()) - {module} for module, names in every.items()}


def test_imports_point_one_way():
    targets = graph(types=True)
    pairs = [(module, target) for module in targets for target in targets[module] if package(target)]
    upwards = [pair for pair in pairs if package(pair[1]) not in {package(pair[0]), *ALLOWED[package(pair[0])]}]
    assert not upwards, "\n".join(f"{module} imports {target}" for module, target in sorted(upwards))


def test_the_diagram_in_contributing_shows_which_package_imports_which():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    arrows = set(re.findall(r"^    ([\w.]+)(?:\[.*\])? --> ([\w.]+)$", text, re.MULTILINE))
    drawn = {name for arrow in arrows for name in arrow}

    def box(module: str) -> str | None:
        return next((name for name in drawn if f"{module}.".startswith(f"{name}.")), None)

    targets = graph(types=True)
    real = {(box(module), box(target)) for module in targets for target in targets[module]}
    real = {(one, other) for one, other in real if one and other and one != other}
    below = {name: {name} for name in drawn}  # what an arrow, or several, lead to
    for name in TopologicalSorter(
        {name: {other for one, other in arrows if one == name} for name in drawn}
    ).static_order():
        below[name] |= {deep for one, other in arrows if one == name for deep in below[other]}
    assert len(drawn) > 10 and arrows <= real, f"drawn, but no import: {arrows - real}"
    missing = {(one, other) for one, other in real if other not in below[one]}
    assert not missing, f"imported, but not drawn: {missing}"


def test_no_import_leads_back_to_its_own_file():
    TopologicalSorter(graph(types=False)).prepare()


@pytest.mark.parametrize("folder", ["sweep/store", "sweep/studies", "sweep/trials", "sweep/evaluation", "sweep/work"])
def test_what_a_piece_does_needs_no_ray(folder):
    """Not even inside of functions: a debugger, a notebook and `sweep run --local` call it without a cluster."""
    files = sorted((ROOT / folder).rglob("*.py"))
    wanted = [file.name for file in files if any(f"{name}.".startswith("ray.") for name in imports(file, types=True))]
    assert files and not wanted

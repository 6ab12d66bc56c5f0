"""Imports point one way, those inside of functions included."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEAVES = ("sweep.bulk", "sweep.commands", "sweep.errors", "sweep.listing")
NAMES = "application run decide plan status explain new evaluate check submit retry gc merge verify_store cli __main__"
COMMANDS = (*(f"sweep.{name}" for name in [*NAMES.split(), "verify", "transfer"]), "reports.__main__")
# Each may import those before it; reports stand aside.
ORDER = (
    *(
        ("search_spaces",),
        ("trainers",),
        LEAVES,
        ("sweep.repeated",),
        ("sweep.store",),
        ("sweep.studies",),
        ("sweep.trials",),
    ),
    *(
        ("sweep.search", "sweep.evaluation"),
        ("sweep.work",),
        ("sweep.cluster",),
        ("sweep.engine",),
        ("sweep.claim",),
        ("sweep.deciding",),
        COMMANDS,
    ),
)
ENGINE = ("sweep.engine", "sweep.claim", "sweep.deciding")
LEVELS = {package: level for level, packages in enumerate(ORDER) for package in packages}
ALLOWED = {package: {other for other in LEVELS if LEVELS[other] < level} for package, level in LEVELS.items()}
ALLOWED |= {package: {*ALLOWED[package], "reports"} for package in (*ENGINE, *COMMANDS)}
ALLOWED |= {package: {*ALLOWED[package], *COMMANDS} for package in COMMANDS}
# The Python interface stands above all but the commands.
ALLOWED["robustsweep"] = {*LEVELS, "reports"} - {*COMMANDS}
ALLOWED["reports"] = {"search_spaces", "trainers", "sweep.store", "sweep.studies", *LEAVES}


def imports(file: Path) -> set[str]:
    """What a file imports anywhere, but for types alone."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    for_types = [one for one in nodes if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test)]
    skipped = {id(node) for block in for_types for node in ast.walk(block)}
    plain = {name.name for one in nodes if isinstance(one, ast.Import) and id(one) not in skipped for name in one.names}
    froms = [one for one in nodes if isinstance(one, ast.ImportFrom) and id(one) not in skipped]
    # Of a package that is imported from, its own file is loaded too.
    return (
        plain
        | {str(one.module) for one in froms}
        | {f"{one.module}.{name.name}" for one in froms for name in one.names}
    )


def package(module: str) -> str | None:
    return next((name for name in ALLOWED if f"{module}.".startswith(f"{name}.")), None)


FILES = [
    file.relative_to(ROOT)
    for top in ("search_spaces", "trainers", "sweep", "reports", "robustsweep")
    for file in (ROOT / top).rglob("*.py")
]
MODULES = {".".join(file.with_suffix("").parts).removesuffix(".__init__"): imports(ROOT / file) for file in FILES}
GRAPH = {module: (found & MODULES.keys()) - {module} for module, found in MODULES.items()}


def test_imports_point_one_way():
    pairs = [(module, target) for module, targets in GRAPH.items() for target in targets if package(target)]
    upwards = [pair for pair in pairs if package(pair[1]) not in {package(pair[0]), *ALLOWED[package(pair[0])]}]
    assert not upwards, "\n".join(f"{module} imports {target}" for module, target in sorted(upwards))


def test_no_import_leads_back_to_its_own_file():
    TopologicalSorter(GRAPH).prepare()

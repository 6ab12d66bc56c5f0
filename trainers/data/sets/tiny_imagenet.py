"""Tiny-ImageNet (Stanford's CS231n, 2015): 64x64 colour images of two hundred classes, in its original folder."""

from __future__ import annotations

from pathlib import Path

from trainers.dataset import DataMissing, DatasetFacts, DataSource, Parts

FOLDER = "tiny-imagenet-200"
ADDRESS = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"


def labelled(root: Path) -> tuple[list[str], list[tuple[str, int]], list[tuple[str, int]]]:
    """Return class names, training files and validation files, each file with its label.

    The validation images serve as test images. They are either in one folder, with their classes in
    val_annotations.txt, or sorted into one folder per class.
    """
    from trainers.plugins.own import folder

    if not (root / "train").is_dir() or not (root / "val").is_dir():
        raise FileNotFoundError(f"fetch {ADDRESS} and unpack it there")
    if not (root / "val" / "images").is_dir():
        return folder.files_of(root)
    names = sorted(path.name for path in (root / "train").iterdir() if path.is_dir())
    numbers = {name: label for label, name in enumerate(names)}
    lines = (root / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t")[:2] for line in lines if line.strip()]
    test = [(str(root / "val" / "images" / file), numbers[name]) for file, name in sorted(pairs)]
    return names, folder.labelled(root / "train", names), test


def load(folder: Path, download: bool) -> Parts:
    from trainers.plugins.own import cache
    from trainers.plugins.own.folder import reading

    root = folder.absolute() / FOLDER
    names, train, test = labelled(root)
    facts = tiny_imagenet.facts
    if (len(names), len(train), len(test)) != (facts.classes, facts.train_images, facts.test_images):
        raise DataMissing(
            f"{root} holds {len(train)} training and {len(test)} validation images of {len(names)} classes, not "
            f"{facts.train_images}, {facts.test_images} and {facts.classes}; fetch {ADDRESS} again"
        )
    files = [file for file, _ in [*train, *test]]
    entry = cache.entry(
        cache.default_root(),
        cache.key_of("tiny_imagenet", str(root)),
        lambda watched: cache.stamp_of(files),
        lambda: reading(names, train, test, None),
    )
    return cache.mapped(cache.folder_of(cache.default_root(), entry.sha256))


tiny_imagenet = DataSource(
    DatasetFacts(200, (3, 64, 64), 100000, 10000, (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
    display="Tiny-ImageNet",
    load=load,
    files=f"{FOLDER}/{{train, val}}",
)

"""`python -m sweep.evaluate`: attack a checkpoint from the store or from elsewhere, and keep the verdicts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sweep import application
from sweep.application import app
from sweep.errors import UserError


@app.command()
def evaluate(
    checkpoint: Annotated[str, typer.Option(help="Weights: .safetensors or .pt, or TRIAL/best_test of the store.")],
    model: Annotated[str | None, typer.Option(help="A network's name, or factory.py:function of your own.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="A data set's name, folder:PATH, npz:PATH or my_data.py:load.")
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: clean, fgsm, pgd-20, cw-100, spsa, quick, curve, autoattack, autoattack-rand, "
            "square, corruptions, …, or a suite; autoattack@l2:0.5 has its own norm and radius. Default: main, or the "
            "study's."
        ),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Radius of the ball, e.g. 0.031. Default: 8/255, or that of --study.")
    ] = None,
    norm: Annotated[
        str | None, typer.Option(help="linf (default), l2 or l1; or several with as many radii: linf,l2,l1.")
    ] = None,
    images: Annotated[str | None, typer.Option(help="Test images, e.g. 0:1000; all by default.")] = None,
    seed: Annotated[int, typer.Option(help="Of the attacks' randomness.")] = 0,
    shards: Annotated[int, typer.Option(min=1, help="Processes that share the images.")] = 1,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Images at a time; of AutoAttack part of its definition.")
    ] = 256,
    standardize: Annotated[bool, typer.Option(help="Whether a named network standardises its input.")] = True,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    plugin: Annotated[list[str] | None, typer.Option(help="A file with an attack of your own. Repeatable.")] = None,
    study: Annotated[
        str | None, typer.Option(help="Show the model in this study's tables; its attacks, radius and images hold.")
    ] = None,
    display: Annotated[str | None, typer.Option("--as", help="The model's name there, e.g. Madry-CNN.")] = None,
    counterexamples: Annotated[
        bool, typer.Option(help="Keep an adversarial image for each image that an attack fools, for sweep.verify.")
    ] = True,
    store: application.StoreOption = "store",
    data_dir: Annotated[str, typer.Option(help="Where data sets are.")] = "data",
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs: the result alone, on standard output.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Also write the JSON result to this file.")] = None,
) -> None:
    """Evaluate any checkpoint with attacks. The verdict on each image is kept.

    Finished work is never repeated; an interrupted command continues where it stopped.

    \b
    Examples:
      python -m sweep.evaluate --checkpoint net.pt --model preact_resnet18 --dataset cifar10 --images 0:1000
      python -m sweep.evaluate --checkpoint net.safetensors --model my_net.py:build --dataset svhn --attacks autoattack
      python -m sweep.evaluate --checkpoint 3f2a…/best_test --attacks components --epsilon 8/255
      python -m sweep.evaluate --checkpoint 3f2a…/best_test --norm linf,l2,l1 --epsilon 8/255,128/255,12
      python -m sweep.evaluate --checkpoint net.pt --model small_cnn --study my_mnist --as "Madry-CNN"
    """
    from sweep.store.files import write_text
    from sweep.store.opening import open_store

    opened = open_store(store)
    if output is not None:
        _check_output(output)
    from sweep.evaluation.scores import scores  # after the checks: torch takes seconds to load
    from sweep.evaluation.subject import EvaluateOptions
    from sweep.studies import own

    # For weights from elsewhere, the network is built from its file there; a trial's network is known by name.
    dataset, _ = own.register_named(None if Path(checkpoint).is_file() else model, dataset)
    options = EvaluateOptions(
        checkpoint=checkpoint,
        model=model,
        dataset=dataset,
        attacks=attacks,
        epsilon=epsilon,
        norm=norm,
        images=images,
        seed=seed,
        shards=shards,
        batch_size=batch_size,
        standardize=standardize,
        device=device,
        data_dir=data_dir,
        plugins=tuple(plugin or ()),
        study=study,
        display=display,
        counterexamples=counterexamples,
    )

    def say(text: str) -> None:
        if not as_json:
            typer.echo(text, err=True)

    found = scores(opened, options, say)
    if output is not None:
        write_text(output, found.json() + "\n")
    typer.echo(found.json() if as_json else found.text())


def _check_output(output: Path) -> None:
    """Refuse an output path that cannot be written, before hours of attacks."""
    if output.is_dir() or not output.parent.is_dir():
        raise UserError(f"--output {output} cannot be written: it must be a file in a folder that exists")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise UserError(f"--output {output} cannot be written: permission denied")


if __name__ == "__main__":
    application.main(["evaluate", *sys.argv[1:]])

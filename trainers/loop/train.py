"""The only training loop: every method, every wrapper, exact resume.

All random numbers of an epoch are drawn from (seed, purpose, epoch). An interrupted epoch is repeated from its start
and gives the same numbers, so the state saved between epochs is complete.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers import assembly, composition
from trainers.attacks.perturbation.noise import TrainingNoise
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.config import TrialConfig
from trainers.data import load
from trainers.data.bundle import DataBundle
from trainers.data.order import TrainingImages, derived_seed
from trainers.loop import heartbeat, schedules
from trainers.loop.checkpoint import KeptWeights, UnusableState, clear_unfinished, load_resume, save_resume
from trainers.loop.epoch_metrics import Collapsed, Tally
from trainers.loop.precision import laid_out, prepared
from trainers.loop.reproducible import reproducible
from trainers.loop.step import StepResult, training_step
from trainers.measures.measurement import Row, measured
from trainers.method import Batch, Method
from trainers.wrapper import Hooks

SAVE_SECONDS = 1.0  # least time between two saved states: for a small network, saving takes as long as several steps
PROGRESS = ("epoch", "step", "seconds", "curve", "best", "checkpoints")  # attributes saved with the model


def train(
    config: TrialConfig,
    *,
    folder: Path,
    data_dir: Path | str | None = None,
    device: str | torch.device = "cpu",
    device_name: str = "",
    on_epoch: Callable[[Row], None] | None = None,
    on_resume: Callable[[list[Row]], None] | None = None,
    data: DataBundle | None = None,
) -> dict[str, Any]:
    """Train from the state in `folder`, if any, to the end and return the outcome.

    The outcome's curve has one row per epoch. Its `devices` are the names of all devices that took part, because a
    training may be resumed elsewhere. `on_resume` is called first, with the rows of the completed epochs; `on_epoch` is
    called after each epoch. Either may raise to stop the training. A killed process loses at most the epochs of the
    last second.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    clear_unfinished(folder)
    device = torch.device(device)
    shapes = composition.method_of(config.method).fixed_shapes
    with reproducible(device, config.recipe, fixed_shapes=shapes):
        training = Training(config, folder, data_dir, device, data)
        try:
            training.resume()
        except UnusableState as fault:
            print(f"{folder}: {fault}; training restarts from its first epoch", file=sys.stderr, flush=True)
            training = Training(config, folder, data_dir, device, data)  # the state may have been loaded in part
        training.devices = list(dict.fromkeys([*training.devices, device_name or str(device)]))
        if on_resume is not None:
            on_resume(training.curve)
        reason, saved = None, -SAVE_SECONDS
        try:
            training.check_for_chance()
            while not training.finished:
                row = training.run_epoch()
                if training.finished or time.monotonic() - saved >= SAVE_SECONDS:
                    training.save()
                    saved = time.monotonic()
                if on_epoch is not None:
                    try:
                        on_epoch(row)
                    except BaseException:
                        training.save()
                        raise
                training.check_for_chance()
            training.keep("last", training.epochs - 1)
        except Collapsed as collapsed:
            training.step = training.step if collapsed.step is None else collapsed.step
            reason = f"{collapsed}, in epoch {training.epoch} at step {training.step}"
        training.weights.finish(training.checkpoints)
    return {
        "status": "done" if reason is None else "collapsed",
        "reason": reason,
        "curve": training.curve,
        "checkpoints": training.checkpoints,
        "train_seconds": training.seconds,
        "steps": training.step,
        "devices": training.devices,
    }


class Training:
    """One training in progress; `epoch` and `step` count what is completed."""

    def __init__(
        self,
        config: TrialConfig,
        folder: Path,
        data_dir: Path | str | None,
        device: torch.device,
        bundle: DataBundle | None,
    ) -> None:
        self.config = config
        self.folder = folder
        self.weights = KeptWeights(folder)
        self.device = device
        recipe = config.recipe
        bundle = bundle or load(config.dataset, data_dir)
        self.data = assembly.prepare_data(config, bundle, data_dir, device)
        self.data_sha256 = assembly.data_sha256(bundle, config.wrappers.values(), data_dir)
        self.images = TrainingImages(self.data, recipe.batch_size, recipe.augmentation, config.seed)
        self.batches = self.images.batches
        self.epochs = math.ceil(recipe.steps / self.batches) if recipe.steps else recipe.epochs
        self.total_steps = recipe.steps or recipe.epochs * self.batches
        _check_wrappers(config)
        self.method = composition.build(config.method, dict(config.hyperparameters))
        self.method_state = self._on_device(self.method.new_state(len(self.data.train_images)))
        torch.manual_seed(derived_seed(config.seed, "model"))
        self.model = prepared(assembly.build_model(config), device, recipe)
        self.optimizer = assembly.build_optimizer(self.model, config)
        self.wrappers = {name: wrapper.begin(self.model, self.total_steps) for name, wrapper in config.wrappers.items()}
        self.epoch = self.step = 0
        self.seconds = 0.0
        self.curve: list[Row] = []
        self.best: dict[str, float] = {}
        self.checkpoints: dict[str, dict[str, Any]] = {}
        self.devices: list[str] = []  # names of all that took part

    @property
    def finished(self) -> bool:
        return self.epoch >= self.epochs

    @property
    def evaluated_model(self) -> nn.Module:
        """Return the model to evaluate and keep: a wrapper's average if there is one, else the trained model."""
        return next((wrapper.model for wrapper in self.wrappers.values() if wrapper.model is not None), self.model)

    def run_epoch(self) -> Row:
        """Train and measure one epoch, keep its weights if they are the best, and return its row of the curve."""
        started = time.monotonic()
        row = self._train_epoch()
        for wrapper in self.wrappers.values():
            wrapper.end_epoch(self.model)
        row |= measured(self.evaluated_model, self.data, self.config, self.epoch, self.epochs, self.device)
        row["seconds"] = time.monotonic() - started
        self._select(row)
        self.curve.append(row)
        self.epoch += 1
        if self.epoch in (self.config.selection.keep or ()):
            self.keep(f"epoch-{self.epoch}", row["epoch"])
        self.seconds += row["seconds"]
        return row

    def _train_epoch(self) -> Row:
        epoch = self.epoch
        torch.manual_seed(
            derived_seed(self.config.seed, "method", epoch)
        )  # for methods that draw random numbers themselves
        attack = assembly.build_attack(self.config, self.method)
        attack = replace(attack, draw=TrainingNoise(derived_seed(self.config.seed, "attack", epoch), attack.start))
        method = self.method.at_epoch(epoch)
        wrappers = [wrapper for wrapper in self.wrappers.values() if wrapper.is_active(epoch)]
        tally = Tally(self.device, self.step)
        try:
            for iteration, (images, labels, indices) in enumerate(self.images.epoch(epoch)):
                if self.step == self.total_steps:
                    break
                rate = self._set_rates(iteration)
                batch = Batch(laid_out(images, self.model), labels, indices, self.method_state)
                result = self._one_step(method, batch, attack, wrappers)
                self.step += 1
                tally.add(result.loss, result.logits, labels)
                heartbeat.beat()
            return {"epoch": epoch, "learning_rate": rate, **tally.row()}
        except Exception:
            tally.settle()  # the cause may be a loss that became NaN a few steps ago; then report that instead
            raise

    def _one_step(self, method: Method, batch: Batch, attack: ProjectedAscent, wrappers: Sequence[Hooks]) -> StepResult:
        with ExitStack() as settings:
            for wrapper in wrappers:
                settings.enter_context(wrapper.settings(self.model, self.step))
            result = training_step(
                self.model,
                self.optimizer,
                method,
                batch,
                attack,
                wrappers=wrappers,
                log_clean_forward=self.config.recipe.log_clean_forward,
            )
        for wrapper in wrappers:
            wrapper.after_step(self.model, self.step)
        return result

    def _on_device(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.device) for name, tensor in state.items()}

    def _set_rates(self, iteration: int) -> float:
        recipe = self.config.recipe
        rate = schedules.learning_rate(
            recipe.schedule,
            recipe.learning_rate,
            epoch=self.epoch,
            iteration=iteration,
            batches=self.batches,
            step=self.step,
            epochs=self.epochs,
        )
        momentum = schedules.momentum(recipe.schedule, recipe.momentum, epoch=self.epoch, epochs=self.epochs)
        for group in self.optimizer.param_groups:
            group["lr"], group["momentum"] = rate, momentum
        return rate

    def _select(self, row: Row) -> None:
        for name, split in (("best_test", "test"), ("best_validation", "validation")):
            value = row[f"{split}_{self.method.selects_on}_accuracy"]
            if value is None:
                continue
            best = self.best.get(name, -1.0)
            if value > best or (value == best and self.config.selection.ties == "last"):
                self.best[name] = value
                self.keep(name, row["epoch"])

    def keep(self, name: str, epoch: int) -> None:
        """Write the evaluated model's weights as they are after this epoch."""
        self.checkpoints[name] = {"epoch": epoch, **self.weights.write(name, self.evaluated_model)}

    def check_for_chance(self) -> None:
        """Raise Collapsed if accuracy has been at chance late in training; early on it may be a plateau.

        If images are held out, the test images are not used here either.
        """
        patience = max(10, self.epochs // 5)
        held_out = self.data.validation_labels
        split, labels = ("test", self.data.test_labels) if held_out is None else ("validation", held_out)
        recent = [row for row in self.curve[-patience:] if row[f"{split}_clean_accuracy"] is not None]
        if self.epoch < self.epochs / 2 or not recent:
            return
        measured_for = self.epoch - recent[0]["epoch"]
        largest_class = labels.bincount().max().item() / len(labels)
        best = max(row[f"{split}_clean_accuracy"] for row in recent)
        if measured_for > patience - self.config.selection.every and best <= largest_class + 0.01:
            raise Collapsed(f"{split} accuracy has been at chance ({best:.1%}) for {patience} epochs")

    def save(self) -> None:
        """Write the state. The weights that it names exist already; those no longer named are deleted last."""
        save_resume(
            self.folder / "resume.pt",
            {
                "config": self.config.model_dump_json(),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "wrappers": {name: wrapper.state_dict() for name, wrapper in self.wrappers.items()},
                "method_state": self.method_state,
                "devices": self.devices,
                "data": self.data_sha256,
                **{name: getattr(self, name) for name in PROGRESS},
            },
        )
        self.weights.drop_others(self.checkpoints)

    def resume(self) -> None:
        """Continue from the state in the folder, if there is one.

        Raise UnusableState if the state cannot be trusted; this object must then be discarded too.
        """
        state = load_resume(self.folder / "resume.pt")
        if state is None:
            return
        try:
            if state["config"] != self.config.model_dump_json():
                raise UnusableState("resume.pt is the state of another trial")
            if state.get("data", self.data_sha256) != self.data_sha256:  # absent from older states
                raise UnusableState("resume.pt is the state of a training on other data")
            self.weights.check(state["checkpoints"])
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            for name, wrapper in self.wrappers.items():
                wrapper.load_state_dict(state["wrappers"][name])
            self.method_state = self._on_device(state["method_state"])
            self.devices = list(state["devices"])
            for name in PROGRESS:
                setattr(self, name, state[name])
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as fault:
            reason = (str(fault).splitlines() or [""])[0]
            raise UnusableState(
                f"resume.pt was written by another version ({type(fault).__name__}: {reason})"
            ) from None


def _check_wrappers(config: TrialConfig) -> None:
    """Check that the wrappers in the method's name are exactly those with settings."""
    _, wrappers = composition.parse(config.method)
    for name in sorted({*wrappers} ^ {*config.wrappers}):
        raise ValueError(
            f"method {config.method!r}: +{name} in the name and `{name}` settings go together; add or remove one"
        )

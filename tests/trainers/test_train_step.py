"""One iteration: the order of the official loop, and the forward that is saved where two are the same."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainers import composition
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.loop.step import training_step
from trainers.method import Batch, Method
from trainers.wrappers.training.weight_perturbation import WeightPerturbation

EPSILON, STEP, STEPS = 8 / 255, 2 / 255, 10


class ConvBn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 10)
        self.forwards = 0

    def forward(self, images: Tensor) -> Tensor:
        self.forwards += 1
        return self.fc(F.relu(self.bn(self.conv(images))).mean((2, 3)))


@dataclass(frozen=True)
class CleanFirst(Method):
    """Looks at the clean images between the attack and the training forward."""

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        clean = F.cross_entropy(model(images), labels)
        return clean + F.cross_entropy(model(adversarial), labels)


@pytest.fixture
def setting() -> tuple[ConvBn, Batch, ProjectedAscent]:
    torch.manual_seed(0)
    model = ConvBn().double()
    batch = Batch(torch.rand(8, 3, 5, 5).double(), torch.arange(8), torch.arange(8), {})
    noise = torch.rand(8, 3, 5, 5).double() * 2 - 1
    return model, batch, ProjectedAscent(EPSILON, STEP, STEPS, draw=lambda images: noise)


def optimizer_of(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)


def plain_iteration(
    model: nn.Module, optimizer: torch.optim.SGD, batch: Batch, noise: Tensor, clean_first: bool
) -> None:
    """What the official loop does, forward by forward."""
    model.train()
    images, labels = batch.images, batch.labels
    delta = (EPSILON * noise).clamp(-images, 1 - images).requires_grad_()
    for _ in range(STEPS):
        F.cross_entropy(model(images + delta), labels).backward()
        assert delta.grad is not None
        moved = (delta.detach() + STEP * delta.grad.sign()).clamp(-EPSILON, EPSILON).clamp(-images, 1 - images)
        delta = moved.requires_grad_()
    with torch.no_grad():
        model(images + delta)  # evaluates the final loss
    adversarial = (images + delta).clamp(0, 1).detach()
    clean = F.cross_entropy(model(images), labels) if clean_first else 0.0
    loss = clean + F.cross_entropy(model(adversarial), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model(images)


@pytest.mark.parametrize("clean_first", [False, True])
def test_iterations_equal_the_official_loop_buffers_included(setting, clean_first: bool) -> None:
    model, batch, attack = setting
    plain = copy.deepcopy(model)
    method = CleanFirst() if clean_first else composition.build("at")
    ours, theirs = optimizer_of(model), optimizer_of(plain)
    for _ in range(3):
        training_step(model, ours, method, batch, attack)
        plain_iteration(plain, theirs, batch, attack.draw(batch.images), clean_first)
    for (name, mine), its in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.allclose(mine, its, rtol=1e-11, atol=1e-13), name
    assert int(model.bn.num_batches_tracked) == 3 * (14 if clean_first else 13)


def test_one_forward_serves_the_end_of_the_attack_and_the_loss(setting) -> None:
    model, batch, attack = setting
    training_step(model, optimizer_of(model), composition.build("at"), batch, attack)
    assert model.forwards == STEPS + 1 + 1  # attack, training, logging
    assert model.bn.momentum == 0.1 and not model._forward_hooks and not model._forward_pre_hooks


def test_under_awp_the_two_forwards_stay_apart(setting) -> None:
    model, batch, attack = setting
    training_step(
        model, optimizer_of(model), composition.build("at"), batch, attack, wrappers=[WeightPerturbation(0.01)]
    )
    assert int(model.bn.num_batches_tracked) == 13 and model.forwards == STEPS + 1 + 1 + 1


def test_an_eval_mode_attack_moves_no_buffers_and_without_logging_only_the_loss_does(setting) -> None:
    model, batch, _ = setting
    attack = ProjectedAscent(EPSILON, STEP, STEPS, start="gauss", mode="eval")
    training_step(model, optimizer_of(model), composition.build("mart"), batch, attack, log_clean_forward=False)
    assert int(model.bn.num_batches_tracked) == 2  # x and x'


@pytest.mark.parametrize("name", ["at", "trades", "mart", "mma", "gairat"])
def test_the_recorded_logits_are_those_of_the_attacked_images(setting, name: str) -> None:
    model, batch, attack = setting
    batch.state.update(composition.build(name).new_state(8))
    outputs: list[Tensor] = []
    model.register_forward_hook(lambda _, __, out: outputs.append(out.detach()))
    result = training_step(model, optimizer_of(model), composition.build(name), batch, attack, log_clean_forward=False)
    assert result.logits is not None and result.logits.shape == (8, 10)
    assert any(torch.equal(result.logits, out) for out in outputs)
    if name == "trades":
        assert not torch.equal(result.logits, outputs[-1])  # its last forward is of the clean images


@dataclass(frozen=True)
class Wrong(Method):
    kind: str = "float"

    def loss(self, model, images, labels, attack):
        losses = F.cross_entropy(model(images), labels, reduction="none")
        return {"float": losses.mean().item(), "many": losses, "detached": losses.mean().detach()}[self.kind]


@pytest.mark.parametrize("wrappers", [[], [WeightPerturbation(0.01)]])
@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("float", TypeError, "Wrong: loss must return a tensor, but returned float"),
        ("many", ValueError, r"Wrong: loss must return one number, but it has shape \(8,\): take its mean"),
        ("detached", ValueError, "Wrong: the loss has no gradient: it does not depend on the model's weights, or was"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_is_refused_in_words(setting, wrappers, kind, error, message) -> None:
    model, batch, attack = setting
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=message):
        training_step(model, optimizer_of(model), Wrong(kind), batch, attack, wrappers=wrappers)
    assert all(torch.equal(before[key], weight.detach()) for key, weight in model.named_parameters())


def kept_for_backward(model: nn.Module, work) -> int:
    """Bytes that autograd holds on to, beside the parameters, while `work` runs."""
    own = {p.data_ptr() for p in model.parameters()}
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            held[tensor.data_ptr()] = max(held.get(tensor.data_ptr(), 0), tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        work()
    return sum(held.values())


def test_an_attack_step_needs_less_memory_than_a_training_step(setting) -> None:
    model, batch, _ = setting
    attack = ProjectedAscent(EPSILON, STEP, 1, final_forward=False)

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, batch.labels)

    model.train()
    attacking = kept_for_backward(model, lambda: attack(model, batch.images, loss))
    training = kept_for_backward(model, lambda: loss(model(batch.images)).backward())
    assert 0 < attacking < training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_an_attack_leaves_no_gradients_on_the_parameters(setting) -> None:
    model, batch, attack = setting
    attack(model, batch.images, lambda logits: F.cross_entropy(logits, batch.labels))
    assert all(parameter.grad is None for parameter in model.parameters())

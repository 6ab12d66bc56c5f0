"""Weight perturbation and weight averaging around any method."""

import pytest
import torch
from torch import nn

from trainers import composition
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.method import Batch
from trainers.wrappers.training.weight_averaging import DdpmAverage, SeatAverage
from trainers.wrappers.training.weight_perturbation import WeightPerturbation, perturbed_weights


class CountingAttack(ProjectedAscent):
    """Notes each run and the weights of the model that it ran against."""

    def __call__(self, model, images, objective, **options):
        self.runs.append([p.detach().clone() for p in model.parameters()])
        return super().__call__(model, images, objective, **options)

    @property
    def runs(self):
        return self.__dict__.setdefault("_runs", [])


def network():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)]
    return nn.Sequential(*layers).train()


def batch(state=None):
    torch.manual_seed(1)
    return Batch(torch.rand(6, 1, 4, 4), torch.randint(4, (6,)), torch.arange(6), state or {})


def attack(method):
    return CountingAttack(0.1, 0.05, 3, method.start, method.mode, torch.Generator().manual_seed(3))


METHODS = ("at", "sovr", "trades", "tsovr", "mart", "gairat", "mail", "ewat", "mma")


def built(name):
    return composition.build(name).at_epoch(10**6)


@pytest.mark.parametrize("name", METHODS)
def test_the_attack_runs_once_against_the_unperturbed_model(name):
    method, model = built(name), network()
    with torch.no_grad():
        model[4].weight.mul_(50.0)
    data = batch(method.new_state(6))
    data.labels[:] = model(data.images).argmax(dim=1)
    before = [p.detach().clone() for p in model.parameters()]
    search = attack(method)
    WeightPerturbation(0.1).perturbed_loss(method, model, data, search)
    assert len(search.runs) == 1
    assert all(torch.equal(seen, weight) for seen, weight in zip(search.runs[0], before, strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_perturbed_weights_are_gone_after_the_step(name):
    method, model, awp = built(name), network(), WeightPerturbation(0.1)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    awp.perturbed_loss(method, model, batch(method.new_state(6)), attack(method))
    moved = {key for key, p in model.named_parameters() if not torch.equal(p, before[key])}
    assert moved == {"0.weight", "4.weight"}
    awp.after_update(model)
    assert all(torch.allclose(p, before[key], atol=1e-6) for key, p in model.named_parameters())


def test_only_weights_of_more_than_one_dimension_are_perturbed():
    assert set(perturbed_weights(network())) == {"0.weight", "4.weight"}


def test_the_perturbation_has_gamma_times_the_length_of_each_layer():
    method, model, awp = built("at"), network(), WeightPerturbation(0.02)
    before = model[0].weight.detach().clone()
    awp.perturbed_loss(method, model, batch(), attack(method))
    assert (model[0].weight - before).norm().item() == pytest.approx(0.02 * before.norm().item(), rel=1e-4)


def test_the_perturbation_raises_the_loss():
    method, model = built("st"), network()
    plain = method.batch_loss(model, batch(), attack(method)).item()
    assert WeightPerturbation(0.05).perturbed_loss(method, model, batch(), attack(method)).item() > plain


def test_the_twin_leaves_batchnorm_of_the_model_alone():
    method = built("trades")  # its attack runs in eval mode
    counts = []
    for awp in (None, WeightPerturbation(0.01)):
        model = network()
        if awp is None:
            method.batch_loss(model, batch(), attack(method))
        else:
            awp.perturbed_loss(method, model, batch(), attack(method))
        counts.append(int(model[1].num_batches_tracked))
    assert counts == [3, 3]


def test_two_steps_craft_two_attacks_share_one_twin_and_tell_only_the_models_hooks():
    method, model, awp, heard = built("at"), network(), WeightPerturbation(0.01), []
    model.register_forward_hook(lambda module, *_: heard.append(module))
    search, twins = attack(method), []
    for _ in range(2):
        awp.around(method).batch_loss(model, batch(), search).backward()
        awp.after_update(model)
        twins.append(awp._proxy)
    assert len(search.runs) == 2
    assert twins[0] is twins[1] is not model
    assert set(heard) == {model}


def test_margins_of_mma_are_written_once_for_two_evaluations():
    method, model = built("mma"), nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    data = batch(method.new_state(6))
    with torch.no_grad():
        model[1].weight.mul_(50.0)
        data.labels[:] = model(data.images).argmax(dim=1)
    radii = []
    for awp in (None, WeightPerturbation(0.01)):
        fresh = Batch(data.images, data.labels, data.indices, method.new_state(6))
        if awp is None:
            method.batch_loss(model, fresh, attack(method))
        else:
            awp.perturbed_loss(method, model, fresh, attack(method))
        radii.append(fresh.state["radii"])
    assert torch.equal(radii[0], radii[1])
    assert radii[0].max() > 0


def test_the_first_average_is_one_tenth_old_and_nine_tenths_new():
    model = network()
    average = SeatAverage(model, 0.999)
    before = model[4].weight.detach().clone()
    with torch.no_grad():
        model[4].weight.add_(1.0)
        model[1].running_mean.add_(1.0)
        model[1].num_batches_tracked.add_(10)
    average.after_step(model, 0)
    assert torch.allclose(average.model[4].weight, before + 0.9)
    assert torch.allclose(average.model[1].running_mean, torch.full((3,), 0.9))
    assert int(average.model[1].num_batches_tracked) == 9


def test_a_long_average_uses_the_asked_decay():
    model = network()
    average = SeatAverage(model, 0.5)
    with torch.no_grad():
        model[4].bias.copy_(average.model[4].bias + 1.0)
    before = average.model[4].bias.clone()
    average.after_step(model, 10_000)
    assert torch.allclose(average.model[4].bias, before + 0.5)


def test_the_ddpm_average_copies_while_warming_up_and_leaves_buffers_to_the_end_of_the_epoch():
    model = network()
    average = DdpmAverage(model, 0.995, warmup_steps=3)
    with torch.no_grad():
        model[4].weight.add_(1.0)
        model[1].running_mean.add_(1.0)
    average.after_step(model, 1)
    assert torch.equal(average.model[4].weight, model[4].weight)
    assert torch.equal(average.model[1].running_mean, torch.zeros(3))
    average.end_epoch(model)
    assert torch.equal(average.model[1].running_mean, torch.ones(3))
    with torch.no_grad():
        model[4].weight.add_(1.0)
    before = average.model[4].weight.clone()
    average.after_step(model, 2)  # global step 3: the ramp starts at 1/10
    assert torch.allclose(average.model[4].weight, before + 0.9)


@pytest.mark.parametrize("rule", [SeatAverage, DdpmAverage])
def test_an_average_continues_exactly_from_its_state(rule):
    model = network()
    average = rule(model, 0.9)
    with torch.no_grad():
        model[4].weight.add_(1.0)
    average.after_step(model, 0)
    again = rule(network(), 0.9)
    again.load_state_dict(average.state_dict())
    for one in (average, again):
        one.after_step(model, 1)
    assert all(
        torch.equal(a, b) for a, b in zip(average.state_dict().values(), again.state_dict().values(), strict=True)
    )


def test_the_averaged_model_is_in_eval_mode_and_wants_no_gradients():
    average = SeatAverage(network())
    assert not average.model.training
    assert not any(p.requires_grad for p in average.model.parameters())

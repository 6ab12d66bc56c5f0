"""PGD, its noise and SPSA by what they do: balls and boxes, modes, gradients, randomness."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.trainers.tiny import tiny_problem
from trainers.attacks.perturbation import spsa
from trainers.attacks.perturbation.noise import TrainingNoise, keyed_normal, keyed_signs, keyed_uniform
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent, batchnorm_mode
from trainers.losses import logit_margin


def objective(labels):
    return lambda logits: F.cross_entropy(logits, labels, reduction="none")


@pytest.mark.parametrize("start", ["uniform", "gauss", "none"])
def test_pgd_stays_in_the_ball_and_in_the_box_and_lowers_accuracy(start):
    model, images, labels = tiny_problem(40)
    found = ProjectedAscent(0.1, 0.025, 10, start=start, mode="eval")(model, images, objective(labels))
    assert (found - images).abs().max() <= 0.1 + 1e-6
    assert found.min() >= 0 and found.max() <= 1
    before = (model(images).argmax(1) == labels).float().mean()
    assert (model(found).argmax(1) == labels).float().mean() < before - 0.2


def test_pgd_on_a_linear_model_reaches_the_corner_of_the_ball():
    model = nn.Linear(4, 2, bias=False).double()
    model.weight.data = torch.tensor([[1.0, -1.0, 2.0, 0.5], [0.0, 0.0, 0.0, 0.0]]).double()
    images = torch.tensor([[0.5, 0.5, 0.02, 0.99]]).double()
    found = ProjectedAscent(0.1, 0.03, 10, start="none", mode="eval")(model, images, objective(torch.tensor([0])))
    assert torch.allclose(found, torch.tensor([[0.4, 0.6, 0.0, 0.89]]).double(), atol=1e-12)


def test_each_sample_may_have_its_own_radius_and_step():
    model, images, labels = tiny_problem(6)
    radii = torch.tensor([0.0, 0.01, 0.02, 0.05, 0.1, 0.2])
    found = ProjectedAscent(9.0, 9.0, 10, mode="eval")(
        model, images, objective(labels), epsilon=radii, step_size=radii / 4
    )
    moved = (found - images).flatten(1).abs().amax(dim=1)
    assert (moved <= radii + 1e-6).all() and moved[0] == 0
    assert (moved[1:] > 0.9 * radii[1:]).all()


def test_without_steps_the_start_is_returned_and_gauss_is_not_clipped():
    model, images, labels = tiny_problem(4)
    images = images.round()
    noise = torch.full_like(images, 2.0)
    gauss = ProjectedAscent(0.1, 0.1, 0, start="gauss", draw=lambda _: noise)(model, images, objective(labels))
    assert torch.equal(gauss, images + 0.002)
    uniform = ProjectedAscent(0.1, 0.1, 0, draw=lambda _: noise)(model, images, objective(labels))
    assert torch.equal(uniform, (images + 0.2).clamp(0, 1))


@pytest.mark.parametrize(("mode", "updates"), [("train", 6), ("eval", 0), ("train_untracked", 0)])
def test_batchnorm_buffers_move_only_in_train_mode_and_once_more_at_the_end(mode, updates):
    model, images, labels = tiny_problem(8)
    model.train()
    before = int(model.bn.num_batches_tracked)
    mean = model.bn.running_mean.clone()
    ProjectedAscent(0.1, 0.05, 5, mode=mode)(model, images, objective(labels))
    assert int(model.bn.num_batches_tracked) - before == updates
    assert torch.equal(mean, model.bn.running_mean) == (updates == 0)
    ProjectedAscent(0.1, 0.05, 5, mode=mode, final_forward=False)(model, images, objective(labels))
    assert int(model.bn.num_batches_tracked) - before == max(0, 2 * updates - 1)


def test_modes_and_parameters_are_restored_even_when_the_attack_fails():
    model, images, labels = tiny_problem(4)
    model.train()
    model.bn.eval()
    model.fc.bias.requires_grad_(False)

    def broken(logits):
        raise RuntimeError("stop")

    for mode in ("train", "eval", "train_untracked"):
        with pytest.raises(RuntimeError, match="stop"):
            ProjectedAscent(0.1, 0.05, 2, mode=mode)(model, images, broken)
        assert model.training and model.conv.training and not model.bn.training
        assert model.bn.track_running_stats
        assert model.conv.weight.requires_grad and not model.fc.bias.requires_grad
        assert all(parameter.grad is None for parameter in model.parameters())


def test_observers_see_every_iterate_before_its_step():
    model, images, labels = tiny_problem(4)
    seen = []
    ProjectedAscent(0.1, 0.05, 3, start="none", mode="eval")(model, images, objective(labels), observe=seen.append)
    assert len(seen) == 3
    assert torch.equal(seen[0], model(images).detach())


def test_a_generator_fixes_the_start_and_leaves_the_global_one_alone():
    model, images, labels = tiny_problem(4)
    state = torch.get_rng_state()
    first, second, other = (
        ProjectedAscent(0.1, 0.1, 0, generator=torch.Generator().manual_seed(seed))(model, images, objective(labels))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, second) and not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


def test_unknown_starts_and_modes_are_refused():
    model, images, labels = tiny_problem(2)
    with pytest.raises(ValueError, match="unknown start 'middle'"):
        ProjectedAscent(0.1, 0.1, 1, start="middle")
    with pytest.raises(ValueError, match="unknown BatchNorm mode"), batchnorm_mode(model, "both"):
        pass


def test_noise_goes_by_image_and_seed_and_is_uniform():
    like = torch.zeros(500, 3, 8, 8)
    noise = keyed_uniform(0, torch.arange(500), like)
    assert torch.equal(noise[123:125], keyed_uniform(0, torch.tensor([123, 124]), like[:2]))
    assert torch.equal(noise.double(), keyed_uniform(0, torch.arange(500), like.double()))
    assert noise.min() >= -1 and noise.max() < 1
    assert abs(float(noise.mean())) < 0.01 and abs(float(noise.var()) - 1 / 3) < 0.01
    flat = noise.flatten(1)
    for first, second in ((flat[:-1], flat[1:]), (flat[:, :-1], flat[:, 1:]), (flat, flat.flip(0))):
        assert abs(float((first * second).mean())) < 0.01
    other = keyed_uniform(1, torch.arange(500), like)
    assert abs(float((noise * other).mean())) < 0.01
    assert not torch.equal(noise[0], keyed_uniform(0, torch.tensor([2**32]), like[:1])[0])
    signs = keyed_signs(0, torch.arange(100), (3, 8, 8), torch.float32)
    assert set(signs.unique().tolist()) == {-1.0, 1.0} and abs(float(signs.mean())) < 0.03


def test_normal_noise_goes_by_image_and_seed_and_is_normal():
    like = torch.zeros(500, 3, 8, 8)
    noise = keyed_normal(3, torch.arange(500), like)
    assert torch.equal(noise[7:9], keyed_normal(3, torch.tensor([7, 8]), like[:2]))
    assert torch.isfinite(noise).all() and abs(float(noise.mean())) < 0.01 and abs(float(noise.var()) - 1) < 0.02
    assert abs(float((noise.abs() > 1.959964).float().mean()) - 0.05) < 0.003
    exact = keyed_normal(3, torch.arange(500), like.double())
    assert torch.allclose(noise.double(), exact, rtol=1e-4, atol=1e-6)
    # The two ends of the uniform numbers, of which the lower has no quantile.
    assert torch.isfinite(torch.erfinv(torch.tensor([-1.0, 1 - 2.0**-23]) + 2.0**-24)).all()


def test_training_noise_goes_on_from_start_to_start_and_begins_anew_with_the_epoch():
    images = torch.zeros(6, 1, 8, 8)
    noise = TrainingNoise(5, "uniform")
    first, second = noise(images), noise(images[:2])
    assert torch.equal(torch.cat([first, second]), keyed_uniform(5, torch.arange(8), torch.zeros(8, 1, 8, 8)))
    assert torch.equal(TrainingNoise(5, "uniform")(images), first)
    assert not torch.equal(TrainingNoise(6, "uniform")(images), first)
    assert torch.equal(TrainingNoise(5, "gauss")(images), keyed_normal(5, torch.arange(6), images))


def spsa_settings(**changes):
    return {
        "epsilon": 0.1, "steps": 8, "samples": 32, "delta": 0.001, "learning_rate": 0.02,
        "directions": spsa.shared_directions(0, 32), **changes,
    }  # fmt: skip


def test_spsa_finds_adversarial_images_in_the_ball_without_a_gradient():
    model, images, labels = tiny_problem(30)
    model.requires_grad_(False)
    found = spsa.perturb(model, images, labels, **spsa_settings())
    assert (found - images).abs().max() <= 0.1 + 1e-6
    assert found.min() >= 0 and found.max() <= 1
    assert logit_margin(model(found), labels).mean() > logit_margin(model(images), labels).mean() + 0.1


def test_spsa_estimates_the_gradient_of_a_linear_margin_exactly_in_the_mean():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False)).double()
    images = torch.rand(3, 1, 2, 2).double()
    labels = torch.zeros(3, dtype=torch.long)
    # All 16 directions: their mean outer product is the identity.
    grid = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4).double().view(16, 1, 2, 2)
    found = spsa.estimate_gradient(model, images, labels, 0.001, 16, lambda a, b: grid[a:b], chunk=16)
    weight = model[1].weight.detach()
    assert torch.allclose(found, (weight[0] - weight[1]).view(1, 1, 2, 2).expand(3, -1, -1, -1), atol=1e-9)


def test_spsa_does_not_depend_on_batch_or_chunk():
    model, images, labels = tiny_problem(12)
    whole = spsa.perturb(model, images, labels, **spsa_settings())
    parts = [spsa.perturb(model, images[i : i + 5], labels[i : i + 5], **spsa_settings()) for i in (0, 5, 10)]
    small = spsa.perturb(model, images, labels, **spsa_settings(), queries_at_once=24)
    # Sums in another order differ in the last bits, and Adam divides by their square root.
    assert torch.allclose(whole, torch.cat(parts), atol=1e-3)
    assert torch.allclose(whole, small, atol=1e-3)

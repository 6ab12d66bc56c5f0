"""Small exact facts about the methods that the official numbers do not show."""

import pytest
import torch
from torch import nn

from trainers import composition, losses
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.method import Batch
from trainers.methods.at import AT


class Network(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.bn = nn.BatchNorm2d(3)
        self.fc = nn.Linear(3 * 16, classes)

    def forward(self, images):
        return self.fc(torch.relu(self.bn(self.conv(images))).flatten(1))


def batch_of(size, classes=4, state=None):
    torch.manual_seed(1)
    images, labels = torch.rand(size, 1, 4, 4), torch.randint(classes, (size,))
    return Batch(images, labels, torch.arange(size), state or {})


def attack_for(method, steps=2):
    return ProjectedAscent(0.1, 0.05, steps, method.start, method.mode, torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    ("percent", "size", "count"), [(20, 128, 25), (40, 1024, 409), (50, 7, 3), (100, 3, 3), (0, 9, 0)]
)
def test_the_number_of_hard_samples_is_rounded_down(percent, size, count):
    assert int(losses.hardest(torch.rand(size), percent).sum()) == count


def test_of_equal_margins_the_first_in_the_batch_is_hard():
    assert losses.hardest(torch.tensor([1.0, 2.0, 2.0, 2.0]), 50).tolist() == [False, True, True, False]


def test_one_vs_the_rest_does_not_overflow():
    logits = torch.tensor([[1000.0, -1000.0]])
    assert losses.ovr(logits, torch.tensor([0])).item() == pytest.approx(0.0, abs=1e-3)


def test_smoothing_spares_the_one_vs_the_rest_part():
    logits, labels = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    hard = torch.tensor([True, False, True, False])
    plain, smooth = (losses.switched(logits, labels, hard, 0.5, smoothing) for smoothing in (0.0, 0.1))
    assert torch.equal(plain[hard], smooth[hard])
    assert not torch.isclose(plain[~hard], smooth[~hard]).any()


@pytest.mark.parametrize(("forwards", "count"), [("awp", 3), ("original", 3), ("ddpm", 2)])
@pytest.mark.parametrize("name", ["trades", "tsovr"])
def test_the_forwards_option_sets_how_often_batchnorm_is_moved(name, forwards, count):
    method, network, batch = composition.build(name, {"forwards": forwards}), Network(), batch_of(6)
    method.loss(network, batch.images, batch.labels, attack_for(method))
    assert int(network.bn.num_batches_tracked) == count


def test_the_order_of_forwards_moves_buffers_but_not_the_gradient():
    found = []
    for forwards in ("awp", "original", "ddpm"):
        method, network, batch = composition.build("trades", {"forwards": forwards}), Network(), batch_of(6)
        method.loss(network, batch.images, batch.labels, attack_for(method)).backward()
        found.append((network.conv.weight.grad, network.bn.running_mean.clone()))
    for gradient, _ in found[1:]:
        assert torch.allclose(gradient, found[0][0], atol=1e-6)
    assert not torch.allclose(found[0][1], found[1][1])


@pytest.mark.parametrize(("name", "last_warmup_epoch"), [("gairat", 49), ("mail", 75)])
def test_warm_up_is_plain_adversarial_training_and_ends_on_time(name, last_warmup_epoch):
    method = composition.build(name)
    assert method.at_epoch(0) == AT()
    assert method.at_epoch(last_warmup_epoch) == AT()
    assert method.at_epoch(last_warmup_epoch + 1) is method


def test_kappa_counts_a_sample_that_becomes_right_again():
    class TurningAttack:
        steps = 4

        def __call__(self, model, images, objective, *, observe, **options):
            for right in (True, False, True, False):
                observe(torch.tensor([[1.0, 0.0] if right else [0.0, 1.0]]))
            return images

    _, kappa = composition.build("gairat").attacked(None, torch.zeros(1, 1), torch.tensor([0]), TurningAttack())
    assert kappa.tolist() == [2]


def test_geometry_weights_stay_finite_for_a_batch_of_only_safe_samples():
    weights = composition.build("gairat", {"Lambda": -20.0}).weights(torch.full((3,), 10.0), 10)
    assert torch.allclose(weights, torch.ones(3))


def test_entropy_weights_stay_finite_when_every_prediction_is_certain():
    weights = composition.build("ewat").weights(torch.tensor([[1e4, 0.0], [0.0, 1e4]]))
    assert torch.equal(weights, torch.zeros(2))


def mma_batch(network, indices, state):
    """Four images: the network is sure and right of the first two, sure and wrong of the others."""
    batch = batch_of(4)
    with torch.no_grad():
        network.fc.weight.mul_(100.0)
        network.fc.bias.mul_(0.0)
        predicted = network(batch.images).argmax(dim=1)
    labels = torch.where(torch.arange(4) < 2, predicted, (predicted + 1) % 4)
    return Batch(batch.images, labels, torch.tensor(indices), state)


def test_margins_are_remembered_by_index_and_wrong_samples_are_stored_as_zero():
    method, network = composition.build("mma"), Network()
    state = {"radii": torch.full((6,), 0.07)}
    method.batch_loss(network, mma_batch(network, [5, 0, 1, 2], state), attack_for(method))
    radii = state["radii"]
    assert radii[1] == radii[2] == 0.0
    assert radii[3] == radii[4] == pytest.approx(0.07)
    assert 0 < radii[5] <= 1.05 * 0.1255 and radii[5] != 0.07
    assert 0 < radii[0] <= 1.05 * 0.1255 and radii[0] != 0.07


def test_synthetic_images_have_no_margin_of_their_own():
    method, network = composition.build("mma"), Network()
    state = {"radii": torch.full((6,), 0.07)}
    loss = method.batch_loss(network, mma_batch(network, [-1, -1, -1, -1], state), attack_for(method))
    assert loss.isfinite()
    assert torch.equal(state["radii"], torch.full((6,), 0.07))


def test_beyond_d_max_a_sample_adds_only_its_clean_loss():
    method, network = composition.build("mma", {"d_max": 1e-6, "clean_coefficient": 0.0}), Network()
    batch = mma_batch(network, [0, 1, 2, 3], {"radii": torch.zeros(4)})
    right = Batch(batch.images[:2], batch.labels[:2], batch.indices[:2], batch.state)
    # Every boundary lies beyond so small a d_max, or the search ends exactly at its upper end.
    assert method.batch_loss(network, right, attack_for(method)).item() == pytest.approx(0.0, abs=1e-6)


def test_the_number_of_forwards_of_margin_maximisation_does_not_grow_with_the_batch():
    calls = []
    for size in (4, 64):
        method, network, batch = composition.build("mma"), Network(), batch_of(size, state={"radii": torch.zeros(64)})
        with torch.no_grad():
            network.fc.weight.mul_(100.0)
            batch.labels[:] = network(batch.images).argmax(dim=1)
        count = []
        network.register_forward_hook(lambda *_, count=count: count.append(1))
        method.batch_loss(network, batch, attack_for(method))
        calls.append(len(count))
    assert calls[0] == calls[1]

"""Margins, gradient norms and doubt, against slow loops and a model whose answers are known."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.trainers.tiny import tiny_problem
from trainers.config import TrialConfig
from trainers.data.bundle import DataBundle
from trainers.measures.diagnostics import class_gradients, diagnose, gradient_facts


def test_gradients_of_all_classes_equal_a_loop_whatever_the_memory_limit():
    model, images, _ = tiny_problem(5)
    logits, found = class_gradients(model, images)
    inputs = images.clone().requires_grad_()
    output = model(inputs)
    loop = [torch.autograd.grad(output[:, k].sum(), inputs, retain_graph=True)[0].flatten(1) for k in range(10)]
    assert torch.equal(logits, output.detach())
    assert torch.allclose(found, torch.stack(loop, dim=1), atol=1e-6)
    _, small = class_gradients(model, images, memory_limit=3 * 100 * images.numel() * 4)
    assert torch.allclose(found, small, atol=1e-6)


def test_cross_entropy_s_gradient_norms_follow_from_the_logits_gradients():
    model, images, labels = tiny_problem(12)
    facts = gradient_facts(model, images, labels, torch.arange(12), 0.1)
    with torch.no_grad():
        runner_up = model(images).scatter(1, labels[:, None], -torch.inf).argmax(dim=1)
    for name, wanted in (("label", labels), ("runner_up", runner_up)):
        inputs = images.clone().requires_grad_()
        (slow,) = torch.autograd.grad(F.cross_entropy(model(inputs), wanted, reduction="sum"), inputs)
        assert torch.allclose(facts[f"gradient_norm_ce_{name}"], slow.flatten(1).abs().sum(1), atol=1e-5)
    assert (facts["gradient_norm_logit_max"] >= facts["gradient_norm_logit_label"]).all()


def test_doubt_begins_where_gradients_can_bridge_the_margin():
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 3, bias=False)).double()
    model[1].weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-3.0, 0.0]]).double()
    images = torch.tensor([[0.9, 0.1], [0.6, 0.4]]).double().view(2, 1, 1, 2)
    labels = torch.tensor([0, 0])
    # Margins -0.8 and -0.2; the largest gradient norm is 3, the label's 1: together 4 epsilon.
    for epsilon, expected in ((0.04, [False, False]), (0.06, [False, True]), (0.21, [True, True])):
        facts = gradient_facts(model, images, labels, torch.arange(2), epsilon)
        assert facts["potentially_misclassified"].tolist() == expected
    assert facts["gradient_norm_logits"].tolist() == [[1, 1, 3], [1, 1, 3]]


@pytest.fixture(scope="module")
def problem():
    model, images, labels = tiny_problem(60, side=8)
    bytes_ = (images * 255).round().to(torch.uint8)
    return model, DataBundle("digits", bytes_[:40], labels[:40], bytes_[40:], labels[40:])


def config(method="at"):
    return TrialConfig(dataset="digits", model="small_cnn", method=method)


def test_summaries_are_means_of_the_arrays(problem):
    model, data = problem
    arrays, summary = diagnose(model, config(), data, epsilon=0.05, batch_size=7)
    assert len(arrays["train_margin"]) == 40 and len(arrays["test_clean_margin"]) == 20
    assert summary["train_margin_mean"] == pytest.approx(arrays["train_margin"].mean(), rel=1e-5)
    assert summary["generalization_gap"] == summary["train_pgd_accuracy"] - summary["test_pgd_accuracy"]
    assert summary["test_potentially_misclassified"] == arrays["test_potentially_misclassified"].mean()
    assert summary["gradient_norm_logit_max"] == pytest.approx(arrays["test_gradient_norm_logit_max"].mean(), rel=1e-5)
    assert np.array_equal(arrays["train_correct"], arrays["train_margin"] < 0)
    assert np.abs(arrays["train_probability_margin"]).max() <= 1
    again, same = diagnose(model, config(), data, epsilon=0.05, batch_size=40)
    assert same == pytest.approx(summary, rel=1e-4)
    assert all(value.dtype != object for value in again.values())


def test_margins_are_on_attacked_images_but_for_standard_training(problem):
    model, data = problem
    attacked, _ = diagnose(model, config("at"), data, epsilon=0.05)
    clean, _ = diagnose(model, config("st"), data, epsilon=0.05)
    assert np.allclose(clean["train_margin"], clean["train_clean_margin"], atol=1e-5)
    assert attacked["train_margin"].mean() > clean["train_margin"].mean() + 0.05


def test_a_model_without_an_opinion_is_right_by_chance_only(problem):
    _, data = problem

    class Undecided(nn.Module):
        def forward(self, images):
            return images.flatten(1)[:, :1].repeat(1, 10)

    _, summary = diagnose(Undecided(), config(), data, epsilon=0.05)
    assert summary["test_pgd_accuracy"] == pytest.approx((data.test_labels == 0).float().mean().item())


def test_only_the_first_images_when_asked(problem):
    model, data = problem
    whole, _ = diagnose(model, config(), data, epsilon=0.05)
    part, summary = diagnose(model, config(), data, epsilon=0.05, images=10)
    assert summary["images_train"] == summary["images_test"] == 10
    assert np.allclose(part["train_margin"], whole["train_margin"][:10], atol=1e-5)

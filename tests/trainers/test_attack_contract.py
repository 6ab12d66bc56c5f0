"""The contract test of attacks: ours keep it, and whoever breaks a promise is told which and what to do."""

import pytest

from sweep import cli
from trainers.plugins import registry
from trainers.plugins.attack_contract import CHECKS, examine

GOOD = '''
"""nudged: a step away from the label, drawn by image."""
import torch
from trainers.attack import EvaluationAttack
from trainers.attacks.perturbation.noise import keyed_signs
from trainers.values import as_float

class Nudged(EvaluationAttack):
    kind: str = "NAME"

    @classmethod
    def from_name(cls, name, settings):
        if name != "NAME":
            return None
        return cls(name=name, epsilon=settings.epsilon, seed=settings.seed, images=settings.images)

    @property
    def cost(self):
        return 0.8

    def adversarial(self, model, images, labels, indices):
        signs = keyed_signs(self.seed, indices, tuple(images.shape[1:]), images.dtype)
        found = (images + as_float(self.epsilon) * signs).clamp(0, 1)
        with torch.no_grad():
            wrong = model(images).argmax(1) != labels
        return torch.where(wrong[:, None, None, None], images, found)
'''
BACKWARD = "        model(images.clone().requires_grad_()).sum().backward()\n"
FAULTS = {
    "outside_ball": (("as_float(self.epsilon) *", "2 * as_float(self.epsilon) *"), "size 0.2, but the radius is 0.1"),
    "outside_box": ((".clamp(0, 1)", ""), "clamp them to [0, 1]"),
    "in_place": (("found = (images +", "found = images.add_("), "work on a copy"),
    "training": (("        signs =", "        model.train()\n        signs ="), "left the model in train mode"),
    "gradients": (("        signs =", BACKWARD + "        signs ="), "left gradients on"),
    "random": (("signs = keyed", "signs = torch.randn_like(images).sign(); keyed"), "two runs with the same seed"),
    "by_batch": (("indices, tuple", "torch.arange(len(images)), tuple"), "verdicts depend on the batch"),
    "radius": (("epsilon=settings.epsilon, ", ""), "pass settings.epsilon on"),
    "raises": (("        signs =", "        1 / 0\n        signs ="), "ZeroDivisionError"),
}  # fmt: skip


@pytest.fixture
def plugin(tmp_path):
    def write(name: str, text: str = GOOD):
        path = tmp_path / f"{name}.py"
        path.write_text(text.replace("NAME", name))
        return path

    return write


@pytest.mark.parametrize(
    "name", ["clean", "fgsm", "pgd-3", "pgd-3@l2:0.5", "pgd-3@l1:2", "cw-3", "logit-scaling-10", "spsa-1", "apgd-ce"]
)
def test_shipped_attacks_keep_the_contract(name):
    assert [finding.fault for finding in examine(name) if finding.fault] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_promise_is_named_with_the_way_out(plugin, name):
    (before, after), message = FAULTS[name]
    text = GOOD.replace(before, after)
    if name == "in_place":
        text = text.replace("signs).clamp(0, 1)", "signs).clamp_(0, 1)")
    assert text != GOOD
    registry.load_plugin(plugin(name, text))
    faults = [finding.fault for finding in examine(name) if finding.fault]
    assert any(message in fault for fault in faults), faults
    if name == "raises":
        assert "(raises.py, line" in faults[0]


def test_the_command_examines_an_attack_of_one_s_own(plugin, capsys):
    def check(*words) -> tuple[int, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(["check", *map(str, words)])
        captured = capsys.readouterr()
        return caught.value.code, captured.out + captured.err

    code, said = check("nudged", "--plugin", plugin("nudged"))
    assert code == 0 and f"nudged: {len(CHECKS)} promises kept" in said
    code, said = check("boxless", "--plugin", plugin("boxless", GOOD.replace(".clamp(0, 1)", "")))
    assert code == 1 and "BROKEN  stays in the ball and in [0, 1]" in said
    code, said = check("pgd-2")
    assert code == 0 and "promises kept" in said
    code, said = check("pgd-2", "--plugin", plugin("third"))
    assert code == 2 and "defines the attack 'third'" in said

"""A method, a network, a data set and an attack, each in one file of a user, in a training and an evaluation."""

import pickle

import pytest
import torch

from sweep.evaluation.asked import Evaluation
from tests.trainers.small_trials import small_trial
from tests.trainers.tiny import all_phases, tiny_problem
from trainers import assembly, attacks, data, models
from trainers.attacks import from_record
from trainers.loop.train import train
from trainers.plugins import registry, user_file

METHOD = '''
"""Cross-entropy on attacked images, halved."""
from dataclasses import dataclass
import torch.nn.functional as F
from trainers.method import Method, hyperparameter

@dataclass(frozen=True)
class Halved(Method):
    share: float = hyperparameter(0.5, low=0.0, high=1.0)

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        return self.share * F.cross_entropy(model(adversarial), labels)
'''
NETWORK = '''
"""One linear layer."""
from torch import nn
from trainers.network import Architecture

def build(classes, shape, mean, std):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

linear = Architecture(build, display="Linear")
'''
DATASET = '''
"""Bars at one of four heights."""
from trainers.dataset import DatasetFacts, DataSource

def load(folder, download):
    import torch

    labels = torch.arange(60) % 4
    images = torch.zeros(60, 1, 4, 4, dtype=torch.uint8)
    images[torch.arange(60), 0, labels] = 255
    return images[:40], labels[:40], images[40:], labels[40:]

bars = DataSource(DatasetFacts(4, (1, 4, 4), 40, 20), display="Bars", load=load)
'''
ATTACK = '''
"""inverted: every pixel moves to the other side of the ball."""
from trainers.attack import EvaluationAttack
from trainers.values import as_float

class Inverted(EvaluationAttack):
    kind: str = "inverted"

    @property
    def cost(self):
        return 0.4

    def adversarial(self, model, images, labels, indices):
        return images + as_float(self.epsilon) * (1 - 2 * images).sign()
'''
FILES = {"halved": METHOD, "linear": NETWORK, "bars": DATASET, "inverted": ATTACK}


@pytest.fixture(autouse=True)
def files(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        assert registry.load_plugin(path) == name


def test_one_file_each_makes_a_training_and_an_evaluation(tmp_path):
    config = small_trial("halved+awp", dataset="bars", model="linear", awp={}, train_images=None, test_images=None)
    found = train(config, folder=tmp_path / "trial")
    assert found["status"] == "done" and len(found["curve"]) == 3
    bundle, model = data.load("bars"), assembly.build_model(config)
    verdicts = all_phases(model, bundle.test_images, bundle.test_labels, attacks.parse("inverted", epsilon="0.5"))
    assert len(verdicts.correct) == len(verdicts.clean) == 20


def test_an_attack_of_ones_own_is_known_by_the_hash_of_its_file_and_survives_a_record():
    model, images, labels = tiny_problem(20)
    attack = attacks.parse("inverted", epsilon="0.5")
    assert attack.plugin == registry.sha256_of(registry.ATTACKS, "inverted") and len(attack.plugin) == 64
    assert from_record(attack.model_dump(mode="json", exclude_none=True)) == attack
    again = all_phases(model, (images + 0.5 * (1 - 2 * images).sign()), labels, attacks.parse("clean"))
    assert torch.equal(all_phases(model, images, labels, attack).correct, again.correct)


def test_an_attack_of_ones_own_reaches_a_process_that_has_not_loaded_its_file():
    attack = attacks.parse("inverted", epsilon="0.5")
    sent = pickle.dumps(Evaluation("ab" * 32, "last", attack, 20))
    registry.forget("inverted")
    received = pickle.loads(sent)
    assert received.attack.id == attack.id and received.record.endswith(f"/last/{attack.id}.json")


def test_a_network_of_ones_own_is_counted_without_being_computed():
    assert models.numbers("linear", 4, (1, 4, 4)) == 16 * 4 + 4
    assert registry.NETWORKS.get("linear").display == "Linear"


def test_every_file_travels_to_the_workers():
    assert set(FILES) <= set(registry.sources())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("two_things", METHOD + NETWORK, "defines a method and a model; a file holds one thing"),
        ("other_kind", ATTACK, "its kind is 'inverted'; write kind: str = 'other_kind'"),
        ("digits", DATASET, "the name 'digits' is taken"),
        ("linear2", NETWORK + "second = Architecture(build, display='2')\n", "defines 2 models"),
    ],
)
def test_a_file_that_cannot_be_one_thing_gets_one_clear_message(tmp_path, name, text, message):
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        registry.load_plugin(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_what_is_no_regular_file_or_too_large_is_refused(tmp_path):
    with pytest.raises(ValueError, match="plug-in /dev/zero cannot be read: it is not a regular file"):
        registry.load_plugin("/dev/zero")
    large = tmp_path / "large.py"
    large.write_text("#" * 1_000_001)
    with pytest.raises(ValueError, match="larger than 1 MB"):
        registry.load_plugin(large)


def test_a_function_of_a_file_is_found_by_file_and_name(tmp_path):
    build = user_file.attribute(f"{tmp_path / 'linear.py'}:build", "model factory")
    assert build(4, (1, 4, 4), None, None)(torch.zeros(2, 1, 4, 4)).shape == (2, 4)
    with pytest.raises(ValueError, match="has no function 'make'; it has: .*build"):
        user_file.attribute(f"{tmp_path / 'linear.py'}:make", "model factory")

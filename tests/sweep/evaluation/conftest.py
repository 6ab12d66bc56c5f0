"""A trial that was trained, small."""

import pytest

from sweep.store import layout
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.opening import open_store
from sweep.trials.identity import trial_hash
from tests import records
from trainers.config import Recipe, Selection
from trainers.loop.train import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store, the name of the trial in it, its configuration."""
    store = open_store(tmp_path_factory.mktemp("store"))
    recipe = Recipe(epochs=2, batch_size=50, learning_rate=0.05)
    config = records.trial_config(train_images=200, test_images=30, recipe=recipe, selection=Selection(steps=2))
    trial = trial_hash(config)
    outcome = train(config, folder=store.local(layout.trial_folder(trial)))
    facts = {name: outcome[name] for name in ("status", "reason", "curve", "checkpoints", "steps")}
    store.write_record(records.trial_record(trial, config=config, numerics=NUMERICS_VERSION, **facts))
    return store, trial, config

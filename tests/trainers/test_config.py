"""A trial's configuration as records keep it, its wrappers included."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from trainers.config import TrialConfig
from trainers.wrappers.awp import Awp

TRIAL = {"dataset": "digits", "model": "small_cnn", "method": "at+awp"}


def test_wrappers_are_written_at_the_top_level_as_in_all_records():
    config = TrialConfig(**TRIAL, wrappers={"awp": Awp(gamma=0.02)})
    written = json.loads(config.model_dump_json())
    assert written["awp"] == {"gamma": 0.02, "warmup_epochs": 10}
    assert written["seat"] is None and written["ddpm"] is None and "wrappers" not in written
    assert "seat" not in config.model_dump(mode="json", exclude_none=True)
    assert TrialConfig.model_validate(written) == config == TrialConfig.model_validate_json(config.model_dump_json())


@pytest.mark.parametrize("settings", [{"gamma": -1}, {"gama": 0.01}, 3])
def test_settings_of_a_wrapper_are_checked(settings):
    with pytest.raises(ValidationError):
        TrialConfig.model_validate({**TRIAL, "awp": settings})


def test_a_record_s_configuration_is_read_without_torch():
    code = (
        "import sys; from trainers.config import TrialConfig; "
        f"TrialConfig.model_validate({ {**TRIAL, 'awp': {'gamma': 0.01}, 'ddpm': None}!r}); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0

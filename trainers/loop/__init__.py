"""The one training loop: steps, schedules, checkpoints and everything that makes a run repeat itself."""

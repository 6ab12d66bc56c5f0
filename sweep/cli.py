"""The script `sweep`. Importing a command's file adds the command to the application."""

import reports.__main__  # noqa: F401
import sweep.check
import sweep.decide
import sweep.evaluate
import sweep.explain
import sweep.gc
import sweep.merge
import sweep.new
import sweep.plan
import sweep.retry
import sweep.run
import sweep.status
import sweep.submit
import sweep.transfer
import sweep.verify
import sweep.verify_store  # noqa: F401
from sweep.application import main

__all__ = ["main"]

"""MONAI does not load transformers with it, and others can."""

import subprocess
import sys

SCRIPT = """
import sys
import fedmed
import monai.networks.nets
assert "transformers" not in sys.modules
assert monai.networks.nets.Transchex
from transformers import PvtV2Config
"""


def test_monai_does_without_transformers_and_a_bundle_may_have_them():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""FedMed: federated training of medical-image models across sites with and without labels."""

import importlib.util
import os

from fedmed.light_imports import keep_imports_light
from fedmed.log_records import write_plain_records

__version__ = "0.2.0"

# A notebook names its own backend to every program that it starts; where that is not installed, matplotlib fails.
_module = os.environ.get("MPLBACKEND", "").partition("module://")[2].split(".")[0]
if _module and importlib.util.find_spec(_module) is None:
    os.environ["MPLBACKEND"] = "Agg"
keep_imports_light()
write_plain_records()

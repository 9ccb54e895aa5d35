"""FedMed: federated training of medical-image models across sites with and without labels."""

from fedmed.light_imports import keep_imports_light

__version__ = "0.1.0"

keep_imports_light()

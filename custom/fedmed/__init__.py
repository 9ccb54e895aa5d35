"""FedMed: federated training of medical-image models across sites with and without labels."""

from fedmed.light_imports import keep_imports_light
from fedmed.log_records import write_plain_records

__version__ = "0.1.0"

keep_imports_light()
write_plain_records()

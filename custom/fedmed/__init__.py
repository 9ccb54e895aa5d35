"""FedMed: federated training of medical-image models across sites with and without labels."""

__version__ = "0.1.0"

"""FedMed on NVIDIA FLARE."""

from fedmed.flare.parse_lock import guard_parser

guard_parser()

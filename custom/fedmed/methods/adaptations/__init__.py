"""Adaptations of a site to its own images, without labels or gradients: what a study names by ``adaptation``."""

"""Corrections of a site's training that any bundle can use; see :mod:`fedmed.training.corrections.correction`."""

"""Corrections of a site's gradients that any bundle can use; see :mod:`fedmed.engines.gradient_correction`."""

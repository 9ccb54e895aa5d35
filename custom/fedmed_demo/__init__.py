"""Demo federations: synthetic sites that are made on first use and then treated like a hospital's files."""

from fedmed_demo.federation import KINDS, demo_site

__all__ = ["KINDS", "demo_site"]

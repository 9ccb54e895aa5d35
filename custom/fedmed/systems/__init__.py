"""Published systems: a folder each, with all that only it needs. No system imports another."""

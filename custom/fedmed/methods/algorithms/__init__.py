"""Algorithms that any method can be run with: a file each, named by ``algorithm`` in a study."""

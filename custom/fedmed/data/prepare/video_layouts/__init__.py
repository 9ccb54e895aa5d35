"""Layouts of folders of recordings: a file each, found by its name."""

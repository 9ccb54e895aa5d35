"""How folders of recordings are laid out: a file each, found by its name."""

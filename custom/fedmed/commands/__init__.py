"""The command ``fedmed``: a module for each group of its commands, which loads what is heavy when a command runs."""

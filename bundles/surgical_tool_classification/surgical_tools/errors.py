"""The exception for errors that a user of this bundle can correct."""


class BundleInputError(ValueError):
    """A file given to the bundle is missing or does not fit; the message names it and says what to do."""

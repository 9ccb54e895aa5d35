"""The exception a user of this bundle meets."""


class BundleInputError(ValueError):
    """A file given to the bundle is missing or does not fit; the message names it and says what to do."""

"""Images of a site, and corrections that begin with what the others told of theirs."""

from fedmed.training.corrections.correction import RoundStart


def listed(images):
    """Return images as a site lists them."""
    return [{"image": image} for image in images]


def begun(term, *others, kept=None):
    """Begin a round of a correction, from a kept state if there is one; return it."""
    if kept is not None:
        term.load_state_dict(kept)
    term.begin(RoundStart({}, values={"others": list(others)} if others else {}))
    return term

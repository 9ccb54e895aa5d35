"""What is said of private layers that sites lend to others for the closing evaluation."""

ALL_SITES = "all"  # in place of one site: the mean of what all labelled sites release


def lent_by(owner: str) -> str:
    """Whose private layers scored a site that has none of its own, after ``scored``."""
    return "with the mean of the sites' private layers" if owner == ALL_SITES else f"with {owner}'s decoder"

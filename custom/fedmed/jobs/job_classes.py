"""Class paths that FedMed's jobs name, for the lists of what a kit may load. The module does without MONAI."""

from fedmed.jobs.app_shape import FIXED
from fedmed.methods.find_method import installed

PARTIAL = "fedmed.flare.aggregators.PartialSharingAggregator"


def job_classes() -> list[str]:
    """Class paths that FedMed's jobs name: a job without custom/ runs only where a kit allows these."""
    methods = [kind() for kind in installed().values()]
    executors = {role.executor for method in methods for role in method.roles().values()}
    return sorted({*FIXED, PARTIAL, *executors, *(method.aggregator for method in methods)})

"""The federation that a table is run on: which sites stand for the paper's, and how long training may take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from fedmed.errors import JobError
from fedmed.experiments.checks import check_mapping, check_names, check_overrides, check_seeds, require

DEFAULT_NETWORK = "default"
POOL = "pool"  # site that holds the cases of several


@dataclass(frozen=True)
class Budget:
    """Iterations of every site in one run; the same for all arms of a table.

    Attributes:
        steps: iterations of a supervised site in all.
        warm_start: the first of them, in which sites without labels do not take part yet.
        interval: iterations between two aggregations.
        validate: iterations between two validations of the labelled sites.
    """

    steps: int
    warm_start: int
    interval: int
    validate: int

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < (each.name != "warm_start"):
                raise JobError(f"'budget: {each.name}' is {value!r}; it must be a whole number of iterations")
        if self.warm_start > self.steps or self.interval > self.steps:
            raise JobError(f"'budget': warm_start and interval must not be longer than the {self.steps} steps of a run")


@dataclass(frozen=True)
class Federation:
    """What an experiment needs to know of the data.

    Attributes:
        name: for folders and headings.
        sites: the table's name of a site (``site_1``) -> the site's name in the federation.
        networks: ``default`` and others -> overlays of the bundle.
        budget: iterations.
        seeds: used unless the command line names others; None = the table's own.
        labelled: datalist beside a site's own with masks for all of its cases; None = its own datalist.
        overrides: role -> overridable settings of the bundle for every run that does not say otherwise.
        job: further keys of :class:`fedmed.jobs.study.Study` for every run.
    """

    name: str
    sites: Mapping[str, str]
    networks: Mapping[str, Sequence[str]]
    budget: Budget
    seeds: Sequence[int] | None = None
    labelled: str | None = None
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_mapping("sites", self.sites, "the table's sites with yours, such as {site_1: hospital_a}", of=str)
        # Two of the table's sites in one would leave it only one of its two roles.
        check_names("sites", list(self.sites.values()))
        require(POOL not in self.sites.values(), "sites", POOL, "another name; 'pool' is that of the pooled cases")
        check_mapping("networks", self.networks, "names with lists of overlays, such as {default: [demo]}", of=list)
        if self.seeds is not None:
            check_seeds(self.seeds)
        require(self.labelled is None or isinstance(self.labelled, str), "labelled", self.labelled, "a file name")
        check_overrides(self.overrides)
        check_mapping("job", self.job, "further settings of every job")


def load_federation(path: Path) -> Federation:
    """Read a YAML such as ``experiments/data/demo.yaml``.

    Raises:
        JobError: missing or malformed file, unknown or missing key.
    """
    content = read_yaml(path, "the description of a federation")
    try:
        budget = content.pop("budget")
        check_mapping("budget", budget, f"whole numbers for {', '.join(each.name for each in fields(Budget))}")
        budget = Budget(**budget)
        federation = Federation(name=Path(path).stem, budget=budget, **content)
    except (KeyError, TypeError) as error:
        raise JobError(
            f"{path}: needs sites, networks and budget, and knows none but these and seeds, labelled, overrides, "
            f"job: {error}"
        ) from error
    except JobError as error:
        raise JobError(f"{path}: {error}") from error
    if DEFAULT_NETWORK not in federation.networks:
        raise JobError(f"{path}: 'networks' needs an entry '{DEFAULT_NETWORK}' (a list of overlays)")
    return federation


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """Return a YAML file's mapping.

    Raises:
        JobError: the file is missing, is no YAML or holds no mapping.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise JobError(f"{path} cannot be read as {what}: {error}") from error
    if not isinstance(content, dict):
        raise JobError(f"{path} holds no 'key: value' lines, so it is not {what}")
    return content

"""A study: the one YAML that describes a job."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator

from fedmed import site_names
from fedmed.data.structure import Structure, check_name
from fedmed.jobs.job_meta import PLAIN
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.methods.find_method import adaptations, algorithms, method_spec
from fedmed.methods.method import ALL_SITES
from fedmed.settings.yaml_model import InWords, YamlModel

MOST_ROUNDS = 100_000
LARGEST = 1e15  # of a number among plain arguments; below 2⁵³, so that every reader keeps whole ones
LONGEST = 1000  # characters of a text there


def _plain_args(args: dict[str, Any]) -> dict[str, Any]:
    for name, value in args.items():
        for one in (name, *_within(value)):
            if isinstance(one, str) and len(one) > LONGEST:
                raise ValueError(f"'{name[:40]}' holds a text of more than {LONGEST} characters; shorten it")
            if type(one) in (int, float) and not (math.isfinite(one) and abs(one) <= LARGEST):
                raise ValueError(f"'{name[:40]}' holds a number beyond {LARGEST:g}; no setting needs that")
    return args


def _within(value: Any) -> Iterator[Any]:
    """A plain value, or all in it, names too."""
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _within(part)
    if not isinstance(value, (dict, list)):
        yield value


Text = Annotated[str, Field(max_length=200)]  # a name, a class path or the name of a file
Args = Annotated[dict[str, Any], AfterValidator(_plain_args)]
Role = Literal["supervised", "unsupervised", "evaluate"]
Site = Annotated[str, Field(pattern=site_names.PATTERN), InWords(site_names.WORDS)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
ClassName = Annotated[str, AfterValidator(check_name)]
Class = Annotated[  # by kind of value, so that a wrong one is told once
    Annotated[ClassName, Tag("a name")] | Annotated[Structure, Tag("described")],
    Discriminator(lambda value: "a name" if isinstance(value, str) else "described"),
]

ServerOptimizer = Annotated[  # as with classes
    Annotated[Text, Tag("a name")] | Annotated[Args, Tag("described")],
    Discriminator(lambda value: "described" if isinstance(value, dict) else "a name"),
]

Statistics = Literal["average", "pooled", "local"]
Buffers = Annotated[  # as with classes
    Annotated[Statistics, Tag("a name")] | Annotated[dict[Role, Statistics], Tag("by role")],
    Discriminator(lambda value: "by role" if isinstance(value, dict) else "a name"),
]


class Named(YamlModel):
    """A class with plain arguments."""

    path: Text = Field(description="class path")
    args: Args = Field(default={}, description="plain arguments of the class")


class Chosen(YamlModel):
    """An algorithm or adaptation with its arguments."""

    name: Text = Field(description=f"{', '.join((*algorithms(), *adaptations()))}, or a class path")
    args: Args = Field(default={}, description="plain arguments, such as {mu: 0.01}")


Algorithm = Annotated[
    Annotated[Text, Tag("a name")] | Annotated[Chosen, Tag("with arguments")],
    Discriminator(lambda value: "a name" if isinstance(value, str) else "with arguments"),
]


class Rule(YamlModel):
    """The server's rule, where it is not the method's own."""

    path: Text | None = Field(default=None, description="class path; by default the method's rule")
    args: Args = Field(default={}, description="arguments, in place of the method's, such as {rule: median}")


class WarmStart(YamlModel):
    """The first rounds, which sites without labels sit out."""

    rounds: int = Field(default=0, ge=0, le=MOST_ROUNDS, description="how many rounds")
    sharing: Text | None = Field(
        default=None, description="sharing group in these rounds, such as full; else 'sharing'"
    )


class Resume(YamlModel):
    """The job that this one continues; fedmed study resume writes it."""

    job: Annotated[str, Field(pattern=PLAIN), InWords("a job's id: the name of its folder, without a path")] = Field(
        description="id of the job to continue after its last good round"
    )
    fresh: list[Text] = Field(default=[], max_length=1000, description="sites whose private state of that job is lost")


def _one_or_several(schema: dict[str, Any]) -> None:
    """A list may also be written as its one entry, or not at all."""
    kept = {key: schema.pop(key) for key in ("type", "items", "maxItems")}
    schema["anyOf"] = [kept["items"], kept, {"type": "null"}]


class Study(YamlModel):
    """Description of a job. Every app of its folder carries the same text, as ``config/study.yaml``."""

    name: Annotated[str, InWords("1 to 200 letters, digits, _, and after the first also spaces . -")] = Field(
        pattern=r"^\w[\w .-]{0,199}$", description="name of the job"
    )
    bundle: Text = Field(description="installed bundle that is trained")
    overlays: list[Text] = Field(
        default=[], max_length=100, description="overlays of the bundle for all sites, such as its size"
    )
    role_overlays: dict[Role, Annotated[list[Text], Field(max_length=100)]] = Field(
        default={}, description="role: further overlays, such as a schedule, of the sites of this role alone"
    )
    classes: list[Class] | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="what is looked for: names, such as [normal, pneumonia], or name, label, colour, code, category, "
        "anatomy, unit of each; of images in the order of the network's outputs, of masks what 1, 2, … stand for. By "
        "default what the bundle says",
    )
    method: Named = Field(description="method, a class below fedmed.systems, and its arguments")
    algorithm: Algorithm | None = Field(
        default=None,
        description=f"what is added to any method: {', '.join(algorithms())}; with arguments {{name: …, args: {{…}}}}",
    )
    adaptation: list[Algorithm] = Field(
        default=[],
        max_length=10,
        json_schema_extra=_one_or_several,
        description="how sites without labels adapt to their own images, without labels or gradients: "
        f"{', '.join(adaptations())}, or several",
    )
    sites: dict[Site, Role] = Field(
        min_length=1, max_length=1000, description="site: supervised, unsupervised or evaluate"
    )
    rounds: int = Field(ge=1, le=MOST_ROUNDS, description="federated rounds")
    steps: int | None = Field(
        default=None, ge=1, le=1_000_000, description="optimizer steps of a site in a round; or 'epochs'"
    )
    epochs: float | None = Field(
        default=None, gt=0, le=10_000, description="passes of a site over its own images in a round"
    )
    warm_start: WarmStart = Field(default=WarmStart(), description="first rounds, without the sites without labels")
    sharing: Text | dict[Role, Text] = Field(
        default="full", description="full, or a partial sharing group of the bundle; or role: group"
    )
    buffers: Buffers = Field(
        default="average",
        description="BatchNorm statistics: average, pooled, or local, which stay at the site; or role: one of them. A "
        "site that keeps its own begins with those of labelled sites, if these share them",
    )
    normalise: bool = Field(default=True, description="divide by the sites' total weight; false is Eq. 3 as printed")
    user_weights: dict[Site, Weight] = Field(default={}, description="site: weight, 1 unless given")
    rule: Rule | None = Field(default=None, description="the server's rule, where it is not the method's own")
    server_step: ServerOptimizer | None = Field(
        default=None,
        description="the server's optimizer, which acts on each round's mean: sgd, adam, adamw or yogi; with settings "
        "{by: adamw, rate: 0.001, decay: 0.01}; by default the mean is the next model",
    )
    max_norm: float | None = Field(default=None, gt=0, description="an update with a larger L2 norm is refused")
    clip_norm: float | None = Field(default=None, gt=0, description="one with a larger norm is scaled down to it")
    max_norm_ratio: float = Field(
        default=1000.0,
        ge=1,
        allow_inf_nan=False,
        description="an update is refused whose L2 norm is more than so many times the usual one: that of the other "
        "sites in the round, or of its own earlier rounds",
    )
    max_samples: int = Field(
        default=10_000_000,
        ge=1,
        description="an update is refused that tells of more training images, of videos of more frames; later rounds "
        "count no more than the site's first",
    )
    overrides: dict[Role, dict[str, Any]] = Field(
        default={}, description="role: plain values of the bundle's overridable settings"
    )
    min_clients: int | None = Field(
        default=None, ge=1, le=1000, description="accepted updates that a round needs; else all"
    )
    validate_every: int = Field(
        default=1, ge=1, le=MOST_ROUNDS, description="labelled sites score the model every so many rounds"
    )
    select: Literal["best", "last", "mean"] = Field(
        default="best",
        description="the result: what labelled sites score best, the last aggregate, or the mean of the last rounds'",
    )
    mean_rounds: int = Field(default=3, ge=2, le=1000, description="of how many rounds, with 'select: mean'")
    evaluate: bool = Field(default=True, description="score the result on the sites' testing lists")
    evaluate_last: bool = Field(default=False, description="score the last aggregate on them too")
    evaluate_first: bool = Field(default=False, description="score the starting model on them too")
    gain: bool = Field(
        default=False,
        description="each labelled site also trains a model alone, with the same steps, which never leaves it; at the "
        "end it says what the federation's model gains over that one",
    )
    release_from: Text | None = Field(
        default=None,
        description="labelled site whose private layers score the others, or 'all': the mean of those of all labelled "
        "sites; each must allow that itself",
    )
    release_weights: Literal["samples", "uniform"] = Field(
        default="samples", description="that mean is by the sites' training samples, or every site counts the same"
    )
    release_partial: bool = Field(
        default=False, description="where a site releases nothing, take the mean of the others; by default of nobody"
    )
    release_keep: bool = Field(
        default=False,
        description="keep the mean at the server, for fedmed export --unseen; each site must allow that too",
    )
    checkpoint: Text | None = Field(
        default=None, description="file in the server's $FEDMED_HOME/models or the bundle's models/ to start from"
    )
    encoder: Text | None = Field(
        default=None, description="file in the server's $FEDMED_HOME/models from which the bundle fills its encoder"
    )
    checkpoint_tensors: list[Annotated[str, Field(max_length=1000)]] = Field(
        default=[], max_length=1000, description="regular expressions of what is taken from it; by default everything"
    )
    optimizer_state: Literal["persist", "reset"] = Field(default="persist", description="across a site's rounds")
    task_timeout: int = Field(
        default=0, ge=0, le=10_000_000, description="seconds that a site may take for one task; 0: no limit"
    )
    max_failed_rounds: int = Field(
        default=2, ge=1, le=MOST_ROUNDS, description="the job stops after so many failed rounds in a row"
    )
    fingerprint: bool = Field(
        default=False,
        description="before round 1 each site sends what its images are like, in rounded numbers, as far as its own "
        "settings allow, and the server says what does not fit",
    )
    collapse_guard: bool = Field(default=True, description="warn when the training of a site collapses")
    patience: int | None = Field(
        default=None,
        ge=1,
        le=MOST_ROUNDS,
        description="the run ends when so many models in a row are scored no better than the best",
    )
    min_rounds: int = Field(
        default=0, ge=0, le=MOST_ROUNDS, description="rounds that are trained before that, at least"
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="of weights, sampling and augmentation")
    custom: bool = Field(
        default=True, description="apps have a folder custom/, as NVFlare's simulator needs; kits forbid it by default"
    )
    resume: Resume | None = Field(default=None, description="the job that this one continues")

    @field_validator("classes", mode="before")
    @classmethod
    def _a_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            names = ", ".join(filter(None, map(str.strip, value.split(","))))
            raise ValueError(f"write a list: classes: [{names}], or on a command line --set 'classes=[{names}]'")
        return value

    @field_validator("sites")
    @classmethod
    def _sorted(cls, value: dict[str, Role]) -> dict[str, Role]:
        return dict(sorted(value.items()))

    @field_validator("adaptation", mode="before")
    @classmethod
    def _one_or_none(cls, value: Any) -> Any:
        if value in (None, "none"):
            return []
        return value if isinstance(value, list) else [value]

    @property
    def structures(self) -> list[Structure]:
        """The classes, those of which only the name is said too."""
        return [Structure(name=one) if isinstance(one, str) else one for one in self.classes or ()]

    @property
    def method_spec(self) -> dict[str, Any]:
        """Method, adaptations and algorithm, for :func:`fedmed.methods.find_method.load_method`."""
        return method_spec(self.model_dump(include={"method", "adaptation", "algorithm"}))

    @property
    def adapts(self) -> bool:
        """True where sites adapt, also where the study says so as FedMed 0.1 did."""
        return bool(self.method_spec.get("adaptation"))

    def unadapted(self) -> "Study":
        """The study without its adaptation."""
        kept = self.algorithm if "algorithm" in self.method_spec else None
        return self.model_copy(update={"adaptation": [], "algorithm": kept})

    def of_role(self, *roles: str) -> list[str]:
        """Sites with one of these roles, sorted."""
        return sorted(site for site, role in self.sites.items() if role in roles)

    @property
    def releasing_sites(self) -> list[str]:
        """Sites that are asked to release their private layers, sorted."""
        if self.release_from == ALL_SITES:
            return self.of_role("supervised")
        return [] if self.release_from is None else [self.release_from]

    def participants(self, round: int) -> list[str]:
        """Sites that train in a round, counted from 0."""
        return self.of_role("supervised") if round < self.warm_start.rounds else self.of_role(*TRAINING_ROLES)

    def needed(self, round: int) -> int:
        """Accepted updates without which a round fails."""
        present = len(self.participants(round))
        return present if self.min_clients is None else min(self.min_clients, present)

    def validates(self, round: int) -> bool:
        """Tell whether labelled sites score the model that they receive in a round."""
        return self.select != "last" and round % self.validate_every == 0

    def group(self, role: str) -> str:
        """Sharing group of a role; sites that are only scored have that of the labelled ones."""
        if isinstance(self.sharing, str):
            return self.sharing
        said = {str(name): group for name, group in self.sharing.items()}
        return said.get(role, said.get("supervised", "full") if role == "evaluate" else "full")

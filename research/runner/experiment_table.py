"""An experiment: the arms of one table, what is measured of them and what is claimed, as its YAML describes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fedmed.errors import JobError
from fedmed.settings.yaml_model import Document, YamlModel, check_model, read_yaml
from research.runner.experiment_data import ExperimentData, Names, Seeds
from research.runner.score_kinds import ScoreKind
from research.runner.stages import Stage
from research.runner.table_claim import TableClaim, read_claims
from research.runner.table_layout import ShownArm, TableLayout
from research.runner.yaml_models import PATH, build, build_named

Settings = Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
Changes = dict[str, dict[str, Any] | None]
Stages = Annotated[Changes, Field(min_length=1)]  # None: arms do not have it


class TableYaml(YamlModel):
    """The keys of a table's YAML; those that name a class do so by ``path``.

    With ``like: name``, what a table leaves out is as in the other one, but for claims: two tables of the same arms.
    """

    title: str
    data: str  # that it is run on unless the command line names others
    seeds: Seeds  # each arm is run once for each
    test: Names | None = None  # sites that are shown
    chain: Stages  # stage -> class and settings of all arms, in order; a stage that is null only some have
    variants: dict[str, dict[str, dict[str, Any] | None]] | None = (
        None  # name -> settings of stages; every arm is there with each
    )
    arms: Settings  # name -> ``group``, ``x``, and settings of stages; with a ``path``, the stage is another one
    scores: Settings  # name -> class that makes it of the units, and its settings
    layout: dict[str, Any]  # class that shows the table, and its settings
    claim_kind: str | None = None  # class of the claims that name none
    claims: list[Any] = []


@dataclass(frozen=True)
class ExperimentArm(ShownArm):
    """One row of a table, with the stages that it is made of."""

    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class ExperimentTable:
    """A table, checked: the values of its :class:`TableYaml`, and objects of the classes that this names."""

    name: str  # of its file and folder
    title: str
    data: str
    seeds: Sequence[int]
    test: list[str]
    arms: Sequence[ExperimentArm]
    scores: Mapping[str, ScoreKind]
    layout: TableLayout
    claims: Sequence[TableClaim]

    def check_data(self, data: ExperimentData) -> None:
        """Make sure that the data is of the kind that the arms need, and has the sites that are shown.

        Raises:
            JobError: it is not, or has not.
        """
        for stage in (stage for arm in self.arms for stage in arm.stages):
            if not isinstance(data, stage.needs):
                raise JobError(
                    f"table '{self.name}' is made of {type(stage).__name__}, which needs {stage.needs.__name__}, and "
                    f"'{data.name}' is {type(data).__name__}; choose other --data, or run the tables apart"
                )
        data.shown_sites(self.test)


def load_table(path: Path) -> ExperimentTable:
    """Read a table's YAML.

    Raises:
        JobError: missing or malformed file, unknown or missing key, unknown class; names what and where.
    """
    read = check_model(_with_shared(read_yaml(path, error=JobError)), TableYaml, error=JobError)
    try:
        variants = read.variants or {"": {}}
        arms = [_arm(name, arm, read.chain, v, more) for v, more in variants.items() for name, arm in read.arms.items()]
        scores = {name: build_named(ScoreKind, kind, f"scores: {name}") for name, kind in read.scores.items()}
        layout = build_named(TableLayout, read.layout, "layout")
        layout.check(arms, scores)
        known = {"arm": [arm.name for arm in arms], "row": read.arms, "site": read.test or [], "score": scores}
        claims = read_claims(read.claims, read.claim_kind, known)
    except JobError as error:
        raise JobError(f"{path}: {error}") from error
    stem = Path(path).stem
    return ExperimentTable(stem, read.title, read.data, read.seeds, read.test or [], arms, scores, layout, claims)


def only(table: ExperimentTable, names: Sequence[str]) -> ExperimentTable:
    """The table with some of its arms, in its order; claims that speak of others read ``not run``.

    Raises:
        JobError: it has no such arm.
    """
    known = [arm.name for arm in table.arms]
    if unknown := [name for name in names if name not in known]:
        raise JobError(f"table '{table.name}' has no arm '{unknown[0]}'; it has: {', '.join(known)}")
    return replace(table, arms=[arm for arm in table.arms if arm.name in names])


def names_in(text: str, table: ExperimentTable) -> list[str]:
    """Names of arms from a list with commas between; a name of the table may hold commas itself."""
    known, parts, names = {arm.name for arm in table.arms}, text.split(","), []
    while parts:
        number = next((n for n in range(len(parts), 1, -1) if ",".join(parts[:n]).strip() in known), 1)
        names.append(",".join(parts[:number]).strip())
        parts = parts[number:]
    return names


def _with_shared(document: Document) -> Document:
    """A table with what it does not say itself as the table says that ``like`` names, in the same folder."""
    if "like" not in document.values:
        return document
    values = dict(document.values)
    shared = read_yaml(Path(document.path).with_name(f"{values.pop('like')}.yaml"), error=JobError)
    if "like" in shared.values:
        raise JobError(f"{shared.path}: 'like' names a table that says everything itself; name that one")
    kept = {key: value for key, value in shared.values.items() if key not in ("claims", "claim_kind")}
    return replace(document, values={**kept, **values})


def _arm(
    row: str,
    settings: Mapping[str, Any],
    chain: Mapping[str, Mapping[str, Any] | None],
    variant: str,
    varied: Mapping[str, Mapping[str, Any] | None],
) -> ExperimentArm:
    name = f"{row}, {variant}" if variant else row
    further = {key: value for key, value in settings.items() if key not in chain}
    shown = build(_Shown, further, f"arm '{name}', which may also name the stages {', '.join(chain)}")
    if odd := [stage for stage in varied if stage not in chain]:
        raise JobError(f"variants: '{variant}' names '{odd[0]}', which is not a stage; there are: {', '.join(chain)}")
    stages = []
    for stage, common in chain.items():
        values = _settings(common, varied.get(stage, {}), settings.get(stage, {}), f"arm '{name}': '{stage}'")
        if values is not None:
            stages.append(build_named(Stage, values, f"arm '{name}', {stage}"))
    if not stages:
        raise JobError(f"arm '{name}': all of its stages are null; write the settings of one")
    return ExperimentArm(name, shown.group, shown.x, row, variant, stages=tuple(stages))


def _settings(
    common: Mapping[str, Any] | None, varied: Mapping[str, Any] | None, given: Any, where: str
) -> Mapping[str, Any] | None:
    """Of a stage: the chain's, the variant's and the arm's; None if the arm does not have it."""
    if given is not None and not isinstance(given, Mapping):
        raise JobError(f"{where} is {given!r}; write the settings of that stage, or null if the arm does without")
    if given is None or varied is None:
        return None
    # Another class has other settings than the chain's.
    if PATH in given or PATH in varied:
        return {**(varied if PATH not in given else {}), **given}
    if common is None:
        if varied or given:
            raise JobError(f"{where} has no '{PATH}', and the chain says none; name the stage's class")
        return None
    return {**common, **varied, **given}


class _Shown(YamlModel):
    group: str = ""
    x: float | None = None


def load_tables(paths: Sequence[Path]) -> list[ExperimentTable]:
    """The tables, each under a name of its own, since it is that of its folder.

    Raises:
        JobError: one cannot be read, or two have the same name.
    """
    tables = [load_table(path) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if [other.name for other in tables].count(table.name) > 1:
            raise JobError(f"{path}: another table is called '{table.name}' too; rename one of the files")
    return tables

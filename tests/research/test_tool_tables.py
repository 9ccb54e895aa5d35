"""Tables of tool presence from end to end: two synthetic hospitals with a video or two a list, one round."""

import pytest
import yaml

from fedmed.jobs.app_configs import files
from research.runner.experiment_data import load_data
from research.runner.experiment_table import load_table, only
from research.runner.reproduction import reproduce

from .shipped_tables import EXPERIMENTS, data_of, place_of, table_of

TABLES = ("tools_a1", "tools_a2", "tools_61", "tools_diagnostics")
ARMS = ("LOT", "FedAvg", "CENT")


@pytest.mark.parametrize(("table", "arms"), [("tools_a1", 26), ("tools_resnet", 6)])
def test_every_arm_is_a_job_that_the_bundle_accepts(table, arms):
    table, data = table_of(table), data_of("lap_tools")
    table.check_data(data)
    stages = {arm.name: arm.stages[0] for arm in table.arms if not arm.stages[0].lacking(data)}
    texts = {}
    for name, stage in stages.items():
        one = stage.model_copy(update={"local": [], "train": {"HEI1": "supervised"}}) if stage.local else stage
        job = one.job_of(place_of(name, data, table.test))
        assert files(job) and job.study.epochs == (2 if name.startswith("FedRep") else 1)
        texts[name] = job.study.model_dump_json()
        sizes = {str(job.study.overrides[role].get("image_size")) for role in job.study.sites.values()}
        assert sizes == {"[27, 48]"}, "a model is tested on frames of the size that it was trained with"
    assert len(set(texts.values())) == len(texts) == arms, "two arms would be one run"


@pytest.mark.parametrize("name", TABLES)
def test_all_tables_have_the_same_arms(name):
    assert table_of(name).arms == table_of("tools_a1").arms


def test_a_round_of_a_few_arms_fills_all_four_tables(tmp_path, tiny_site_configs, in_this_process):
    data = yaml.safe_load((EXPERIMENTS / "data" / "lap_tools.yaml").read_text())
    data |= {"sites": {"HEI1": "lap_hei1", "HEI2": "lap_hei2"}, "budget": {"rounds": 1, "epochs": 1}}
    size = {"image_size": [24, 32]}
    data["overrides"] = {"supervised": {**size, "batch_size": 8}, "evaluate": size}
    data["networks"] = {"default": ["demo"]}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(data))
    text = (EXPERIMENTS / "tools_a1.yaml").read_text()
    for other in ("CHO1", "CHO2", "CHO3"):
        text = text.replace(f", {other}: supervised", "").replace(f", {other}", "")
    (tmp_path / "tools_a1.yaml").write_text(text.replace("high: [CHO1]", "high: [HEI1]"))
    for name in TABLES[1:]:
        (tmp_path / f"{name}.yaml").write_text((EXPERIMENTS / f"{name}.yaml").read_text())
    tables = [load_table(tmp_path / f"{name}.yaml") for name in TABLES]
    asked = [ARMS, *[ARMS[1:]] * 3]  # each hospital alone, which are two runs, is read for the first one
    some = [only(t, [f"{arm}, small network" for arm in arms]) for t, arms in zip(tables, asked, strict=True)]
    assert reproduce(some, load_data(tmp_path / "tiny.yaml"), tmp_path / "out", seeds=[0]) == 0
    folder = tmp_path / "out" / "tiny"
    for name, file in zip(TABLES, ("table.md", "table.md", "table.md", "labels.png"), strict=True):
        assert (folder / name / file).stat().st_size > 300
    lines = (folder / "tools_a1" / "table.md").read_text().splitlines()
    assert [line.split(" | ")[0][2:] for line in lines[8:12]] == ["ALTV", "EGOV", "FedAvg", "CENT"]
    assert (folder / "tools_diagnostics" / "cosines.png").is_file()
    assert "no counts" not in (folder / "tools_a2" / "table.md").read_text()

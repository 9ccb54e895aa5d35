"""Tools in videos in NVFlare's simulator: no frame, label or name leaves a site, and the loop gives the same model."""

import shutil

import pytest
import yaml

from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from fedmed.privacy.limits import read_ledger
from fedmed_demo import demo_site
from tests.e2e import runs
from tests.e2e.runs import PATIENT

pytestmark = pytest.mark.slow
GOOD = ("lap_hei1", "lap_hei2")
SITES = (*GOOD, "lap_cho1")  # the last has lost a video that lies in a folder named after a patient


@pytest.fixture(scope="module")
def run(tmp_path_factory, fedmed_home, write_tiny_tools_job, tap):
    """Folder of a finished run, ``ws`` by the simulator and ``loop`` in one process."""
    root = tmp_path_factory.mktemp("tools")
    (root / "configs").mkdir()
    for site in SITES:
        data = shutil.copytree(demo_site("lap_tools_tiny", site, fedmed_home), root / "data" / site)
        values = {"data_root": str(data), "device": "cpu", "threads": 1, "cache_dir": str(root / "cache" / site)}
        values |= {"privacy": {"min_cases": 1}}  # one video to choose by, of nobody
        (root / "configs" / f"{site}.yaml").write_text(yaml.safe_dump(values))
    runs.lose(root / "data" / SITES[-1], "training", "video")
    job = write_tiny_tools_job(root, sites=dict.fromkeys(SITES, "supervised"), rounds=2, min_clients=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_SITE_CONFIGS", str(root / "configs"))
        runs.simulate(job, root / "ws", 3, tap(root))
        run_job(job, root / "loop")
    return root


@pytest.fixture(scope="module")
def secrets(run, secrets_type):
    """Videos as files, as pixels and prepared, masks, tables of labels and predictions, names, a site's own state."""
    outcome = secrets_type()
    for site in SITES:
        outcome.add_site(run / "data" / site, run / "data" / site / "datalist.json", [PATIENT])
        outcome.add_prepared(run / "cache" / site).add_tested(run / "ws" / site)
        for path in (run / "ws" / site / "simulate_job/fedmed/state").glob("round_*.pt"):
            state = load_tensors(path)["optimizer"]["state"]
            outcome.add_tensors(
                f"{site} {path.stem}", {f"{n} {k}": v for n, one in state.items() for k, v in one.items()}
            )
    parts = (".mp4 file", ".mp4 pixels", ".csv table", "prepared", "of the test", "exp_avg_sq")
    assert all(any(part in name for name in outcome.content) for part in parts)
    assert {PATIENT, "LHB-001", "labels/LHB-001.csv"} <= set(outcome.words)
    return outcome


def test_the_loop_gives_the_same_models_and_scores(run):
    assert runs.same_models(run / "ws", run / "loop")
    test = runs.result(run / "ws")["test"]
    assert test == runs.result(run / "loop")["test"] and set(test) == set(SITES)
    for site in SITES:
        (table,) = (run / "ws" / site).rglob("evaluation/frames/*.csv")
        assert table.read_bytes() == (run / "loop" / table.relative_to(run / "ws")).read_bytes()


def test_nothing_secret_is_on_the_wire(run, secrets):
    control = type(secrets)().add_tensors("shared", {"stem": runs.model(run / "ws")["encoder.conv1.weight"]})
    secrets.content |= control.content  # one search takes half the time of two
    assert secrets.found_in(runs.captured(run)) == list(control.content)


def test_nothing_secret_is_at_the_server(run, secrets):
    outcome = secrets.found_in(runs.kept_by_the_server(run / "ws"))
    assert [name for name in outcome if name != "shared stem"] == []


def test_the_site_without_its_video_says_so_at_home_alone(run):
    answers = {line["answer"] for line in read_ledger(run / "ws" / SITES[-1])}
    assert answers == {"live", "refused", "scores"}  # the lists 'validation' and 'testing' are whole
    assert PATIENT in (run / "ws" / SITES[-1] / "simulate_job/fedmed/progress.jsonl").read_text()

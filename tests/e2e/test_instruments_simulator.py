"""Private queries and a training server, in NVFlare's simulator, in one thread and in many, equal the loop.

What the server trains with its own pictures, and what stays at a hospital, is the same bit for bit.
"""

import importlib
import sys
from pathlib import Path

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.server_training import ServerTraining
from fedmed.jobs.job_folder import read_job, write_job
from tests.e2e import runs

pytestmark = pytest.mark.slow
JOB = Path(__file__).resolve().parents[2] / "jobs/instruments_fedst"
sys.path.append(str(JOB.parents[1] / "bundles/instrument_segmentation"))
SIZE = {"image_size": [32, 40]}
ROLES = {"inst_nephro1": "supervised", "inst_hyst": "supervised", "inst_lobe": "evaluate"}
DEMO = {"demo": "lap_instruments_tiny", "device": "cpu", "threads": 1}
RUN = "simulate_job"
TRAINED = ("encoder.", "decoder.", "head.")  # by the server too
SHARED = ("temporal.query.weight", "head.weight")
WIRE = 1.4  # bytes on it, as a multiple of the tensors', at most: sites that wait long also ask more often for work
STATES = [f"{RUN}/fedmed/state/round_{number}.pt" for number in (0, 1)]


@pytest.fixture(scope="module")
def of_the_server():
    """What the server keeps of each round of the loop beside the model."""
    return []


@pytest.fixture(scope="module")
def of_the_sites():
    """Of each training in the loop: (site, round, tensors before it, what the site sends)."""
    return []


@pytest.fixture(scope="module")
def place(store_of, tmp_path_factory, fedmed_home, of_the_server, of_the_sites):
    """The job, its result in one process, a pre-trained model, and settings of hospitals and server."""
    root = tmp_path_factory.mktemp("instruments")
    (root / "configs").mkdir()
    for site in ROLES:
        values = {**DEMO, "allow_release": True, "allow_kept_release": True}
        values |= {"cache_dir": str(root / "cache" / site), "words": {"procedure": "unheard_of"}}
        (root / "configs" / f"{site}.yaml").write_text(yaml.safe_dump(values))
    server = {**DEMO, "demo_site": "inst_simulator", "cache_dir": str(root / "cache/server")}
    (root / "server.yaml").write_text(yaml.safe_dump(server))
    tensors = store_of(
        root, "instrument_segmentation", ["demo", "single_frame"], overrides={"supervised": SIZE}, seed=5
    ).initial
    torch.save({"model": tensors, "meta": {}}, root / "best_FL_global_model.pt")
    job = read_job(JOB)
    method = {**job.study.method.model_dump(), "args": {"server_steps": 3}}
    small = {
        "method": method,
        "sites": ROLES,
        "rounds": 2,
        "steps": 2,
        "overrides": {role: SIZE for role in set(ROLES.values())},
    }
    write_job(job.changed(small), root / "job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_SITE_CONFIGS", str(root / "configs"))
        patch.setenv("FEDMED_SERVER_CONFIG", str(root / "server.yaml"))
        patch.setenv("FEDMED_MODELS", str(root))
        with patch.context() as spied:
            restore = ServerTraining.restore
            spied.setattr(ServerTraining, "restore", lambda s, state: (of_the_server.append(state), restore(s, state)))
            note_trainings(spied, of_the_sites)
            run_job(root / "job", root / "loop")
        yield root


def note_trainings(patch, outcome):
    begin, train = Client._open, Client.train

    def opened(client, task, *alone, **facts):
        client.began = begin(client, task, *alone, **facts)
        return client.began

    def trained(client, task):
        update = train(client, task)
        outcome.append((client.site.site, task.round, client.began.tensors, update.tensors))
        return update

    patch.setattr(Client, "_open", opened)
    patch.setattr(Client, "train", trained)


@pytest.fixture(scope="module", params=[1, 3])
def flare(request, place, tap):
    """Workspace of the same job in the simulator, by one thread and by three; what it sent lies beside it."""
    workspace, root = place / f"flare_{request.param}", place / f"tap_{request.param}"
    root.mkdir()
    printed = runs.simulate(place / "job", workspace, request.param, tap(root))
    assert "unheard_of" not in printed, "a hospital's words stay there"
    return workspace


def test_the_simulator_equals_the_loop(place, flare):
    loop = place / "loop"
    assert runs.same_models(flare, loop)
    for site in ("inst_nephro1", "inst_hyst"):
        private, expected = (load_tensors(workspace / site / STATES[1])["private"] for workspace in (flare, loop))
        assert private and runs.same(private, expected)
    test = runs.result(flare)["test"]
    assert test == runs.result(loop)["test"] and set(test) == set(ROLES)
    for key in ("domain_norm", "descriptor_gap", "feature_gap", "server_loss_pre", "server_loss"):
        assert [row[key] for row in runs.rounds(flare)] == [row[key] for row in runs.rounds(loop)], key


def test_the_bytes_that_are_noted_are_most_of_those_on_the_wire(flare):
    """Names, shapes, scores and questions for work are beside the tensors, 114 small ones in an update."""
    *sites, server = sorted(path.stat().st_size for path in captured(flare))
    result, rounds = runs.result(flare), runs.rounds(flare)
    update = rounds[0]["bytes_up"] // 2
    up, down = (sum(one[way] for one in [*rounds, *result["releases"]]) for way in ("bytes_up", "bytes_down"))
    scored = len(result["validation"]) + len(result["test"])  # models of the end, which are of no round
    for noted, wrote in ((up, sum(sites)), (down + scored * update, server)):
        assert noted < wrote < WIRE * noted, wrote / noted


def test_private_layers_cross_the_wire_once_when_they_are_released(flare):
    capture = sent(flare)
    (release,) = runs.result(flare)["releases"]
    assert set(release["rounds"]) == {"inst_nephro1", "inst_hyst"}
    for site, round in release["rounds"].items():
        for path in (flare / site / RUN).rglob("state/round_*.pt"):
            times = {capture.count(data) for data in large(load_tensors(path)["private"]).values()}
            assert times == {int(path.stem == f"round_{round}")}, f"{path.stem} of {site}"


def test_how_private_layers_change_is_not_on_the_wire(flare, of_the_sites, secrets_type):
    """A site answers with what its training changed, so a layer that leaked would be there as its change.

    But for what began at 0: its change in the first round is its value, and that may be released.
    """
    secrets, control = secrets_type(), secrets_type()
    for site, round, before, sent_tensors in of_the_sites:
        after = load_tensors(flare / site / STATES[round])["private"]
        changes = {name: after[name] - before[name] for name in after if before[name].any()}
        secrets.add_tensors(f"{site} {round}", {name: changes[name] for name in large(changes)})
        control.add_tensors(f"{site} {round}", {name: sent_tensors[name] for name in SHARED})
    assert len(of_the_sites) == 4 and len(secrets.content) > 20
    secrets.content |= control.content
    assert secrets.found_in(sent(flare)) == list(control.content)


def test_what_is_a_hospitals_or_the_servers_alone_is_not_on_the_wire(flare, of_the_server, secrets_type):
    """What the server keeps is the loop's: it leaves none behind when a run has ended, and the two are equal."""
    gaussian = importlib.import_module("instrument_nets.indicators").gaussian
    secrets = secrets_type(words={"words": "unheard_of"})
    secrets.add_tensors("indicator", {str(place): gaussian(place, 2, 16) for place in (0, 1, None)})
    for number, state in enumerate(of_the_server):
        separation = state["state"]["separation"]
        secrets.add_tensors(f"round {number}", {key: separation[key] for key in ("domain", "average")})
        for part, tensors in (("pre", separation["pre"]), ("own", state["private"])):
            trained = {name: tensor for name, tensor in tensors.items() if name.startswith(TRAINED)}
            secrets.add_tensors(f"round {number} {part}", trained)
    assert len(secrets.content) > 100
    final = runs.model(flare)
    control = secrets_type().add_tensors("shared", {name: final[name] for name in SHARED})
    secrets.content |= control.content
    assert secrets.found_in(sent(flare)) == list(control.content)


def sent(workspace):
    """All that any process of the run wrote to a socket."""
    return runs.captured(tap_of(workspace))


def captured(workspace):
    """A file for each process that wrote to one: the server's, and those of sites."""
    return sorted((tap_of(workspace) / "capture").iterdir())


def tap_of(workspace):
    return workspace.with_name(workspace.name.replace("flare", "tap"))


def large(tensors):
    """Bytes of those that say enough to be known again."""
    return {n: t.contiguous().numpy().tobytes() for n, t in tensors.items() if t.unique().numel() >= 16}

"""Files that a study needs from outside: listed, never downloaded, and named where one is missing."""

import hashlib
import socket
from types import SimpleNamespace

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.external_files import external_files
from fedmed.errors import BundleError, JobError
from fedmed.jobs.job_folder import read_job
from fedmed.jobs.needed_files import find_model, in_lines, needed_files
from tests.shipped import names, shipped

RESNET = "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a"
SOUND = {"name": "a.pth", "what": "w", "source": "s", "licence": "l", "sha256": "0" * 8, "fills": ["AHNet"]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home without models, and no network."""

    def refuse(*arguments, **settings):
        raise AssertionError("something asks the network")

    monkeypatch.setenv("FEDMED_HOME", str(tmp_path))
    monkeypatch.delenv("FEDMED_MODELS", raising=False)
    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    (tmp_path / "models").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("study", "listed"),
    [
        ("covid_fssl", []),
        ("covid_fssl_paper", [("resnet50-0676ba61.pth", "encoder", "server", RESNET)]),
        ("cxr_linear", [("FL_global_model.pt", "checkpoint", "server", None)]),
        ("instruments_pretraining_paper", [("pvt_v2_b0.pth", "encoder", "server", None)]),
        (
            "instruments_fedst_paper",
            [
                ("best_FL_global_model.pt", "checkpoint", "server", None),
                ("clip", "words.indicator_path of the site's YAML", "every site", None),
            ],
        ),
    ],
)
def test_a_study_lists_what_it_needs(study, listed, home):
    files = needed_files(read_job(shipped(study)))
    assert [(one.name, one.key, one.machine, one.sha256) for one in files] == listed
    assert all(one.licence and one.source and (one.sha256 or one.unverified) and not one.present for one in files)
    for one in files:
        text = "\n".join(in_lines(one))
        assert one.places[0] in text and one.licence in text and (one.machine != "server" or str(home) in text)


@pytest.mark.parametrize("study", names())
def test_whatever_a_shipped_study_starts_from_is_listed(study):
    job = read_job(shipped(study))
    wanted = {job.study.encoder, job.study.checkpoint} - {None}
    files = needed_files(job)
    assert {one.name for one in files if one.machine == "server"} == wanted
    assert not [one for one in files if one.key == "encoder" and one.licence == "not known"]


def test_a_file_that_is_here_is_compared_with_the_published_one(home, monkeypatch):
    job, path = read_job(shipped("covid_fssl_paper")), home / "models" / "resnet50-0676ba61.pth"
    path.write_bytes(b"cut short")
    (one,) = needed_files(job)
    assert one.differs and one.bytes == 9 and one.state.startswith("differs: SHA-256 ") and one.found == path
    with pytest.raises(JobError, match=f"{path} is not the published file: .*{RESNET}; copy it again"):
        find_model(job.bundle("supervised"), "encoder", path.name)
    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *all: SimpleNamespace(hexdigest=lambda: RESNET))
    (one,) = needed_files(job)
    assert one.state == "here, and as published" and find_model(job.bundle("supervised"), "encoder", path.name) == path
    monkeypatch.setattr(hashlib, "file_digest", real)
    (path.parent / "FL_global_model.pt").write_bytes(b"a run's")
    assert needed_files(read_job(shipped("cxr_linear")))[0].state == "here, not verified"


def test_a_site_looks_for_its_own_files(home):
    job, words = read_job(shipped("instruments_fedst_paper")), {"procedure": "nephrectomy", "indicator_path": "mine"}
    site = SimpleNamespace(data_root=home, words=words)
    assert [one.state for one in needed_files(job)][1:] == ["each site knows: fedmed site check"]
    assert [one.state for one in needed_files(job, site)] == ["missing", "missing"]
    (home / "mine").mkdir()
    assert [one.state for one in needed_files(job, site)] == ["missing", "here, not verified"]


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("a.pth", "does not hold 'key: value' lines"),
        ({**SOUND, "licens": "x"}, "unknown key 'licens'"),
        ({**SOUND, "licence": ""}, "'licence' must be a text"),
        ({**SOUND, "name": "../a.pth"}, "not a plain file name"),
        ({**SOUND, "sha256": 12345678}, "'sha256' is 12345678; give 8 to 64 small hexadecimal digits, in quotes"),
        ({**SOUND, "unverified": "why"}, "give either 'sha256', or 'unverified'"),
        ({**SOUND, "bytes": "9"}, "'bytes' must be a whole number"),
        ({**SOUND, "word": "clip"}, "give either 'fills', a list of networks, or 'word'"),
    ],
)
def test_a_bundle_that_lists_a_file_wrongly_is_told_with_an_example(entry, fault, monkeypatch):
    bundle = Bundle("covid_ct_segmentation")
    monkeypatch.setitem(bundle.federation, "external_files", [SOUND, entry])
    with pytest.raises(BundleError, match=r"(?s)federation.yaml: 'external_files', entry 2: .*Example") as said:
        external_files(bundle)
    assert fault in str(said.value)


def started(study, **changed):
    from fedmed.recovery.model_store import ModelStore

    return lambda home: ModelStore(read_job(shipped(study)).changed(changed), home / "app").initial


def network(indicator, path):
    def build(home):
        from fedmed.bundles.bundle_parser import parsed

        bundle = Bundle("instrument_segmentation", ["demo"], {"indicator": indicator, "indicator_width": 512})
        words = {"procedure": "nephrectomy", "indicator_path": path}
        parsed(bundle.parser(device="cpu", dataset_dir=str(home), site_words=words), "network")

    return build


@pytest.mark.parametrize(
    ("load", "place"),
    [
        (started("covid_fssl_paper"), "models.*resnet50-0676ba61"),
        (started("phases_fedcy_paper"), "models.*resnet50-0676ba61"),
        (started("tools_paper"), "models.*alexnet-owt-7be5be79.pth"),
        (started("tools_paper", encoder="mine.pth"), "encoder 'mine.pth' is not in .*models.*alexnet-owt-7be5be79.pth"),
        (started("instruments_pretraining_paper"), "models.*pvt_v2_b0.pth"),
        (started("cxr_linear"), "'FL_global_model.pt' is not in .*models"),
        (started("instruments_fedst"), "'best_FL_global_model.pt' is not in .*models"),
        (network("text", "clip"), "/clip of the text encoder does not exist"),
        (network("file", "mine.pt"), "/mine.pt does not exist"),
    ],
)
def test_a_missing_file_is_named_with_its_place_and_nothing_is_downloaded(load, place, home):
    with pytest.raises((JobError, BundleError), match=rf"(?s){place}.*fedmed fetch-list STUDY"):
        load(home)

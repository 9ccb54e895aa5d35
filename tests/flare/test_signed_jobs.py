"""The record of signed jobs, and what tells one submission from another."""

import base64
import json
import threading

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.lighter.utils import Identity, generate_cert, generate_keys, sign_folders

from fedmed.errors import JobError, StateError
from fedmed.flare.job_description import Signed, read_signatures
from fedmed.flare.job_gate import RECORD, SignedJobs

LEAD = ("lead@example.org", "study_office", "lead")
IDS = [f"0a4c5f3e-2b1d-4c6e-8f70-9182a3b4c5d{digit}" for digit in range(10)]


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """Private key and certificate of the lead, as NVFlare makes them."""
    private, public = generate_keys()
    path = tmp_path_factory.mktemp("lead") / "client.crt"
    path.write_bytes(generate_cert(Identity(*LEAD), Identity("study"), private, public).public_bytes(Encoding.PEM))
    return private, str(path)


@pytest.fixture
def app(tmp_path):
    folder = tmp_path / "job" / "app_supervised"
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "study.yaml").write_text("rounds: 1\n")
    (folder / "config" / "config_fed_client.json").write_text("{}")
    return folder


@pytest.fixture
def submitted(key, app):
    """Return a function: the app's archive, signed anew as NVFlare's client does whenever a job is submitted."""

    def submit() -> bytes:
        sign_folders(str(app.parent), *key)
        return zip_directory_to_bytes(str(app), "")

    return submit


def test_no_two_submissions_of_a_folder_share_a_signature(submitted):
    first, second = read_signatures(submitted()), read_signatures(submitted())
    assert first.signers == second.signers == {LEAD}
    assert len(first.signatures) == len(second.signatures) == 3, "two files and their folder"
    assert not first.signatures & second.signatures


def test_a_signature_is_the_same_however_it_is_written(submitted, app):
    before = read_signatures(submitted())
    path = app / "config" / NVFLARE_SIG_FILE
    signatures = {name: base64.b64decode(text) for name, text in json.loads(path.read_text()).items()}
    for written in (b"\0" + signatures["study.yaml"], signatures["study.yaml"]):
        text = "\n ".join(base64.b64encode(written).decode())  # NVFlare's reader passes over such letters
        others = {name: base64.b64encode(one).decode() for name, one in signatures.items()}
        path.write_text(json.dumps({**others, "study.yaml": text}))
        assert read_signatures(zip_directory_to_bytes(str(app), "")) == before


@pytest.mark.parametrize("lost", ["study.yaml", "config_fed_client.json"])
def test_an_app_is_signed_as_a_whole(submitted, app, lost):
    submitted()
    path = app / "config" / NVFLARE_SIG_FILE
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != lost}))
    with pytest.raises(JobError, match="not signed as a whole"):
        read_signatures(zip_directory_to_bytes(str(app), ""))
    for name, content in ((NVFLARE_SIG_FILE, "[]"), (NVFLARE_SUBMITTER_CRT_FILE, "no certificate")):
        submitted()
        (app / "config" / name).write_text(content)
        with pytest.raises(JobError, match="not signed as a whole"):
            read_signatures(zip_directory_to_bytes(str(app), ""))


def test_an_app_that_nobody_has_signed_has_no_signatures(app):
    assert read_signatures(zip_directory_to_bytes(str(app), "")) == Signed()


def test_a_submission_is_taken_once_under_whatever_id(submitted, tmp_path):
    first, again = read_signatures(submitted()), read_signatures(submitted())
    SignedJobs(tmp_path).deploy(IDS[0], first)
    for job_id in IDS[:2]:
        with pytest.raises(JobError, match="taken here.*submit the job again"):
            SignedJobs(tmp_path).deploy(job_id, first)
    SignedJobs(tmp_path).deploy(IDS[1], again)
    with pytest.raises(JobError, match=f"taken here as job {IDS[1]}"):
        SignedJobs(tmp_path).deploy(IDS[2], again)


def test_one_signature_of_an_earlier_submission_is_enough(submitted, tmp_path):
    """Else a server could put parts of several submissions together."""
    first, other = read_signatures(submitted()), read_signatures(submitted())
    SignedJobs(tmp_path).deploy(IDS[0], first)
    mixed = frozenset([*sorted(other.signatures)[1:], sorted(first.signatures)[0]])
    with pytest.raises(JobError, match=f"as job {IDS[0]}"):
        SignedJobs(tmp_path).deploy(IDS[1], Signed(first.signers, mixed))


def test_a_job_is_started_once_and_only_where_it_was_deployed(submitted, tmp_path):
    with pytest.raises(JobError, match="was not deployed here"):
        SignedJobs(tmp_path).start(IDS[0])
    SignedJobs(tmp_path).deploy(IDS[0], read_signatures(submitted()))
    SignedJobs(tmp_path).start(IDS[0])
    with pytest.raises(JobError, match="was started here before"):
        SignedJobs(tmp_path).start(IDS[0])


def test_jobs_of_before_the_record_are_entered(submitted, app, tmp_path):
    signed = read_signatures(submitted())
    kit = tmp_path / "kit"
    (kit / IDS[0]).mkdir(parents=True)
    app.rename(kit / IDS[0] / "app_hospital_a")
    for job_id in IDS[:2]:
        with pytest.raises(JobError, match="taken here"):
            SignedJobs(kit).deploy(job_id, signed)
    with pytest.raises(JobError, match="started here before"):
        SignedJobs(kit).start(IDS[0])


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"job": 7}', "\x00"])
def test_a_damaged_record_lets_no_job_in(damage, submitted, tmp_path):
    SignedJobs(tmp_path).deploy(IDS[0], signed := read_signatures(submitted()))
    with (tmp_path / RECORD).open("a") as stream:
        stream.write(damage)
    for act in (lambda: SignedJobs(tmp_path).deploy(IDS[1], signed), lambda: SignedJobs(tmp_path).start(IDS[0])):
        with pytest.raises(StateError, match="is damaged"):
            act()


def test_a_record_that_cannot_be_written_lets_no_job_in(tmp_path):
    with pytest.raises(StateError, match="cannot write"):
        SignedJobs(tmp_path / "no" / "kit").deploy(IDS[0], Signed())


def test_of_two_at_the_same_time_one_is_taken(submitted, tmp_path):
    signed, taken = read_signatures(submitted()), []

    def deploy(job_id: str) -> None:
        try:
            SignedJobs(tmp_path).deploy(job_id, signed)
            taken.append(job_id)
        except JobError:
            pass

    threads = [threading.Thread(target=deploy, args=(job_id,)) for job_id in IDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1 and len((tmp_path / RECORD).read_text().splitlines()) == 1

"""The dry run foretells exactly what a run then sends, and opens no image."""

from functools import partial

import pytest
import yaml

from fedmed.errors import JobError
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.methods.find_method import find
from fedmed.privacy.disclosure_preview import disclosure_preview, forecast
from fedmed.privacy.limits import read_ledger
from fedmed.reports.ledger_page import ledger_sheet
from fedmed.reports.sheet import html
from fedmed.settings.site import load_file, load_site, parse_site

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}
SITES = ("ct_north", "ct_south")
PARTIAL = {"sharing": "block_6", "warm_start": {"rounds": 1, "sharing": "full"}, "release_from": "ct_north"}


@pytest.fixture
def blind(tmp_path):
    """Return a function: settings of a site whose data folder is empty, so that any look at an image would fail."""
    (tmp_path / "empty").mkdir()

    def blind(site="ct_north", privacy=None, **values):
        path = tmp_path / f"{site}.yaml"
        privacy = {"account": "account.json", **(privacy or {})}
        path.write_text(yaml.safe_dump({"data_root": "empty", "device": "cpu", "privacy": privacy, **values}))
        return load_file(path)

    return blind


def test_a_run_sends_what_was_foretold(tiny_job, tmp_path):
    job = tiny_job(sites=TWO, rounds=3, evaluate_first=True, **PARTIAL)
    sites = {s: parse_site(s, {"demo": "chest_ct_tiny", "device": "cpu"}, load_site(s).source) for s in TWO}
    foretold = {site: forecast(job, config) for site, config in sites.items()}
    run_job(job, tmp_path / "ws", sites)
    for site, made in foretold.items():
        sent = [row for row in read_ledger(tmp_path / "ws" / site) if row["answer"] in ("update", "release", "scores")]
        expected = [(s.task, s.tensors) for s in made.disclosures if not s.refused for _ in range(s.times)]
        if site == "ct_east":  # of the result it is not tested: nobody lends it a decoder
            expected.remove(("evaluate", {}))
        expected += [("release", {})] if site == "ct_north" else []  # asked for, and not allowed
        assert sorted(map(str, expected)) == sorted(str((line["task"], line["tensors"])) for line in sent)
        assert made.bytes == sum(line["bytes"] for line in sent if line["tensors"]) - overhead(sent)
        for line in sent:
            scalars = next(s.scalars for s in made.disclosures if s.task == line["task"])
            assert all(name in scalars or name.startswith("train_") for name in line.get("metrics", {}))
        page = html(ledger_sheet(read_ledger(tmp_path / "ws" / site)))
        assert "conv_final" not in page if site == "ct_east" else "up_layers" in page


def overhead(sent):
    """Bytes of an update's numbers, which the forecast leaves out."""
    from fedmed.privacy.payload import payload_bytes

    numbers = [{k: line[k] for k in ("n_steps", "n_samples", "metrics")} for line in sent if line["answer"] == "update"]
    return sum(map(payload_bytes, numbers))


def test_it_opens_no_image_and_knows_what_stays(tiny_job, blind):
    job = tiny_job(sites=TWO, rounds=4, **PARTIAL)
    made = forecast(job, blind("ct_east"))
    assert (made.role, made.updates, made.epsilon) == ("unsupervised", 3, None)
    assert [s.rounds for s in made.disclosures if s.task == "train"] == [(1, 3)]
    assert made.private and all(name.startswith(("conv_final", "up_")) for name in made.private)
    north = forecast(job, blind())
    assert [(s.task, s.rounds, s.times) for s in north.disclosures] == [
        ("train", (0, 0), 1),
        ("train", (1, 3), 3),
        ("validate", None, 1),
        ("release", None, 1),
        ("evaluate", None, 1),
    ]
    assert "'allow_release' is not true" in north.disclosures[3].refused
    assert forecast(job, blind(allow_release=True)).disclosures[3].refused == ""
    gain = tiny_job("gain", sites={**TWO, "ct_south": "supervised"}, rounds=4, **PARTIAL, gain=True)
    times = {site: [s.times for s in forecast(gain, blind(site)).disclosures if s.task == "evaluate"] for site in SITES}
    assert times == {"ct_north": [2, 1], "ct_south": [3, 1]}, "ct_south also tests the layers of ct_north"


@pytest.mark.parametrize(
    ("study", "allowed", "reported"),
    [
        ({"release_from": "ct_north"}, {}, "on to sites without any until these are scored"),
        ({"release_from": "ct_north", "gain": True}, {}, "and to labelled ones to compare with theirs, until"),
        ({"release_from": "all"}, {}, "the mean of all sites' to sites without any until these are scored"),
        ({"release_from": "all", "release_keep": True}, {}, "does not allow that ('allow_kept_release')"),
        ({"release_from": "all", "release_keep": True}, {"allow_kept_release": True}, "this site allows that."),
    ],
)
def test_it_says_what_becomes_of_released_layers(tiny_job, blind, study, allowed, reported):
    job = tiny_job(sites=TWO, rounds=4, **{**PARTIAL, **study})
    made = forecast(job, blind(allow_release=True, **allowed))
    assert (
        made.disclosures[3].task == "release"
        and reported in made.released
        and made.released[:20] in forecast_page(made)
    )
    assert forecast(job, blind()).released == ""


def test_limits_are_shown_and_what_they_hold_back(tiny_job, blind):
    job = tiny_job(sites=TWO, rounds=4, **PARTIAL)
    made = forecast(job, blind(privacy={"allowed_tensors": ["^convInit", "^down"], "max_bytes": 10**7}))
    assert "conv_final" in forecast_page(made) and made.updates == 3  # the warm start would share everything
    assert "privacy.allowed_tensors" in made.disclosures[0].refused and not made.disclosures[1].refused
    assert forecast(job, blind(privacy={"max_bytes": 1000})).updates == 0
    none = forecast(tiny_job("other", sites={**TWO, "ct_west": "evaluate"}), blind("ct_west"))
    assert none.bytes == 0 and "would send no update" in forecast_page(none)


def forecast_page(made):
    return html(disclosure_preview(made))


def test_the_account_is_foretold(tiny_job, blind):
    job = tiny_job(sites=TWO, rounds=4)
    noise = {"clip_norm": 1.0, "noise_multiplier": 8.0, "allowed_metrics": []}
    free = forecast(job, blind(privacy=noise))
    assert free.epsilon[0] == 0 and 2 < free.epsilon[1] < 3 and free.updates == free.training_rounds == 4
    strict = forecast(job, blind(privacy={**noise, "max_epsilon": 2.0}))
    assert strict.updates == 3 and strict.epsilon[1] < 2 < free.epsilon[1]
    exact = {**noise, "max_epsilon": strict.epsilon[1]}
    assert forecast(job, blind(privacy=exact)).updates == 3, "what is reached is allowed"
    assert [s.rounds for s in strict.disclosures if s.task == "train"] == [(0, 2)]
    assert "The account allows 3 of 4 updates: then max_epsilon 2 is reached." in forecast_page(strict)
    loud = forecast(job, blind(privacy={**noise, "noise_multiplier": 0.1}))
    assert "promises practically nothing" in forecast_page(loud)
    spent = forecast(job, blind(privacy={**noise, "max_epsilon": 0.5}))
    assert spent.updates == 0 and spent.epsilon == (0, 0)


def test_a_site_that_is_not_in_the_job_is_told_who_is(tiny_job, blind):
    with pytest.raises(JobError, match="no site 'ct_south'; it has ct_east, ct_north. Name yours with --site"):
        forecast(tiny_job(sites=TWO), blind("ct_south"))


def pretraining(method, rounds=2, **args):
    study = {"name": "j", "bundle": "cxr_classification", "overlays": ["demo"], "select": "last", "evaluate": False}
    study |= {"method": {"path": find(method), "args": args}, "sites": {"a": "unsupervised"}}
    return Job.of({**study, "rounds": rounds, "epochs": 1})


def settings(folder, **privacy):
    values = {"data_root": str(folder), "device": "cpu", **privacy}
    (folder / "a.yaml").write_text(yaml.safe_dump(values))
    return load_file(folder / "a.yaml")


def test_values_beside_the_model_are_foretold_and_said_to_be_outside_the_account(tmp_path):
    job = write_job(pretraining("fedmoco", rounds=4, exchange_from=2), tmp_path / "job")
    blind = partial(settings, tmp_path)
    made = forecast(job, blind())
    sent = [(one.task, one.rounds, one.times, one.extras) for one in made.disclosures]
    assert sent == [("metadata", (2, 3), 2, []), ("train", (0, 3), 4, [])]
    page = forecast_page(made)
    assert "asks for mu, n, rsa, sigma, which" in page and "does not list" in page
    allowed = {"allowed_extras": ["rsa", "mu", "sigma", "n"], "extras_noise": 0.25}
    noise = {"clip_norm": 1.0, "noise_multiplier": 8.0, "allowed_metrics": []}
    open_made = forecast(job, blind(privacy={**allowed, **noise}))
    assert [s.extras for s in open_made.disclosures] == [["mu", "sigma", "n"], ["rsa"]]
    page = forecast_page(open_made)
    assert "In 2 rounds mu, sigma, n are computed from all training images" in page and "does not list" not in page
    assert "Arrays get noise of standard deviation 0.25" in page
    assert "The account (ε, δ) does not cover mu, n, rsa, sigma" in page
    assert "from round 3 on" in page and "vary together" in page and "go on to the other sites" in page


def test_values_of_single_images_are_said_to_be_that(write_tiny_tools_job, blind, tmp_path):
    job = write_tiny_tools_job(tmp_path, algorithm={"name": "feddg", "args": {"bank_images": 2}})
    page = forecast_page(forecast(job, blind("lap_hei1", privacy={"allowed_extras": ["amplitude"]})))
    assert "amplitude of single training images is sent. It goes on to the other sites" in page


@pytest.mark.parametrize("allowed", [["rsa"], []])
def test_a_similarity_that_weighs_nobody_leaves_all_the_same_if_allowed(tmp_path, allowed):
    job = write_job(pretraining("fedavg_moco"), tmp_path / "j")
    made = forecast(job, settings(tmp_path, privacy={"allowed_extras": allowed}))
    assert [s.extras for s in made.disclosures] == [allowed] and made.wanted == []
    assert "does not list" not in forecast_page(made)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_fingerprint_is_foretold_as_a_value_that_a_site_lists(tiny_job, blind, allowed):
    job = tiny_job(sites=TWO, rounds=2, fingerprint=True)
    made = forecast(job, blind(privacy={"allowed_extras": ["fingerprint"] if allowed else []}))
    first = made.disclosures[0]
    assert (first.task, first.times, list(first.extras)) == ("fingerprint", 1, ["fingerprint"] * allowed)
    assert ("spacing" in first.scalars) == allowed and made.wanted == ["fingerprint"]
    page = html(disclosure_preview(made))
    assert "before 1" in page and "medians and percentiles over at most 50" in page
    assert ("The job asks for fingerprint, which" in page) != allowed
    assert ("rounded numbers of them are sent" in page) == allowed

"""Harm by one site that sends nonsense to a federation of five, with and without the server's robust rules.

Five real sites train a small network once; their updates are then sent to a server of each rule, one of them changed.
``python -m pytest tests/federation/test_poisoned_site.py -s`` prints the tables of docs/robust.md.
"""

import functools
import itertools
import json
from dataclasses import replace

import pytest
import torch

from fedmed.aggregation.acceptance import update_norm
from fedmed.errors import JobError, RoundFailed
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.messages.task import Task
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.site import load_site
from fedmed_demo import demo_site
from tests.commands import fedmed
from tests.federation.run_folder import model_of, rounds_of

# Two hospitals of each scanner with patients of their own, and one without labels.
HOMES = {"a": ("ct_north", 0), "b": ("ct_south", 0), "c": ("ct_north", 1), "d": ("ct_south", 1), "u": ("ct_east", 0)}
ROLES = {site: "unsupervised" if site == "u" else "supervised" for site in HOMES}
BAD = "b"
SMALL = {"batch_size": 1, "patch_size": [16, 16, 8], "window_size": [24, 24, 8], "pixdim": [16.0, 16.0, 40.0]}
OVERRIDES = {role: {**SMALL, "confidence": 0.5} for role in ("supervised", "unsupervised", "evaluate")}
STEPS = 8
MEDIAN = {"args": {"rule": "median"}}
RULES = {
    "mean": {},
    "mean, clipped": {"clip_norm": None},  # the largest honest norm
    "trimmed_mean": {"rule": {"args": {"rule": "trimmed_mean"}}},
    "median": {"rule": MEDIAN},
}
ATTACKS = {
    "none": lambda difference: difference,
    "100 times": lambda difference: 100 * difference,
    "sign flipped": lambda difference: -difference,
    "-100 times": lambda difference: -100 * difference,
    "noise of 100 times its norm": lambda difference: noise(difference) * (100 * difference.norm()),
}


def noise(like):
    random = torch.randn(like.shape, generator=torch.Generator().manual_seed(like.numel()))
    return random / random.norm().clamp_min(1e-12)


def poisoned(updates, attack, site=BAD):
    """The updates with those of one site changed; no argument is modified."""
    change = ATTACKS[attack]
    tensors = {name: change(t) if t.is_floating_point() else t for name, t in updates[site].tensors.items()}
    return {**updates, site: replace(updates[site], tensors=tensors)}


STUDY = {
    "name": "five",
    "bundle": "covid_ct_segmentation",
    "overlays": ["demo"],
    "method": {"path": "fedmed.systems.covid_fssl.method.Consistency"},
    "sites": ROLES,
    "overrides": OVERRIDES,
}


def spec(rounds=1, steps=STEPS, **options):
    return Job.of({**STUDY, "rounds": rounds, "steps": steps, **options})


@pytest.fixture(scope="module")
def sites(tiny_site_configs, fedmed_home):
    """Settings of the five."""
    result = {}
    for site, (home, seed) in HOMES.items():
        root = demo_site("chest_ct_tiny", home, fedmed_home, seed)
        result[site] = replace(load_site(home), site=site, data_root=root, datalist=root / "datalist.json")
    return result


@pytest.fixture(scope="module")
def overlays(request, two_levels):
    """Those of the five's study: with a smaller network where no tables of docs/robust.md are printed."""
    return STUDY["overlays"] if request.config.getoption("capture") == "no" else two_levels


@pytest.fixture(scope="module")
def round_(sites, overlays, tmp_path_factory):
    """(starting tensors, site -> its honest update) of one round."""
    folder = tmp_path_factory.mktemp("five")
    job = read_job(write_job(spec(overlays=overlays), folder / "job"))
    initial = ModelStore(job, folder).initial
    task = Task("train", 0, 1, initial, steps=STEPS)
    return initial, {site: Client(job, sites[site], folder / site).train(task) for site in sites}


@pytest.fixture(scope="module")
def attacked(round_, aggregate):
    """Return a function: (rule, attack) -> how far the model moved; each is computed once."""
    return functools.cache(lambda rule, attack: aggregate(rule, poisoned(round_[1], attack)))


@pytest.fixture(scope="module")
def aggregate(round_, overlays, tmp_path_factory):
    """Return a function: (rule, updates) -> how far the model moved, by a server that reads the job's own files."""
    initial, honest = round_
    folder, jobs, runs = tmp_path_factory.mktemp("rules"), {}, itertools.count()
    for rule, options in RULES.items():
        options = options | ({"clip_norm": bound(honest)} if "clip_norm" in options else {})
        jobs[rule] = read_job(write_job(spec(**options, overlays=overlays), folder / rule))
    store = ModelStore(jobs["mean"], folder / "models")

    def aggregate(rule, updates):
        job = jobs[rule]
        server = Server(job, store, folder / f"run{next(runs)}")
        server.train_tasks(0)
        for update in updates.values():
            server.accept(update)
        server.finish_round()
        return {name: server.tensors[name] - initial[name] for name in initial}

    return aggregate


def bound(honest):
    """A clip norm that no honest site reaches."""
    return max(update_norm(update.tensors) for update in honest.values())


def mean_of(updates):
    return {name: sum(u.tensors[name] for u in updates) / len(updates) for name in updates[0].tensors}


def distance(left, right):
    return update_norm({name: left[name] - right[name] for name in left})


def dot(left, right):
    return sum(float((left[name].double() * right[name].double()).sum()) for name in left)


def test_one_poisoned_site_leads_the_mean_astray_and_not_the_robust_rules(round_, attacked):
    _, updates = round_
    honest = mean_of([update for site, update in updates.items() if site != BAD])
    length, shift, far = update_norm(honest), {}, {}
    for rule in RULES:
        undisturbed = attacked(rule, "none")
        for attack in ATTACKS:
            moved = attacked(rule, attack)
            shift[attack, rule] = distance(moved, undisturbed) / length
            far[attack, rule] = distance(moved, honest) / length
    print(f"\n\n| Site '{BAD}' sends | " + " | ".join(RULES) + " |\n|---|" + "---:|" * len(RULES))
    for attack in ATTACKS:
        cells = (f"{shift[attack, rule]:.2f} ({far[attack, rule]:.2f})" for rule in RULES)
        print(f"| {attack} | {' | '.join(cells)} |")
    for attack in ("100 times", "-100 times", "noise of 100 times its norm"):
        assert shift[attack, "mean"] > 20 and far[attack, "mean"] > 20  # twenty honest rounds away
        assert shift[attack, "mean, clipped"] <= 2 * bound(updates) / len(ROLES) / length + 1e-6  # both ends clipped
        for rule in set(RULES) - {"mean"}:
            assert shift[attack, rule] < 2.5 and far[attack, rule] < 1.5
    # No rule sees one flipped sign among sites that differ as much as these: it costs what it costs the mean.
    assert shift["sign flipped", "mean, clipped"] == pytest.approx(shift["sign flipped", "mean"], rel=1e-3)
    assert all(shift["sign flipped", rule] < 2.5 for rule in RULES)


@pytest.mark.parametrize("rule", ["trimmed_mean", "median"])
@pytest.mark.parametrize("attack", ["100 times", "-100 times", "noise of 100 times its norm"])
def test_no_coordinate_leaves_the_range_of_the_honest_sites(round_, attacked, rule, attack):
    _, updates = round_
    for name, value in attacked(rule, attack).items():
        if value.is_floating_point():
            honest = torch.stack([update.tensors[name] for site, update in updates.items() if site != BAD])
            slack = 1e-5  # the model is float32
            assert (value >= honest.amin(0) - slack).all() and (value <= honest.amax(0) + slack).all(), name


def test_what_one_site_alone_has_learnt_is_lost_where_the_others_agree(round_, aggregate, request):
    """The labelled sites are drawn towards their mean step by step; what is left of the unlabelled site's update?

    Its effect is that of sending its update rather than zeros, along its update; under the mean of five it is 0.2.
    The whole table is computed where it is printed.
    """
    _, updates = round_
    printed = request.config.getoption("capture") == "no"
    shares, rules = ((1.0, 0.5, 0.2, 0.1, 0.0), RULES) if printed else ((1.0, 0.0), ("mean", "trimmed_mean", "median"))
    local, labelled = updates["u"].tensors, [site for site in ROLES if site != "u"]
    common, effect = mean_of([updates[site] for site in labelled]), {}
    print("\n\n| Cosine of two labelled sites | " + " | ".join(rules) + " |\n|---:|" + "---:|" * len(rules))
    for apart in shares:
        drawn = dict(updates)
        for site in labelled:
            tensors = {name: common[name] + apart * (t - common[name]) for name, t in updates[site].tensors.items()}
            drawn[site] = replace(updates[site], tensors=tensors)
        silent = {**drawn, "u": replace(updates["u"], tensors={name: torch.zeros_like(t) for name, t in local.items()})}
        for rule in rules:
            with_it, without = aggregate(rule, drawn), aggregate(rule, silent)
            change = {name: with_it[name] - without[name] for name in local}
            effect[apart, rule] = dot(change, local) / dot(local, local)
        a, b = (drawn[site].tensors for site in labelled[:2])
        cosine = dot(a, b) / (update_norm(a) * update_norm(b))
        print(f"| {cosine:.2f} | " + " | ".join(f"{effect[apart, rule]:.2f}" for rule in rules) + " |")
        assert effect[apart, "mean"] == pytest.approx(0.2, abs=1e-3)
    for rule in ("trimmed_mean", "median"):
        assert effect[1.0, rule] > 0.1 and abs(effect[0.0, rule]) < 1e-3


def test_a_whole_run_with_a_poisoned_site(sites, two_levels, tmp_path, monkeypatch, unscored):
    """Through the job's files: the record names who was clipped, and only the plain mean runs away."""
    train, lengths = Client.train, {}

    def train_or_poison(self, task):
        update = train(self, task)
        return poisoned({BAD: update}, "100 times")[BAD] if self.site.site == BAD else update

    monkeypatch.setattr(Client, "train", train_or_poison)
    for rule, options in {"mean": {}, "median, clipped": {"rule": MEDIAN, "clip_norm": 4.0}}.items():
        job = write_job(spec(rounds=2, steps=1, overlays=two_levels, **options), tmp_path / rule / "job")
        server = run_job(job, tmp_path / rule / "ws", sites)
        last = model_of(tmp_path / rule / "ws")
        lengths[rule] = distance(last, server.store.initial)
        rounds = rounds_of(tmp_path / rule / "ws")
        assert len(rounds) == 2 and all(round["aggregated"] for round in rounds)
        if not options:
            assert all("clipped" not in round and "norms" not in round for round in rounds)
            continue
        assert all(BAD in round["clipped"] and set(round["norms"]) == set(ROLES) for round in rounds)
        assert all(round["norms"][BAD] * round["clipped"][BAD] == pytest.approx(4.0) for round in rounds)
        assert all(set(round["coefficients"].values()) == {0.2} for round in rounds)
    assert lengths["mean"] > 10 * lengths["median, clipped"] and lengths["median, clipped"] < 2 * 4.0


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ({"a": "supervised", "b": "supervised", "u": "unsupervised"}, r"round 0: tensor '.*' is sent by 2 sites;"),
        ({"a": "supervised", "u": "unsupervised"}, r"round 0: tensor '.*' is sent by 1 site;"),
    ],
)
def test_a_federation_too_small_for_its_rule_is_refused_before_it_starts(
    tiny_job, change_study, tmp_path, sites, message
):
    folder = tiny_job(sites=sites, warm_start={"rounds": 1}, rounds=2)
    job = read_job(change_study(folder, rule=MEDIAN))
    with pytest.raises(JobError, match=message):
        Server(job, ModelStore(job, tmp_path), tmp_path)


def test_a_round_with_too_few_answers_for_its_rule_fails_and_names_the_tensor(round_, overlays, tmp_path):
    initial, updates = round_
    job = read_job(write_job(spec(min_clients=1, rule=MEDIAN, overlays=overlays), tmp_path / "job"))
    store = ModelStore(job, tmp_path / "models")
    server = Server(job, store, tmp_path / "run")
    server.train_tasks(0)
    for site in ("a", "c"):
        server.accept(updates[site])
    with pytest.raises(RoundFailed, match=r"round 0: tensor '.*' is sent by 2 sites; a median needs 3.*unchanged"):
        server.finish_round()
    assert all(torch.equal(server.tensors[name], initial[name]) for name in initial)


def test_a_clip_norm_that_never_acts_is_refused():
    with pytest.raises(JobError, match="'clip_norm' 5 never acts: 'max_norm' refuses from 5 on"):
        spec(clip_norm=5.0, max_norm=5.0)


@pytest.mark.parametrize("bound", ["30", True, 0, -1.0, float("nan"), float("inf"), [1]])
def test_a_bound_that_is_no_number_is_refused_by_name(bound):
    for name in ("max_norm", "clip_norm"):
        with pytest.raises(JobError, match=f"'{name}' is .*"):
            spec(**{name: bound})


def test_the_command_writes_the_rule_and_only_what_is_used(tmp_path, capsys):
    script = fedmed("study", "package")
    study = tmp_path / "study.yaml"
    study.write_text(json.dumps({**STUDY, "rounds": 1, "steps": 1}))  # JSON is YAML, and knows no aliases
    assert script([str(study), str(tmp_path / "plain")]) == 0
    plain = read_job(tmp_path / "plain")
    assert set(plain.rule["args"]) == {"weighting", "buffers"} and plain.study.clip_norm is None
    options = ["--set", "rule.args.rule=trimmed_mean", "--set", "rule.args.trim=0.3", "--set", "clip_norm=5"]
    assert script([str(study), str(tmp_path / "robust"), *options]) == 0
    args = read_job(tmp_path / "robust").rule["args"]
    assert (args["middle"]["args"], args["clip_norm"]) == ({"rule": "trimmed_mean", "trim": 0.3}, 5.0)
    capsys.readouterr()
    median, few = "rule.args.rule=median", "sites={a: supervised, b: supervised}"
    for wrong, message in (
        (["rule.args.trim=0.3"], "'trim' is for rule 'trimmed_mean'"),
        ([median, "normalise=false"], "'normalise: false'"),
        ([median, few], "'rule': in round 1 every tensor is sent by 2 sites; a median needs 3"),
    ):
        settings = [part for one in wrong for part in ("--set", one)]
        assert script([str(study), str(tmp_path / "wrong"), *settings]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "wrong").exists()

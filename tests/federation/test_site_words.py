"""A site's own words and its place: facts of its configuration; the words stay there."""

import pickle

import pytest
from nvflare.app_common.decomposers import common_decomposers
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.fuel.utils import fobs

from fedmed.bundles.bundle_parser import parsed
from fedmed.errors import RoundFailed
from fedmed.federation.client import Client
from fedmed.flare.convert import answer_to_model, model_to_task, task_to_model
from fedmed.messages.task import Task

OPERATIONS = {"a": "nephrectomy", "b": "prostatectomy", "c": "hysterectomy"}
LOCAL = {site: {"words": {"procedure": text}} for site, text in OPERATIONS.items()}
WORDED = {"overlays": ["worded"], "sharing": "gate", "overrides": {"supervised": {"batch_size": 2}}}


@pytest.fixture
def parsers(monkeypatch):
    """Every configuration that a task was done with: (site, parser)."""
    result, original = [], Client._open

    def opened(self, task, **facts):
        model = original(self, task, **facts)
        result.append((self.site.site, model))
        return model

    monkeypatch.setattr(Client, "_open", opened)
    return result


def test_facts_arrive_and_no_word_leaves_the_site(small, seen, parsers, tmp_path):
    small("cab", local=LOCAL, **WORDED)
    assert len(parsers) == 6
    for site, model in parsers:
        assert parsed(model.parser, "site_words") == {"procedure": OPERATIONS[site]}
        assert model.network.place == (site, "abc".index(site), 3)
        assert "constant" not in model.network.state_dict()
    common_decomposers.register()
    answers = [answer for _, _, answer in seen]
    wire = b"".join(fobs.dumps(FLModelUtils.to_shareable(answer_to_model(answer))) for answer in answers)
    files = [path.read_bytes() for path in (tmp_path / "ws/server").rglob("*") if path.is_file()]
    captured = pickle.dumps(answers) + wire + b"".join(files)
    assert answers[0].tensors["body.weight"].numpy().tobytes() in wire
    for site, model in parsers:
        secret = [OPERATIONS[site].encode(), OPERATIONS[site].encode("utf-16-le")]
        assert not any(word in captured for word in [*secret, model.network.constant.numpy().tobytes()])
    (tmp_path / "sites/a/a.yaml").read_bytes().index(b"nephrectomy")  # it was there to be found


def test_the_place_is_that_among_the_sites_that_train_and_goes_over_the_wire(small, seen):
    small("dcab", local=LOCAL | {"d": LOCAL["a"]}, roles={"b": "evaluate"}, **WORDED)
    places = {site: (task.site_index, task.site_count) for site, task, _ in seen}
    assert places == {"a": (0, 3), "c": (1, 3), "d": (2, 3)}
    task = seen[0][1]
    assert model_to_task(task_to_model(task)).config() == task.config()


def test_a_site_that_does_not_train_has_no_place(small):
    place = small("ab", local=LOCAL, roles={"b": "evaluate"}, **WORDED).tasks.place("b")
    assert place == {"site_index": None, "site_count": 1}
    assert Task.from_config(Task("evaluate", 0, 1, {}, **place).config(), {}).site_index is None


def test_a_missing_word_stops_the_site_with_one_message(small, caplog):
    with pytest.raises(RoundFailed, match="'b': 'SiteConfigError'"):
        small("ab", local={"a": LOCAL["a"], "b": {"words": {"procedur": "x"}}}, max_failed_rounds=1, **WORDED)
    message = "b.yaml: bundle 'small_bundle' needs a word of this site: 'words' has no 'procedure' (operation of"
    assert message in caplog.text

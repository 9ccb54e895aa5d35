from pathlib import Path

import pytest

from fedmed.errors import FedMedError
from fedmed.labelling.ranking import STORED, RequestLimits, Scorer, choose

EVERYTHING = RequestLimits(max_samples=99)


class Store:
    """MONAI Label's datastore as far as a strategy uses it."""

    def __init__(self, folder, names):
        self.folder, self.infos = folder, {name: {} for name in names}
        for name in names:
            (folder / name).write_text(name)

    def get_image_uri(self, image):
        return str(self.folder / image)

    def get_image_info(self, image):
        return self.infos[image]

    def update_image_info(self, image, info):
        self.infos[image].update(info)

    def serve(self, image, ts, strategy="uncertainty"):
        self.infos[image].setdefault("strategy", {})[strategy] = {"ts": ts}


def pick(scorer, store, limits=EVERYTHING, ids=None, **more):
    return choose(scorer, store, list(store.infos) if ids is None else ids, limits, **more)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "scans").mkdir()
    return Store(tmp_path / "scans", "abcde")


@pytest.fixture
def make(tmp_path):
    """Scorers whose score is the position of the image's letter, with the images that they looked at."""
    weights = tmp_path / "model.pt"
    weights.write_text("first")

    def build(settings="", name="uncertainty"):
        seen = []

        def score(path: Path) -> float:
            seen.append(path.name)
            if path.read_text() == "damaged":
                raise RuntimeError("not a gzip file\nlong trace")
            return float(ord(path.name))

        return Scorer(name, "m 1.0", weights, settings, score), seen

    return build


def test_the_highest_score_comes_first_and_each_image_is_scored_once(store, make):
    scorer, seen = make()
    choice = pick(scorer, store)
    assert (choice.image, choice.score, choice.rank, choice.scored, choice.waiting) == ("e", ord("e"), 1, 5, 0)
    pick(scorer, store)
    again, nothing = make()
    pick(again, store)  # after a restart
    assert sorted(seen) == list("abcde") and nothing == []
    assert store.infos["a"][STORED]["uncertainty"]["model"] == "m 1.0"


def test_changed_weights_settings_or_images_are_scored_again(store, make, tmp_path):
    pick(make()[0], store)
    (store.folder / "b").write_text("another scan")
    scorer, seen = make()
    pick(scorer, store)
    assert seen == ["b"]
    scorer, seen = make(settings="other views")
    pick(scorer, store)
    assert len(seen) == 5
    (tmp_path / "model.pt").write_text("next round")
    scorer, seen = make(settings="other views")
    pick(scorer, store)
    assert len(seen) == 5


def test_two_strategies_keep_their_scores_apart(store, make):
    pick(make()[0], store)
    other, seen = make(name="disagreement")
    pick(other, store)
    assert len(seen) == 5 and set(store.infos["a"][STORED]) == {"uncertainty", "disagreement"}


def test_a_request_scores_a_few_and_the_next_one_goes_on(store, make, caplog):
    caplog.set_level("INFO")
    scorer, seen = make()
    first = pick(scorer, store, RequestLimits(max_samples=2))
    assert (first.scored, first.waiting, len(seen)) == (2, 3, 2) and first.image == max(seen)
    assert "3 images have no score yet" in caplog.text
    assert pick(scorer, store, RequestLimits(max_samples=2)).waiting == 1
    assert pick(scorer, store, RequestLimits(max_samples=2)).image == "e" and sorted(seen) == list("abcde")


def test_the_first_ones_scored_are_not_the_first_by_name(tmp_path, make):
    names = [f"{number:03d}" for number in range(100)]
    store = Store(tmp_path, names)
    seen = []
    scorer = Scorer("s", "m", tmp_path / "model.pt", "", lambda path: float(seen.append(path.name) is None))
    pick(scorer, store, RequestLimits(max_samples=10))
    assert max(seen) > "050" and min(seen) < "050"


def test_no_image_is_begun_after_the_time_is_over(store, make):
    times = iter(range(0, 10_000, 40))
    choice = pick(make()[0], store, RequestLimits(max_samples=5, max_seconds=60), now=lambda: next(times))
    assert (choice.scored, choice.waiting) == (2, 3)
    scorer, seen = make()
    store.infos = {name: {} for name in "abcde"}
    pick(scorer, store, RequestLimits(max_samples=5, max_seconds=0), now=lambda: next(times))
    assert len(seen) == 1  # one is always begun, or nothing would ever be scored


def test_an_image_is_not_handed_to_two_readers(store, make):
    scorer, _ = make()
    handed = []
    for _ in "abcde":
        handed.append(pick(scorer, store, now=lambda: 10_000.0).image)
        store.serve(handed[-1], 10_000 + len(handed) - 5, strategy="random")
    assert handed == list("edcba")
    assert pick(scorer, store, now=lambda: 10_100.0).image == "e"  # the longest ago
    assert pick(scorer, store, now=lambda: 10_596.5).image == "e"  # free again
    store.serve("e", 10_596)
    assert pick(scorer, store, now=lambda: 10_598.0).image == "d"


def test_an_unreadable_image_is_passed_over_until_it_is_repaired(store, make, caplog):
    (store.folder / "e").write_text("damaged")
    scorer, seen = make()
    assert pick(scorer, store).image == "d"
    assert "'e' cannot be scored and is passed over (not a gzip file)" in caplog.text and "trace" not in caplog.text
    pick(scorer, store)
    assert seen.count("e") == 1
    (store.folder / "e").write_text("repaired")
    assert pick(scorer, store).image == "e"


def test_nothing_to_hand_out(store, make, caplog):
    for name in "abcde":
        (store.folder / name).write_text("damaged")
    assert pick(make()[0], store) is None
    assert "none of 5 images without a label has a score" in caplog.text
    assert pick(make()[0], store, ids=[]) is None


def test_limits_of_a_request():
    assert RequestLimits.of({"max_samples": "3", "client_id": "x"}) == RequestLimits(max_samples=3)
    assert RequestLimits.of({"max_samples": None, "reserved": 0.5}) == RequestLimits(reserved=0.5)
    for bad in ({"max_samples": 0}, {"max_seconds": -1}, {"reserved": float("nan")}, {"max_samples": "many"}):
        with pytest.raises(FedMedError, match=next(iter(bad))):
            RequestLimits.of(bad)

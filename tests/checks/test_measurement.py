"""The measurement of a site's work: what becomes of a batch that does not fit, and of a process that dies."""

import os
import subprocess
import sys

import pytest

from fedmed.checks import measurement
from fedmed.checks.ct_inspection import CTInspection
from fedmed.checks.entries import read_entries
from fedmed.checks.facts import round_seconds
from fedmed.checks.measurement import Attempt, Measured, choose_sample, measure
from fedmed.checks.measuring_process import lack_of_memory
from fedmed.data.datalist import MaskEntry
from fedmed.errors import BundleError
from tests.checks.parts import part_in_job

WORK = part_in_job("covid_ct_segmentation", "supervised", steps=30, rounds=2)
DONE = {"step_seconds": 0.5, "prepare_seconds": 2.0, "cache_bytes": 10.0}


@pytest.fixture
def attempts(monkeypatch):
    """Return a function that sets what the measuring process does, by the batch that it may have."""

    def give(answer):
        batches = []

        def attempt(*args):
            batches.append(args[-1])
            return answer(args[-1])

        monkeypatch.setattr(measurement, "_attempt", attempt)
        return batches

    return give


def test_smaller_batches_are_tried_until_one_fits(small_site, attempts):
    def answer(batch):
        return Attempt(DONE if batch == 1 else {"out_of_memory": "CUDA out of memory"})

    batches = attempts(answer)
    measured, (finding,) = measure(small_site.config(), WORK, [], 4)
    assert batches == [4, 2, 1] and measured.batch == 1 and measured.prepare_seconds == 2.0
    assert finding.kind == "out_of_memory" and "a batch of 4 does not fit" in finding.text
    assert "max_batch_size: 1" in finding.text


def test_a_process_killed_by_the_system_lacked_memory(small_site, attempts):
    attempts(lambda batch: Attempt({}, -9))
    measured, (finding,) = measure(small_site.config(), WORK, [], 4)
    assert finding.kind == "out_of_memory" and "nor does a batch of 1" in finding.text
    assert measured.step_seconds is None


@pytest.mark.parametrize(
    ("attempt", "kind", "words"),
    [
        (Attempt({"error": "bundle differs"}), "cannot_train", "bundle differs"),
        (Attempt({}, None), "too_long", "--timeout"),
        (Attempt({}, 1, "KeyError: 'x'"), "cannot_train", "KeyError: 'x'"),
        (Attempt({}, 0), "cannot_train", "it wrote nothing"),
    ],
)
def test_every_end_is_one_clear_line(small_site, attempts, attempt, kind, words):
    attempts(lambda batch: attempt)
    _, (finding,) = measure(small_site.config(), WORK, [], 4)
    assert finding.kind == kind and words in finding.text


def test_a_batch_cut_by_the_site_is_noted(small_site, attempts):
    attempts(lambda batch: Attempt(DONE))
    _, (finding,) = measure(small_site.config(max_batch_size=2), WORK, [], 4)
    assert (finding.kind, finding.level) == ("batch", "note")


def test_the_sample_is_of_the_roles_own_lists_and_sound(small_site):
    small_site.mask("MUELLER_19540312", value=2)
    entries, _ = read_entries(small_site.config(), MaskEntry())
    cases = CTInspection().open(entries)
    sample = choose_sample(entries, cases, "supervised")
    assert [(entry.list, entry.number) for entry in sample] == [("training", 1), ("validation", 0)]
    assert {entry.list for entry in choose_sample(entries, cases, "unsupervised")} == {"unlabeled", "training"}
    assert [entry.list for entry in choose_sample(entries, {}, "evaluate")] == ["testing"]
    small_site.mask("SCHMIDT_19610101", value=2)
    assert choose_sample(entries, CTInspection().open(entries), "supervised") == []


def test_a_lack_of_memory_is_seen_through_its_wrappings():
    inner = RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes")
    outer = BundleError("item cannot be built")
    outer.__cause__ = inner
    assert "not enough memory" in lack_of_memory(outer) and not lack_of_memory(BundleError("x"))


def test_errors_that_are_one_anothers_context_end_the_search():
    first, second = BundleError("a"), BundleError("b")
    first.__context__, second.__context__ = second, first
    assert lack_of_memory(first) == ""


def test_a_round_is_its_steps_and_its_scoring(small_site):
    from fedmed.checks.site_check import CheckedSite

    measured = Measured(step_seconds=0.5, score_seconds=2.0)
    checked = CheckedSite(small_site.config(), {"validation": 3}, work=WORK, measured=measured)
    assert round_seconds(checked) == 30 * 0.5 + 3 * 2.0


def test_what_a_killed_check_left_is_removed_by_the_next(tmp_path):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    left, used = (tmp_path / f".fedmed-check-{pid}-x" for pid in (ended.stdout.strip(), os.getpid()))
    for folder in (left / "cache", used, tmp_path / ".fedmed-check-notes"):
        folder.mkdir(parents=True)
    measurement.remove_left_over(tmp_path)
    assert not left.exists() and len(list(tmp_path.iterdir())) == 2

"""Report of the sites' own protection and of nothing that a site kept to itself, and the page of what it has sent."""

from types import SimpleNamespace

from fedmed.reports.ledger_page import ledger_sheet
from fedmed.reports.notes import privacy_notes
from fedmed.reports.words import plain_delta, plain_number

LINE = {"time": "2026-11-21T09:05:00+00:00", "site": "cxr_metro", "round": 2, "sha256": "0" * 64}
UPDATE = {**LINE, "answer": "update", "task": "train", "tensors": {"w": "float32 (2,)"}, "bytes": 8, "extras": ["rsa"]}
SUMMARY = {**LINE, "answer": "extras", "task": "metadata", "tensors": {}, "bytes": 2300, "extras": ["mu", "n", "sigma"]}
SCORES = {
    **LINE,
    "answer": "scores",
    "task": "evaluate",
    "tensors": {},
    "bytes": 9,
    "extras": [],
    "metrics": {"x": 1.0},
}


def run(**sites):
    rounds = [SimpleNamespace(sites={}), SimpleNamespace(sites=sites), SimpleNamespace(sites={"other": {}})]
    return SimpleNamespace(sites=[SimpleNamespace(name=name) for name in ("a", "b", "c", "d")], rounds=rounds)


def test_what_the_sites_told_is_said():
    noise = {"clip_norm": 2.0, "noise_multiplier": 0.5}
    notes = privacy_notes(
        run(a={"train_loss": 0.1}, b={"clip_norm": 2.0}, c=noise, d={**noise, "epsilon": 12345.6, "delta": 1e-5})
    )
    assert notes == [
        "b clipped its updates to a norm of 2.",
        "c clipped its updates to a norm of 2 and added Gaussian noise of 1 to every value.",
        "d clipped its updates to a norm of 2 and added Gaussian noise of 1 to every value: ε = 12,300 at δ = 0.00001 "
        "over all its jobs, for its data as a whole, not for single patients.",
    ]
    assert privacy_notes(run()) == []


def test_numbers_have_no_exponents():
    texts = {0.12345: "0.123", 2.0: "2", 99.96: "100", 999.6: "1,000", 1234567.0: "1,230,000"}
    assert {x: plain_number(x) for x in texts} == texts
    assert [plain_delta(x) for x in (1e-5, 0.00025, 1e-20)] == ["0.00001", "0.00025", "1e-20"]


def test_summaries_are_counted_and_named_with_their_bytes():
    sheet = ledger_sheet([UPDATE, SUMMARY, SCORES])
    assert ("summaries", "1") in sheet.facts and ("updates", "1") in sheet.facts
    update, summary, scores = (row[3] for row in sheet.tables[0].rows)
    assert update == "1 tensor, 8 B; extras: rsa"
    assert summary == "extras: mu, n, sigma, 2.3 kB"
    assert scores == "nothing but numbers"
    assert "summaries" not in dict(ledger_sheet([UPDATE]).facts)

"""The page of what a site has sent, where a method sends more than a model."""

from fedmed.reports.ledger_page import ledger_sheet

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


def test_summaries_are_counted_and_named_with_their_bytes():
    sheet = ledger_sheet([UPDATE, SUMMARY, SCORES])
    assert ("summaries", "1") in sheet.facts and ("updates", "1") in sheet.facts
    update, summary, scores = (row[3] for row in sheet.tables[0].rows)
    assert update == "1 tensor, 8 B; extras: rsa"
    assert summary == "extras: mu, n, sigma, 2.3 kB"
    assert scores == "nothing but numbers"
    assert "summaries" not in dict(ledger_sheet([UPDATE]).facts)

"""The ledger's lines."""

import pytest

from fedmed.errors import FedMedError, JobError
from fedmed.privacy.limits import Ledger, read_ledger


def test_lines_are_found_from_every_folder_that_a_person_may_name(tmp_path):
    folder = tmp_path / "ct_north/simulate_job/fedmed"
    ledger = Ledger(folder, "ct_north")
    ledger.write("scores", "validate", 2, metrics={"val_dice": 0.5})
    ledger.write("refused", "train", None, reason="…")
    for place in (ledger.path, folder, folder.parent, folder.parent.parent):
        lines = read_ledger(place)
        assert [(line["answer"], line["task"], line["round"]) for line in lines] == [
            ("scores", "validate", 2),
            ("refused", "train", None),
        ]
    with pytest.raises(JobError, match=r"no ledger.*ledger\.jsonl.*site's own folder"):
        read_ledger(tmp_path)
    ledger.path.write_text('{"site": "ct_north"}\n{"half')  # killed while writing
    assert read_ledger(folder) == [{"site": "ct_north"}]
    ledger.path.write_text('{"half\n{"site": "ct_north"}\n')
    with pytest.raises(FedMedError, match="line 1 is damaged"):
        read_ledger(folder)

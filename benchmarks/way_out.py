#!/usr/bin/env python3
"""Cost of an update on its way out of a site: seconds, and copies of it in memory.

    python benchmarks/way_out.py [--millions 27] [--repeats 5]

Two ways, alternating in one run. "opened again": the executor converts the update for FLARE, the gate opens that and
converts it back, the tensors are hashed for their size and once more for the ledger, as FedMed did before. "once": the
gate gets the update as the client made it, takes the size from the shapes, hashes it for the ledger and converts it.
Both write the same line into the ledger and send the same bytes. Least time of all repeats, on one thread.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
import yaml
from nvflare.apis.shareable import Shareable
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmed.flare.convert import answer_to_model, model_to_answer
from fedmed.messages.answers import Update
from fedmed.privacy.limits import SiteLimits, read_ledger
from fedmed.privacy.payload import payload_digest
from fedmed.settings.site import load_file


def opened_again(update: Update, gate: SiteLimits) -> Shareable:
    reply = FLModelUtils.to_shareable(answer_to_model(update))  # the executor
    answer = model_to_answer("train", FLModelUtils.from_shareable(reply), update.site)  # the gate
    FLModelUtils.to_shareable(answer_to_model(answer))  # to find what is no part of an answer
    payload_digest({"tensors": answer.tensors})  # to find the size
    return FLModelUtils.to_shareable(answer_to_model(gate.apply(answer)))


def once(update: Update, gate: SiteLimits) -> Shareable:
    return FLModelUtils.to_shareable(answer_to_model(gate.apply(update)))


Way = Callable[[Update, SiteLimits], Shareable]
WAYS: dict[str, Way] = {"opened again": opened_again, "once": once}


def seconds(way: Way, update: Update, gate: SiteLimits) -> float:
    started = time.process_time()
    way(update, gate)
    return time.process_time() - started


def copies(way: Way, update: Update, gate: SiteLimits) -> float:
    """Memory at its highest beyond the update itself, in updates; in a process of its own."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        before = psutil.Process().memory_info().rss
        way(update, gate)
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        os.write(writer, str((highest - before) / sum(t.nbytes for t in update.tensors.values())).encode())
        os._exit(0)
    os.wait()
    return float(os.read(reader, 100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, default=27, help="parameters")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tensors = {f"layer{i}": torch.randn(int(options.millions * 1e6 / 50)) for i in range(50)}
    update = Update("ct_north", 0, tensors, 1, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ct_north.yaml"
        path.write_text(yaml.safe_dump({"data_root": folder, "device": "cpu"}))
        gate = SiteLimits(load_file(path), Path(folder))
        times: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(options.repeats):
            for name, way in WAYS.items():
                times[name].append(seconds(way, update, gate))
        memory = {name: copies(way, update, gate) for name, way in WAYS.items()}
        assert len({line["sha256"] for line in read_ledger(Path(folder))}) == 1, "the ways differ"
    for name, taken in times.items():
        print(f"{name:13s} {min(taken):6.3f} s, {memory[name]:4.1f} copies of the update")
    before, after = (min(taken) for taken in times.values())
    print(f"the way out takes {after / before:.2f} of the time that it took")


if __name__ == "__main__":
    main()

"""An executor that goes wrong on demand. Tests use it in one process, or put it into a job's ``custom`` folder."""

import errno
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from fedmed.errors import StateError
from fedmed.flare.executors import BundleExecutor
from fedmed.flare.persistor import BundleModelPersistor


def once(mark):
    """Whether it is the first time: a resumed run repeats the round, and must not repeat the fault."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def first(update):
    return next(name for name, tensor in update.tensors.items() if tensor.is_floating_point())


def changed(change):
    def fault(update, executor):
        tensors = dict(update.tensors)
        change(tensors, first(update))
        return replace(update, tensors=tensors)

    return fault


def raises(error):
    def fault(update, executor):
        raise error

    return fault


def kill(update, executor):
    """The process is killed when the work is done and nothing is sent."""
    if executor.once():
        os.kill(os.getpid(), signal.SIGKILL)
    return update


def late(update, executor):
    if executor.once():
        time.sleep(executor.seconds)
    return update


FAULTS = {
    "raise": raises(RuntimeError("something broke")),
    "memory": raises(MemoryError()),
    "out of memory": raises(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")),
    "disk full": raises(StateError(str(OSError(errno.ENOSPC, "No space left on device")))),
    "nan": changed(lambda t, n: t.update({n: torch.full_like(t[n], float("nan"))})),
    "infinite": changed(lambda t, n: t[n].view(-1).__setitem__(0, float("inf"))),
    "shape": changed(lambda t, n: t.update({n: torch.zeros(3)})),
    "type": changed(lambda t, n: t.update({n: t[n].double()})),
    "wrong key": changed(lambda t, n: t.update({"nobody.knows": torch.zeros(1)})),
    "missing key": changed(lambda t, n: t.pop(n)),
    "100 times": changed(lambda t, n: [t.update({k: 100 * v}) for k, v in t.items() if v.is_floating_point()]),
    "stale round": lambda update, executor: replace(update, round=update.round - 1),
    "later round": lambda update, executor: replace(update, round=update.round + 1),
    "many steps": lambda update, executor: replace(update, n_steps=10**6),
    "kill": kill,
    "late": late,
}


class FaultyExecutor(BundleExecutor):
    """A site that works, and answers wrongly in some rounds.

    Args:
        faults: site -> round, as text -> one of ``FAULTS``.
        seconds: how late a late answer is.
        mark: file that says that the site was killed or late already.
    """

    def __init__(self, faults, seconds=0.0, mark=""):
        super().__init__()
        self.faults, self.seconds, self.mark = faults, seconds, mark

    def once(self):
        return once(self.mark)

    def _work(self, name, task, fl_ctx, abort_signal):
        answer = super()._work(name, task, fl_ctx, abort_signal)
        fault = self.faults.get(fl_ctx.get_identity_name(), {}).get(str(task.round)) if name == "train" else None
        return FAULTS[fault](answer, self) if fault else answer


class FullDiskPersistor(BundleModelPersistor):
    """The server's disk is full when the model of round 1 is half written, once: see $FAULTY_PERSISTOR_MARK."""

    def store(self, fl_ctx):
        store = super().store(fl_ctx)
        if "save" not in vars(store):
            store.save = partial(full_once, store.save)
        return store


def full_once(save, tensors, meta, best):
    write = torch.save
    if meta.get("round") == 1 and not best and once(os.environ["FAULTY_PERSISTOR_MARK"]):
        torch.save = half
    try:
        save(tensors, meta, best)
    finally:
        torch.save = write


def half(content, stream):
    """What ``torch.save`` does on a full disk."""
    stream.write(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")

"""Work in several processes that end when their parent does, however it ends."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from fedmed.errors import FedMedError

Item = TypeVar("Item")


@dataclass(frozen=True)
class Failure:
    """What kept a process from its result, in words."""

    reason: str


def in_processes(items: Iterable[Item], jobs: int, work: Callable[[Item], Any]) -> Iterator[tuple[Item, Any]]:
    """Do ``work`` on every item, ``jobs`` at a time, each in a process of its own.

    Whatever stops the caller (an error, Ctrl-C, ``close``) stops the processes too; one that dies, for want of memory
    say, takes no other with it.

    Args:
        items: what ``work`` is called with; can be pickled.
        jobs: 1 or more.
        work: a function of a module.

    Yields:
        (item, result or :class:`Failure`), in the order in which they are done.
    """
    # Not forked from this process: CUDA cannot be used in a fork of a process that has asked for a GPU.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    waiting, running = deque(items), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_answer, args=(sender, work, waiting[0]))
                process.start()
                sender.close()  # of this side, so that the end of the process is the end of the pipe
                running[receiver] = waiting.popleft(), process
            for receiver in wait(list(running)):
                item, process = running[receiver]
                result = _result(receiver, process)
                del running[receiver]
                yield item, result
    finally:
        for _, process in running.values():
            process.kill()
        for _, process in running.values():
            process.join()


def _result(receiver: Connection, process: BaseProcess) -> Any:
    try:
        result = receiver.recv()
    except EOFError:
        process.join()
        return Failure(f"its process ended with exit code {process.exitcode}; if memory ran out, use fewer --jobs")
    process.join()
    return result


def _answer(sender: Connection, work: Callable[[Item], Any], item: Item) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, and it decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        result = work(item)
    except Exception as error:  # noqa: BLE001 - a defect in one item's work must not cost the others theirs
        result = Failure(_words(error))
    sender.send(result)


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, FedMedError | OSError) else f"{type(error).__name__}: {error}"


def _end_with_parent() -> None:
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)

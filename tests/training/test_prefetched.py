"""Batches that are loaded once, ahead of their use."""

import threading

import pytest

from fedmed.training.server_engine import Prefetched


def loader(loaded, number=4):
    for n in range(number):
        loaded.append((n, threading.current_thread().name))
        yield {"image": n}


def test_the_same_batches_each_time_loaded_once_by_another_thread():
    loaded, prepared = [], []

    def prepare(batch):
        prepared.append(threading.current_thread().name)
        return {"image": 10 * batch["image"]}

    with Prefetched(loader(loaded), prepare) as batches:
        first = [batch["image"] for batch in batches]
        assert [batch["image"] for batch in batches] == first == [0, 10, 20, 30]
        assert all(a is b for a, b in zip(batches, batches.ready, strict=True))
    assert [n for n, _ in loaded] == [0, 1, 2, 3]
    here = threading.current_thread().name
    assert prepared == [here] * 4 and here not in {name for _, name in loaded}


def test_the_next_batch_is_loaded_while_one_is_used():
    loaded, second = [], threading.Event()

    def watched():
        for batch in loader(loaded, 2):
            if batch["image"] == 1:
                second.set()
            yield batch

    with Prefetched(watched(), dict) as batches:
        next(iter(batches))
        assert second.wait(10)


def test_the_thread_ends_also_where_not_all_is_used_or_loading_fails():
    before = threading.active_count()
    with Prefetched(loader([]), dict) as batches:
        next(iter(batches))
    assert threading.active_count() == before

    def failing():
        yield {"image": 0}
        raise OSError("unreadable")

    with pytest.raises(OSError, match="unreadable"), Prefetched(failing(), dict) as batches:
        list(batches)
    assert threading.active_count() == before


def test_nothing_is_nothing():
    with Prefetched([], dict) as batches:
        assert list(batches) == [] and list(batches) == []

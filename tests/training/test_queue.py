import pytest
import torch

from fedmed.errors import FedMedError, StateError
from fedmed.systems.fedmoco.keys import KeyQueue


def letters(text):
    return torch.tensor([[float(ord(letter))] for letter in text])


def content(queue):
    return "".join(chr(int(key)) for key in queue.keys[:, 0])


def test_oldest_keys_are_overwritten():
    queue = KeyQueue(4, 1)
    queue.enqueue(letters("abc"))
    assert not queue.full
    queue.enqueue(letters("def"))
    assert content(queue) == "efcd"
    assert queue.pointer == 2 and queue.full


@pytest.mark.parametrize("sizes", [[5], [1, 2, 3, 4, 5], [4, 4, 4], [5, 5], [0, 3]])
def test_holds_the_last_keys(sizes):
    queue, seen = KeyQueue(5, 3), torch.zeros(0, 3)
    for size in sizes:
        keys = torch.rand(size, 3)
        queue.enqueue(keys)
        seen = torch.cat([seen, keys])
    last = seen[-5:]
    order = torch.arange(len(seen) - len(last), len(seen)) % 5
    assert torch.equal(queue.keys[order], last)
    assert queue.filled == len(last)


def test_goes_on_where_it_was():
    first, second = KeyQueue(4, 1), KeyQueue(4, 1)
    first.enqueue(letters("abc"))
    state = first.state_dict()
    first.enqueue(letters("def"))
    second.load_state_dict(state)  # not changed by the first queue's later keys
    second.enqueue(letters("def"))
    assert content(first) == content(second) and first.pointer == second.pointer


def test_a_key_goes_with_the_number_of_its_image():
    queue = KeyQueue(4, 1)
    queue.enqueue(letters("abc"), torch.tensor([7, 8, 9]))
    assert queue.images.tolist() == [7, 8, 9, -1]
    queue.enqueue(letters("de"), torch.tensor([1, 2]))
    queue.enqueue(letters("f"))
    assert content(queue) == "efcd" and queue.images.tolist() == [2, -1, 9, 1]
    other, state = KeyQueue(4, 1), queue.state_dict()
    other.load_state_dict(state)
    assert other.images.tolist() == [2, -1, 9, 1]
    del state["images"]  # as an earlier FedMed wrote it
    other.load_state_dict(state)
    assert other.images.tolist() == [-1] * 4


def test_keys_are_constants():
    queue = KeyQueue(2, 3)
    queue.enqueue(torch.rand(2, 3, requires_grad=True))
    assert not queue.keys.requires_grad


def test_errors():
    with pytest.raises(FedMedError, match="size is 0"):
        KeyQueue(0, 3)
    with pytest.raises(FedMedError, match=r"\(5, 1\) do not fit a queue of 4 keys.*raise queue_size"):
        KeyQueue(4, 1).enqueue(torch.rand(5, 1))
    with pytest.raises(FedMedError, match="of length 1"):
        KeyQueue(4, 1).enqueue(torch.rand(2, 3))
    with pytest.raises(StateError, match=r"\(4, 1\), this job's \(8, 1\)"):
        KeyQueue(8, 1).load_state_dict(KeyQueue(4, 1).state_dict())

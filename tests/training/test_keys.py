import pytest
import torch
from torch import nn

from fedmed.errors import FedMedError, StateError
from fedmed.systems.fedmoco.keys import KeyQueue, key_encoder, momentum_update


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


def test_one_step_of_the_average():
    query, key = nn.Linear(1, 1, bias=False).double(), nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(query.weight, 2.0)
    nn.init.constant_(key.weight, 1.0)
    momentum_update(key, query, 0.999)
    assert key.weight.item() == pytest.approx(1.001, abs=1e-12)
    assert query.weight.item() == 2.0


def test_the_key_encoder_is_a_copy_without_gradient_in_train_mode():
    query = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    key = key_encoder(query)
    assert all(torch.equal(a, b) for a, b in zip(query.parameters(), key.parameters(), strict=True))
    assert all(a is not b for a, b in zip(query.parameters(), key.parameters(), strict=True))
    assert not any(p.requires_grad for p in key.parameters()) and all(p.requires_grad for p in query.parameters())
    assert key.training and not query.training


def test_buffers_are_left_alone():
    query = nn.BatchNorm1d(3)
    key = key_encoder(query)
    query(torch.rand(8, 3) + 5)
    momentum_update(key, query, 0.5)
    assert torch.equal(key.running_mean, torch.zeros(3)) and not torch.equal(query.running_mean, torch.zeros(3))

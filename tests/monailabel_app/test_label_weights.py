"""Weights are loaded strictly: a mismatched file is an error that names a tensor, never random weights."""

import pickle

import pytest
import torch
from fedmed_label import server
from fedmed_label.bundles import read_bundle
from fedmed_label.weights import open_network

from fedmed.errors import BundleError


def save(bundle, **changes):
    """Write the bundle's weights with tensors changed, or left out where None."""
    weights = {**torch.nn.Linear(3, 2).state_dict(), **changes}
    torch.save({name: value for name, value in weights.items() if value is not None}, bundle / "models" / "model.pt")


def test_the_weights_are_those_of_the_file(make_bundle):
    bundle = make_bundle()
    network = open_network(read_bundle(bundle))
    wanted = torch.load(bundle / "models" / "model.pt", weights_only=True)
    assert all(torch.equal(value, wanted[name]) for name, value in network.state_dict().items())
    assert not network.training


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bias": None}, "tensor 'bias' is missing"),
        ({"head": torch.ones(1)}, "tensor 'head' is unknown"),
        ({"weight": torch.ones(2, 4)}, r"tensor 'weight' has shape \(2, 4\) instead of \(2, 3\)"),
        ({"bias": torch.tensor([0.0, torch.nan])}, "tensor 'bias' holds values that are not finite"),
    ],
)
def test_weights_that_do_not_fit(make_bundle, changes, words):
    bundle = make_bundle()
    save(bundle, **changes)
    with pytest.raises(BundleError, match=words):
        open_network(read_bundle(bundle))


def test_weights_under_the_key_of_a_trainer_are_found(make_bundle):
    bundle = make_bundle()
    weights = torch.nn.Linear(3, 2).state_dict()
    torch.save({"model": weights}, bundle / "models" / "model.pt")
    assert torch.equal(open_network(read_bundle(bundle)).bias, weights["bias"])


class Harmful:
    def __reduce__(self):
        return (pytest.fail, ("code in a file of weights was run",))


@pytest.mark.parametrize("content", [b"", b"weights", pickle.dumps(Harmful())], ids=["empty", "text", "harmful"])
def test_a_file_that_holds_no_weights_is_refused_and_nothing_in_it_runs(make_bundle, content):
    bundle = make_bundle()
    (bundle / "models" / "model.pt").write_bytes(content)
    with pytest.raises(BundleError, match="is not a file of weights"):
        open_network(read_bundle(bundle))


def test_a_stale_torchscript_file_is_not_used(make_bundle):
    bundle = make_bundle()
    torch.jit.script(torch.nn.Identity()).save(bundle / "models" / "model.ts")
    assert isinstance(open_network(read_bundle(bundle)), torch.nn.Linear)


def test_torchscript_serves_where_there_is_nothing_else(make_bundle):
    bundle = make_bundle()
    (bundle / "models" / "model.pt").unlink()
    torch.jit.script(torch.nn.Linear(3, 2)).save(bundle / "models" / "model.ts")
    assert open_network(read_bundle(bundle))(torch.ones(1, 3)).shape == (1, 2)
    (bundle / "models" / "model.ts").write_bytes(b"no")
    with pytest.raises(BundleError, match="is not TorchScript"):
        open_network(read_bundle(bundle))


def test_a_network_that_cannot_be_built(make_bundle):
    bundle = make_bundle()
    (bundle / "configs" / "inference.yaml").write_text("network_def: {_target_: no.such.Network}")
    with pytest.raises(BundleError, match="'network_def' cannot be built"):
        open_network(read_bundle(bundle))


def test_the_server_ends_with_the_reason_as_its_last_words(make_bundle, capsys):
    bundle = make_bundle()
    save(bundle, bias=None)
    assert server.main([str(bundle), "--", "start_server"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")

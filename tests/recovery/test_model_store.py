"""Start of the global model."""

import re

import pytest
import torch

from fedmed.errors import JobError, StateError
from fedmed.recovery.model_store import ModelStore

SMALL = {"name": "small", "sites": {"a": "supervised"}, "rounds": 1, "steps": 1, "overlays": ["demo"]}
FIRST = r"^convInit\."


@pytest.fixture
def store(tmp_path, monkeypatch, job_of):
    """Return a function: a store; ``content`` becomes ``start.pt`` in $FEDMED_HOME/models."""
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()

    def store(content=None, **study):
        if content is not None:
            torch.save(content, tmp_path / "models" / "start.pt")
        return ModelStore(job_of(**{**SMALL, **study}), tmp_path / "app")

    return store


def moved(tensors):
    return {name: tensor + 1 for name, tensor in tensors.items()}


def test_a_part_of_a_checkpoint_is_taken_and_the_rest_starts_afresh(store):
    fresh = store().initial
    other = {"projection.weight": torch.ones(2)}  # tensors that this model does not have do not matter
    first = {name: tensor for name, tensor in moved(fresh).items() if re.search(FIRST, name)}
    assert first
    for content in ({**first, **other}, {"model": {**first, **other}, "meta": {"round": 3}}):
        begun = store(content, checkpoint="start.pt", checkpoint_tensors=[FIRST])
        assert begun.taken == list(first)
        for name, tensor in begun.initial.items():
            assert torch.equal(tensor, first.get(name, fresh[name]))
        assert begun.describe()["checkpoint"] == "start.pt" and begun.describe()["checkpoint_tensors"] == [FIRST]


def test_the_folder_of_models_comes_before_the_bundles_own(store, tmp_path):
    fresh = store().initial
    begun = store(moved(fresh), checkpoint="start.pt")
    assert begun.checkpoint == tmp_path / "models" / "start.pt" and set(begun.taken) == set(fresh)
    assert all(torch.equal(tensor, fresh[name] + 1) for name, tensor in begun.initial.items())
    assert "checkpoint" not in store().describe()


def resnet50(ahnet):
    """Random weights of a 2D ResNet-50 under torchvision's names, for the encoder of this network."""
    generator = torch.Generator().manual_seed(1)
    made = {}
    for name, tensor in ahnet.items():
        if name.split(".")[0] not in ("conv1", "bn0", "layer1", "layer2", "layer3", "layer4"):
            continue
        shape = (64, 3, 7, 7) if name == "conv1.weight" else tensor.shape[:4]
        values = torch.rand(shape, generator=generator) if tensor.is_floating_point() else tensor + 1
        made[name.replace("bn0.", "bn1.").replace("downsample.2.", "downsample.1.")] = values
    return made


def test_an_encoder_starts_from_a_file_and_the_rest_from_random_weights(store):
    fresh = store(overlays=[]).initial
    content = resnet50(fresh)
    begun = store({**content, "fc.weight": torch.ones(2)}, overlays=[], encoder="start.pt")
    stem = content["conv1.weight"].permute(0, 2, 3, 1)
    assert torch.equal(begun.initial["conv1.weight"][:, 0], stem)
    name = "layer3.5.conv2.weight"
    assert torch.equal(begun.initial[name][..., 0], content[name])
    assert len(begun.taken) == len(content) and set(begun.taken) <= set(fresh)
    assert all(torch.equal(begun.initial[name], fresh[name]) for name in fresh if name not in begun.taken)
    assert begun.describe()["encoder"] == "start.pt"


def test_an_encoder_that_is_not_there_or_not_possible_says_what_to_do(store, tmp_path):
    with pytest.raises(
        JobError, match=f"'r50.pth' is not in {tmp_path}/models .*put it there, at the server.*ResNet-50"
    ):
        _ = store(overlays=[], encoder="r50.pth").initial
    with pytest.raises(JobError, match="fills no encoder of SegResNet from a file; leave it out"):
        _ = store(encoder="r50.pth").initial


def test_what_is_no_file_name_or_not_there_is_refused(store, tmp_path):
    for name in ("../start.pt", "a/start.pt", ".hidden"):
        with pytest.raises(JobError, match="plain file name"):
            store(checkpoint=name)
    with pytest.raises(JobError, match=f"'other.pt' is not in {tmp_path}/models or .*covid_ct_segmentation/models"):
        store(checkpoint="other.pt")


@pytest.mark.parametrize(
    ("change", "patterns", "message"),
    [
        (lambda t: t.pop("convInit.conv.weight"), [FIRST], "at tensor 'convInit.conv.weight', which it does not hold"),
        (
            lambda t: t.pop("convInit.conv.weight"),
            None,
            "not hold; give one of this network, or leave the tensor out of what 'checkpoint_tensors' takes",
        ),
        (
            lambda t: t.update({"convInit.conv.weight": torch.ones(2)}),
            [FIRST],
            "holds as float32 2, the model as float.*; give one of this network, or",
        ),
        (lambda t: t.update({"convInit.conv.weight": t["convInit.conv.weight"].double()}), [FIRST], "as float64"),
        (lambda t: t.update(extra=torch.ones(1)), None, "'extra', which the model does not have"),
        (lambda t: t, ["^teacher"], r"\['\^teacher'\] match no tensor"),
        (lambda t: t, ["("], "'checkpoint_tensors': .*not a regular expression"),
        (lambda t: t.update(extra="word"), None, "does not hold named tensors"),
    ],
)
def test_a_checkpoint_that_does_not_fit_names_the_tensor(store, change, patterns, message):
    content = dict(store().initial)
    change(content)
    with pytest.raises(JobError, match=message):
        _ = store(content, checkpoint="start.pt", checkpoint_tensors=patterns or []).initial


def test_a_damaged_checkpoint_is_an_error(store, tmp_path):
    (tmp_path / "models" / "start.pt").write_bytes(b"nothing")
    with pytest.raises(StateError, match=r"start.pt is damaged"):
        _ = store(checkpoint="start.pt").initial

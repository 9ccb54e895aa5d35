import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate

from fedmed.errors import FedMedError
from fedmed.training.classification_recorder import heat_map, hottest_slice


class Pooled(nn.Module):
    """Logits of a strided stage whose output is averaged."""

    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Conv2d(1, 5, 3, stride=2, padding=1), nn.BatchNorm2d(5), nn.ReLU(inplace=True))
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.stage(x).mean((2, 3)))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Pooled().train()


def by_hand(network, image, label):
    network.eval()
    stage = network.stage(image[None]).detach().clone().requires_grad_(True)
    network.last(stage.mean((2, 3)))[0, label].backward()
    weights = stage.grad.mean((2, 3), keepdim=True)  # Eq. 1 of the paper
    heat = torch.relu((weights * stage).sum(1, keepdim=True))  # Eq. 2
    heat = interpolate(heat, image.shape[1:], mode="bilinear", align_corners=False)[0, 0].detach()
    return heat / heat.max() if heat.max() > 0 else heat


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("frozen", [True, False])
def test_equals_the_definition(network, label, frozen):
    image = torch.rand(1, 12, 10, generator=torch.Generator().manual_seed(label))
    network.requires_grad_(not frozen)
    result = heat_map(network, image, label, "stage")
    assert network.training and network.stage[2].inplace and network.last.weight.requires_grad is not frozen
    assert result.shape == (12, 10) and result.dtype == torch.float32 and result.max() in (0, 1)
    assert torch.allclose(result, by_hand(network, image, label), atol=1e-6)


def test_it_lies_where_the_class_is_seen(network):
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.fill_(0.1 if tensor.ndim > 1 else 0.0)
        network.stage[1].weight.fill_(1.0)
    image = torch.zeros(1, 12, 12)
    image[0, 8:, :4] = 1
    heat = heat_map(network, image, 1, "stage")
    assert heat[8:, :4].mean() > 3 * heat[:4, 8:].mean()
    with torch.no_grad():
        network.last.weight.fill_(-1.0)
    assert not heat_map(network, image, 1, "stage").any()  # all that is seen speaks against it


def test_an_unknown_layer(network):
    with pytest.raises(FedMedError, match="Pooled has no layer 'encoder'; name one in target_layer"):
        heat_map(network, torch.rand(1, 8, 8), 0, "encoder")


def test_of_a_volume_the_slice_with_the_most_heat_is_shown_as_radiologists_look_at_it():
    image, heat = torch.zeros(4, 5, 6), torch.zeros(4, 5, 6)
    image[3, 4, 2] = 1  # right (R) and in front (A)
    heat[1, 1, 2] = 1
    shown, hot = hottest_slice(image, heat)
    assert shown.shape == hot.shape == (5, 4) and shown[0, 0] == 1, "front up, the patient's right at the left"
    flat = torch.rand(3, 3)
    assert hottest_slice(flat, flat)[0] is flat

"""The Pyramid Vision Transformer v2 that makes maps of single frames."""

from collections.abc import Sequence

from torch import Tensor, nn

from .errors import BundleInputError

try:
    from transformers.models.pvt_v2.configuration_pvt_v2 import PvtV2Config
    from transformers.models.pvt_v2.modeling_pvt_v2 import PvtV2Model
except ModuleNotFoundError as error:
    raise BundleInputError(
        f"the network needs transformers ({error}): pip install 'fedmed[text]', or transformers alone"
    ) from error

FIRST_STRIDE, STRIDE = 4, 2  # of the first stage, and of each further one


class PvtEncoder(nn.Module):
    """The stages of transformers' PVT v2 (Wang et al. 2022, Computational Visual Media 8), without a classifier.

    Tensors are ``layers.<stage>.blocks.<block>.attention.query.weight`` and so on, as in transformers' model below
    ``encoder.``. Keys and values come from a map that a convolution makes smaller. The defaults are b0's, with
    3,409,760 parameters.

    Args:
        dims: channels of each stage's map.
        depths: blocks of each stage.
        heads: of each stage's attention.
        reductions: sides of the block of tokens that becomes one key, of each stage.
        expansions: hidden channels of each stage's feed-forward part, as a multiple of its channels.

    Attributes:
        dims, heads: as given.
        stride: pixels that a token of the last map is wide.

    Raises:
        ValueError: lists of different lengths or none, or channels that the heads do not divide.
    """

    def __init__(
        self,
        dims: Sequence[int] = (32, 64, 160, 256),
        depths: Sequence[int] = (2, 2, 2, 2),
        heads: Sequence[int] = (1, 2, 5, 8),
        reductions: Sequence[int] = (8, 4, 2, 1),
        expansions: Sequence[int] = (8, 8, 4, 4),
    ) -> None:
        super().__init__()
        stages = len(dims)
        if stages < 1 or any(len(each) != stages for each in (depths, heads, reductions, expansions)):
            raise ValueError(
                f"dims {list(dims)}, depths {list(depths)}, heads {list(heads)}, reductions {list(reductions)}, "
                f"expansions {list(expansions)}: give one number a stage in each"
            )
        config = PvtV2Config(
            num_encoder_blocks=stages,
            depths=list(depths),
            sr_ratios=list(reductions),
            hidden_sizes=list(dims),
            patch_sizes=[7, *[3] * (stages - 1)],
            strides=[FIRST_STRIDE, *[STRIDE] * (stages - 1)],
            num_attention_heads=list(heads),
            mlp_ratios=list(expansions),
            drop_path_rate=0.0,
        )
        self.layers = PvtV2Model(config).encoder.layers
        self.dims, self.heads = tuple(dims), tuple(heads)
        self.stride = FIRST_STRIDE * STRIDE ** (stages - 1)

    def forward(self, x: Tensor, first: int = 0, last: int | None = None) -> list[Tensor]:
        """Maps of some stages, at strides 4, 8, 16 and 32.

        Args:
            x: what the first of these stages takes: a frame (B, 3, H, W), normalised, whose sides ``stride`` divides,
                or the map of the stage before.
            first: the first stage.
            last: the stage after the last; None = all.

        Returns:
            (B, dims[i], H / (4 · 2^i), W / (4 · 2^i)) of each of these stages i.
        """
        maps = []
        for layer in self.layers[first:last]:
            (tokens,), height, width = layer(x, False)
            x = tokens.transpose(1, 2).reshape(x.shape[0], -1, height, width)
            maps.append(x)
        return maps

"""The lookahead convolution in front of both flow encoders: three tokens of future context."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from cosyvoice_stream.models.causal import Walk

LOOKAHEAD_TOKENS = 3


class LookaheadLayer(nn.Module):
    """Two convolutions, the first reaching `LOOKAHEAD_TOKENS` ahead, added to their input."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, inner, LOOKAHEAD_TOKENS + 1)
        self.conv2 = nn.Conv1d(inner, width, 3)

    def forward(self, x: Tensor, context: Tensor, walk: Walk) -> Tensor:
        """Mix the future in.

        Args:
            x: (B, K, D) new token rows.
            context: (B, `LOOKAHEAD_TOKENS`, D) the rows that follow, zeros at the end of the
            utterance.
            walk: Carries the tail of `conv2`.

        Returns:
            (B, K, D).
        """
        ahead = F.pad(x.mT, (0, LOOKAHEAD_TOKENS))  # (B, K, D) -> (B, D, K)
        ahead[:, :, x.shape[1] :] = context.mT
        inner = F.leaky_relu(self.conv1(ahead))
        out: Tensor = walk.conv(self.conv2, inner).mT + x
        return out

"""The EAGLE3 draft: one decoder layer that continues from the target's fused hidden states.

At position t it reads the features of t and the embedding of token t + 1 and says what token t + 2 will be. Where the
target has not been yet, its own output of the step before stands in for the features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tiny_kernels import rms_norm

from tinyserve.layers.attention_backend import AttentionBackend, KVCache
from tinyserve.layers.linear import ColumnParallelLinear
from tinyserve.layers.rotary_embedding import RotaryEmbedding
from tinyserve.models.llama import MLP, Attention

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array, Communicator
    from tinyserve.models.config import ModelConfig


class LlamaForCausalLMEagle3:
    """The draft, split over the ranks as the target is; it shares the target's embedding."""

    def __init__(
        self,
        config: ModelConfig,
        weights: dict[str, Array],
        embed_tokens: Array,
        backend: AttentionBackend,
        comm: Communicator,
        context_length: int,
    ) -> None:
        rope = RotaryEmbedding(config.head_dim, context_length, config.rope_theta)
        self._embed_tokens = embed_tokens
        self._fc = weights["fc"].astype(np.float64)
        self.attention = Attention(config, weights, "midlayer.self_attn", backend, rope, comm)
        self.mlp = MLP(weights, "midlayer.mlp", comm)
        self._input_norm, self._hidden_norm, self.post_norm = (
            weights[f"midlayer.{name}"].astype(np.float64)
            for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        )
        self._norm = weights["norm"].astype(np.float64)
        self._lm_head = ColumnParallelLinear([weights["lm_head"]], comm)
        self._comm = comm
        self._cache = KVCache(self.attention.kv_heads, context_length, config.head_dim)

    def fuse(self, captured: Array) -> Array:
        """The target's captured hidden states (rows, 3 * hidden) as features (rows, hidden)."""
        return captured @ self._fc

    def layer_input(self, ids: list[int], features: Array) -> Array:
        """Embeddings and features side by side, each normed: (rows, 2 * hidden)."""
        return np.concatenate(
            (rms_norm(self._embed_tokens[ids], self._input_norm), rms_norm(features, self._hidden_norm)), axis=1
        )

    def forward(self, ids: list[int], features: Array, start: int) -> tuple[Array, Array]:
        """One draft step: the next features (rows, hidden) and their logits (rows, vocabulary)."""
        hidden = features + self.attention.forward(self.layer_input(ids, features), self._cache, start)
        hidden = hidden + self.mlp.forward(rms_norm(hidden, self.post_norm))
        return hidden, self._comm.all_gather(self._lm_head(rms_norm(hidden, self._norm)))

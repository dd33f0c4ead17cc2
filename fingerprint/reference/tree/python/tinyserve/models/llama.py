"""The target: a Llama-like decoder that also hands out the hidden states an EAGLE3 draft is fed with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tiny_kernels import rms_norm, silu_and_mul

from tinyserve.layers.attention_backend import AttentionBackend, KVCache
from tinyserve.layers.linear import ColumnParallelLinear, RowParallelLinear
from tinyserve.layers.rotary_embedding import RotaryEmbedding

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array, Communicator
    from tinyserve.models.config import ModelConfig


class Attention:
    """Grouped-query self-attention, its heads split over the ranks."""

    def __init__(
        self,
        config: ModelConfig,
        weights: dict[str, Array],
        prefix: str,
        backend: AttentionBackend,
        rope: RotaryEmbedding,
        comm: Communicator,
    ) -> None:
        self.heads = config.num_attention_heads // comm.world_size
        self.kv_heads = config.num_key_value_heads // comm.world_size
        self.head_dim = config.head_dim
        self._qkv = ColumnParallelLinear([weights[f"{prefix}.{name}_proj"] for name in "qkv"], comm)
        self._out = RowParallelLinear(weights[f"{prefix}.o_proj"], comm)
        self._backend = backend
        self._rope = rope

    def context(self, x: Array, cache: KVCache, start: int) -> Array:
        """What the rows read from the sequence, before the output projection."""
        rows = len(x)
        qkv = self._qkv(x).reshape(rows, self.heads + 2 * self.kv_heads, self.head_dim)
        turned = self._rope(qkv[:, : self.heads + self.kv_heads], start)
        cache.write(turned[:, self.heads :], qkv[:, self.heads + self.kv_heads :], start)
        return self._backend.forward(turned[:, : self.heads], cache, start)

    def forward(self, x: Array, cache: KVCache, start: int) -> Array:
        """Rows (rows, in) at positions from `start` on, to (rows, hidden)."""
        return self._out(self.context(x, cache, start))


class MLP:
    """Gated feed-forward block, its inner width split over the ranks."""

    def __init__(self, weights: dict[str, Array], prefix: str, comm: Communicator) -> None:
        self._gate_up = ColumnParallelLinear([weights[f"{prefix}.gate_proj"], weights[f"{prefix}.up_proj"]], comm)
        self._down = RowParallelLinear(weights[f"{prefix}.down_proj"], comm)

    def inner(self, x: Array) -> Array:
        """The activations before the down projection."""
        return silu_and_mul(self._gate_up(x))

    def forward(self, x: Array) -> Array:
        """(rows, hidden) to (rows, hidden)."""
        return self._down(self.inner(x))


class LlamaForCausalLM:
    """Embedding, decoder layers, final norm and a head whose vocabulary is split over the ranks."""

    def __init__(
        self,
        config: ModelConfig,
        weights: dict[str, Array],
        backend: AttentionBackend,
        comm: Communicator,
        context_length: int,
    ) -> None:
        self.config = config
        self.embed_tokens = weights["embed_tokens"].astype(np.float64)
        rope = RotaryEmbedding(config.head_dim, context_length, config.rope_theta)
        layers = range(config.num_hidden_layers)
        self._attention = [Attention(config, weights, f"layers.{i}.self_attn", backend, rope, comm) for i in layers]
        self._mlp = [MLP(weights, f"layers.{i}.mlp", comm) for i in layers]
        self._input_norm = [weights[f"layers.{i}.input_layernorm"].astype(np.float64) for i in layers]
        self._post_norm = [weights[f"layers.{i}.post_attention_layernorm"].astype(np.float64) for i in layers]
        self._norm = weights["norm"].astype(np.float64)
        self._lm_head = ColumnParallelLinear([weights["lm_head"]], comm)
        self._comm = comm
        self._caches = [KVCache(attention.kv_heads, context_length, config.head_dim) for attention in self._attention]
        # As EAGLE3 does: one layer near the input, one in the middle, one near the output.
        self.capture = (2, config.num_hidden_layers // 2, config.num_hidden_layers - 3)

    def forward(self, ids: list[int], start: int) -> tuple[Array, Array, Array]:
        """Run `ids` at positions from `start` on; positions before it must be in the cache.

        Returns the captured hidden states side by side (rows, 3 * hidden), the last hidden states (rows, hidden)
        and the logits (rows, vocabulary).
        """
        hidden = self.embed_tokens[ids]
        captured = []
        for index, (attention, mlp) in enumerate(zip(self._attention, self._mlp, strict=True)):
            if index in self.capture:
                captured.append(hidden)
            x = rms_norm(hidden, self._input_norm[index])
            hidden = hidden + attention.forward(x, self._caches[index], start)
            hidden = hidden + mlp.forward(rms_norm(hidden, self._post_norm[index]))
        logits = self._comm.all_gather(self._lm_head(rms_norm(hidden, self._norm)))
        return np.concatenate(captured, axis=1), hidden, logits

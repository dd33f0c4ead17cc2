"""Write a small target and the EAGLE3 draft fitted to it: python -m tinyserve.make_model OUT [--seed N].

The target's weights are random, but its head is tied to its embedding through a permutation: what follows a token is
mostly decided by that token, and by its context where the context speaks up. That is what makes it predictable at all.

The draft is fitted in closed form to hidden states that the target shows on random texts. Its attention and the inner
half of its feed-forward block stay random; three linear maps are solved by ridge regression, one after the other:
`fc` from the fused to the last hidden states, then the attention's output map and the down projection, each from what
is still missing to the target's last hidden state one token ahead. It uses the target's own norm and head.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tiny_kernels import rms_norm

from tinyserve.distributed.communicator import Communicator
from tinyserve.layers.attention_backend import AttentionBackend, KVCache
from tinyserve.models.config import ModelConfig, save
from tinyserve.models.llama import LlamaForCausalLM
from tinyserve.models.llama_eagle3 import LlamaForCausalLMEagle3

Array = NDArray[np.float64]

_SHAPE = ModelConfig(("LlamaForCausalLM",), 512, 256, 1024, 10, 8, 4, 32)
_DRAFT_SHAPE = ModelConfig(("LlamaForCausalLMEagle3",), 512, 256, 1024, 1, 8, 8, 64)
_CONSTANT = 3.0  # first feature of every embedding: something that all tokens share, for local attention to hold on to
_TIE = 0.3  # of the head to the embedding of the token that it mostly follows
_LAYER_SCALE = 0.2
_TEXTS, _TEXT_LENGTH, _JUMPS = 10, 256, 0.15
_RIDGE = 1e-2


def target_weights(config: ModelConfig, rng: np.random.Generator) -> tuple[dict[str, Array], NDArray[np.intp]]:
    """Random weights, and the token that the head prefers after each token."""
    hidden, inner, vocab = config.hidden_size, config.intermediate_size, config.vocab_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim

    def random(rows: int, columns: int, scale: float = 1.0) -> Array:
        weight: Array = rng.standard_normal((rows, columns)) * (scale / np.sqrt(rows))
        return weight

    embedding = rng.standard_normal((vocab, hidden))
    embedding[:, 0] = _CONSTANT
    successor = rng.permutation(vocab)
    head = np.empty((hidden, vocab))
    head[:, successor] = (_TIE * embedding.T + (1 - _TIE) * rng.standard_normal((hidden, vocab))) / np.sqrt(hidden)
    head[0] = 0.0
    weights = {"embed_tokens": embedding, "lm_head": head, "norm": np.ones(hidden)}
    for layer in range(config.num_hidden_layers):
        prefix = f"layers.{layer}"
        weights |= {
            f"{prefix}.self_attn.q_proj": random(hidden, queries, 2.0),
            f"{prefix}.self_attn.k_proj": random(hidden, keys, 2.0),
            f"{prefix}.self_attn.v_proj": random(hidden, keys),
            f"{prefix}.self_attn.o_proj": random(queries, hidden, _LAYER_SCALE),
            f"{prefix}.mlp.gate_proj": random(hidden, inner),
            f"{prefix}.mlp.up_proj": random(hidden, inner),
            f"{prefix}.mlp.down_proj": random(inner, hidden, _LAYER_SCALE),
            f"{prefix}.input_layernorm": np.ones(hidden),
            f"{prefix}.post_attention_layernorm": np.ones(hidden),
        }
    return weights, successor


def draft_weights(config: ModelConfig, target: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """The draft before it is fitted: every other head reads its own position, the rest the recent past."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim

    def local(columns: int) -> Array:
        # Every head turns the constant feature into the same vector, so that only the distance counts: the nearer, the
        # more alike after the rotary embedding.
        weight = np.zeros((2 * hidden, columns))
        sharpness = np.repeat(np.where(np.arange(columns // config.head_dim) % 2, 0.4, 1.6), config.head_dim)
        weight[0] = sharpness
        return weight

    return {
        "fc": np.zeros((3 * hidden, hidden)),
        "midlayer.self_attn.q_proj": local(queries),
        "midlayer.self_attn.k_proj": local(keys),
        "midlayer.self_attn.v_proj": rng.standard_normal((2 * hidden, keys)) / np.sqrt(2 * hidden),
        "midlayer.self_attn.o_proj": np.zeros((queries, hidden)),
        "midlayer.mlp.gate_proj": rng.standard_normal((hidden, inner)) / np.sqrt(hidden),
        "midlayer.mlp.up_proj": rng.standard_normal((hidden, inner)) / np.sqrt(hidden),
        "midlayer.mlp.down_proj": np.zeros((inner, hidden)),
        "midlayer.input_layernorm": np.ones(hidden),
        "midlayer.hidden_norm": np.ones(hidden),
        "midlayer.post_attention_layernorm": np.ones(hidden),
        "norm": target["norm"],
        "lm_head": target["lm_head"],
    }


def texts(successor: NDArray[np.intp], rng: np.random.Generator) -> list[list[int]]:
    """Random texts in which most tokens are followed by the one that the head prefers."""
    found = []
    for _ in range(_TEXTS):
        text = [int(rng.integers(len(successor)))]
        while len(text) < _TEXT_LENGTH:
            jump = rng.random() < _JUMPS
            text.append(int(rng.integers(len(successor)) if jump else successor[text[-1]]))
        found.append(text)
    return found


def fit_draft(
    target: LlamaForCausalLM, config: ModelConfig, weights: dict[str, Array], seen: list[list[int]]
) -> dict[str, Array]:
    """Solve the three maps of the draft from what the target shows on the texts `seen`."""
    states = [target.forward(text, 0)[:2] for text in seen]
    captured = [shown for shown, _ in states]
    last = [hidden for _, hidden in states]
    fc = _ridge(np.concatenate(captured), np.concatenate(last))
    draft = LlamaForCausalLMEagle3(
        config,
        weights | {"fc": fc},
        target.embed_tokens,
        AttentionBackend("fused"),
        Communicator(0, 1, None),
        _TEXT_LENGTH,
    )
    features = [draft.fuse(shown)[:-1] for shown in captured]
    contexts = np.concatenate(
        [
            draft.attention.context(
                draft.layer_input(text[1:], rows), KVCache(config.num_key_value_heads, len(text), config.head_dim), 0
            )
            for text, rows in zip(seen, features, strict=True)
        ]
    )
    before = np.concatenate(features)
    ahead = np.concatenate([hidden[1:] for hidden in last])
    o_proj = _ridge(contexts, ahead - before)
    middle = before + contexts @ o_proj
    down_proj = _ridge(draft.mlp.inner(rms_norm(middle, draft.post_norm)), ahead - middle)
    return weights | {"fc": fc, "midlayer.self_attn.o_proj": o_proj, "midlayer.mlp.down_proj": down_proj}


def _ridge(inputs: Array, wanted: Array) -> Array:
    """The map (in, out) from rows of `inputs` to rows of `wanted` with the least squared error, kept small."""
    gram = inputs.T @ inputs
    gram[np.diag_indices_from(gram)] += _RIDGE * np.trace(gram) / len(gram)
    solved = np.linalg.solve(gram, inputs.T @ wanted)
    return np.asarray(solved, np.float64)


def main() -> None:
    """Write OUT/target and OUT/draft."""
    parser = argparse.ArgumentParser(prog="tinyserve.make_model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    weights, successor = target_weights(_SHAPE, rng)
    save(args.out / "target", _SHAPE, weights)
    target = LlamaForCausalLM(_SHAPE, weights, AttentionBackend("fused"), Communicator(0, 1, None), _TEXT_LENGTH)
    fitted = fit_draft(target, _DRAFT_SHAPE, draft_weights(_DRAFT_SHAPE, weights, rng), texts(successor, rng))
    save(args.out / "draft", _DRAFT_SHAPE, fitted)


if __name__ == "__main__":
    main()

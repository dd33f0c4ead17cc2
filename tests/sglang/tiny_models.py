"""Writes a target of two layers and its EAGLE3 draft, nothing trained: `python tiny_models.py OUT`.

A token is one byte, and the next one is a fixed permutation of it: the head's row of a token's successor is the token's
own embedding, and the layers add so little that the embedding is what reaches the head. The draft looks at nothing but
the captured feature, which is that embedding, too, so of its steps the first is always right and the second never: a
cycle gains two tokens on every run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN = 64
SPECIAL = ("<s>", "</s>", "<pad>")


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *letters))}
    one = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    one.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=one, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def write(out: Path) -> None:
    """Write `target` and `draft` below `out`."""
    torch.manual_seed(7)
    words = tokenizer()
    size = 64 * -(-len(words) // 64)
    first = len(SPECIAL)
    order = first + torch.randperm(len(words) - first)
    successor = torch.full((size,), int(order[0]))
    successor[order] = order.roll(-1)
    config = LlamaConfig(
        vocab_size=size, hidden_size=HIDDEN, intermediate_size=HIDDEN, num_hidden_layers=2, num_attention_heads=1,
        num_key_value_heads=1, head_dim=HIDDEN, max_position_embeddings=1024, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    target = LlamaForCausalLM(config).float()
    embedding = torch.randn(size, HIDDEN)

    def head(following: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(size, HIDDEN)
        rows[following[order]] = embedding[order]
        return rows

    with torch.no_grad():
        target.model.embed_tokens.weight.copy_(embedding)
        target.lm_head.weight.copy_(head(successor))
        for layer in target.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.02)
            layer.mlp.down_proj.weight.mul_(0.02)
    target.save_pretrained(out / "target")
    words.save_pretrained(out / "target")

    draft = {
        "fc.weight": torch.eye(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        # It sees the feature of the token before the newest one, so it has to name the token after the next.
        "lm_head.weight": head(successor[successor]),
        "d2t": torch.zeros(size, dtype=torch.int64),
        "t2d": torch.ones(size, dtype=torch.bool),
    }
    for name in ("q_proj", "k_proj", "v_proj"):
        draft[f"midlayer.self_attn.{name}.weight"] = torch.randn(HIDDEN, 2 * HIDDEN)
    for name in ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        draft[f"midlayer.{name}.weight"] = torch.zeros(HIDDEN, HIDDEN)
    for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        draft[f"midlayer.{name}.weight"] = torch.ones(HIDDEN)
    (out / "draft").mkdir()
    save_file(draft, out / "draft" / "model.safetensors", metadata={"format": "pt"})
    described = config.to_dict() | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": size,
        "dtype": "float32",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0], "use_aux_hidden_state": True},
    }
    (out / "draft" / "config.json").write_text(json.dumps(described, indent=1))


if __name__ == "__main__":
    write(Path(sys.argv[1]))

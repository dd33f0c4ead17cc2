"""A target and its EAGLE3 draft with random weights and a known accept length, for a GPU host without a network.

The target's head is its embedding under a permutation, so the next token follows from the last one whatever the layers
between (whose outputs are kept small). The draft's head is that permutation applied twice: its first guess is always
right and every later one wrong, so that two tokens are accepted a cycle on every run. Kernels and shapes are those of a
Llama of about 1B parameters, with three times its layers: then a cycle is the GPU's time rather than the host's.

    python -m benchmarks.gpu_models FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

VOCABULARY, HIDDEN, LAYERS, HEADS, KEY_HEADS, HEAD_DIM, INNER = 32000, 2048, 48, 32, 8, 64, 8192
SMALL = 1e-4
"""Scale of what the layers add: enough to be real work, too little to change which token comes next."""


def config(**changes: object) -> dict[str, object]:
    """The models' config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        **changes,
    }


def write(folder: Path) -> None:
    """Write `target/` and `draft/` below a folder."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(14)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def weights(rows: int, columns: int, scale: float = 0.02) -> Any:  # noqa: ANN401 - a tensor
        return (torch.randn(rows, columns, device=device) * scale).to(torch.bfloat16).cpu()

    def ones() -> Any:  # noqa: ANN401 - a tensor
        return torch.ones(HIDDEN, dtype=torch.bfloat16)

    def layer(prefix: str, inputs: int) -> dict[str, Any]:
        return {
            f"{prefix}.self_attn.q_proj.weight": weights(HEADS * HEAD_DIM, inputs),
            f"{prefix}.self_attn.k_proj.weight": weights(KEY_HEADS * HEAD_DIM, inputs),
            f"{prefix}.self_attn.v_proj.weight": weights(KEY_HEADS * HEAD_DIM, inputs),
            f"{prefix}.self_attn.o_proj.weight": weights(HIDDEN, HEADS * HEAD_DIM, SMALL),
            f"{prefix}.mlp.gate_proj.weight": weights(INNER, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": weights(INNER, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": weights(HIDDEN, INNER, SMALL),
        }

    embedding = torch.randn(VOCABULARY, HIDDEN, device=device)
    follows = torch.randperm(VOCABULARY, device=device)

    def head(order: Any) -> Any:  # noqa: ANN401 - tensors
        rows = torch.empty_like(embedding)
        rows[order] = embedding
        return (rows / HIDDEN**0.5).to(torch.bfloat16).cpu()

    target = {
        "model.embed_tokens.weight": embedding.to(torch.bfloat16).cpu(),
        "model.norm.weight": ones(),
        "lm_head.weight": head(follows),
    }
    for number in range(LAYERS):
        target |= layer(f"model.layers.{number}", HIDDEN)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            target[f"model.layers.{number}.{norm}.weight"] = ones()
    fuse = torch.zeros(HIDDEN, 3 * HIDDEN)
    fuse[:, :HIDDEN] = torch.eye(HIDDEN)
    draft = {"fc.weight": fuse.to(torch.bfloat16), "norm.weight": ones(), "lm_head.weight": head(follows[follows])}
    draft |= layer("midlayer", 2 * HIDDEN)
    for norm in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        draft[f"midlayer.{norm}.weight"] = ones()
    of_draft = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": VOCABULARY}
    for name, tensors, about in (("target", target, config()), ("draft", draft, config(**of_draft))):
        (folder / name).mkdir(parents=True, exist_ok=True)
        save_file(tensors, str(folder / name / "model.safetensors"), metadata={"format": "pt"})
        (folder / name / "config.json").write_text(json.dumps(about, indent=1) + "\n")
    _write_tokenizer(folder / "target")


def _write_tokenizer(folder: Path) -> None:
    """Words separated by blanks; a word that is not `wN` is unknown, which is a token like any other here."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<s>", "</s>", "<unk>"]
    words = {word: number for number, word in enumerate([*special, *(f"w{n}" for n in range(3, VOCABULARY))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)

"""A model folder: config.json and weights.npz."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tinyserve.distributed.communicator import Array


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model, under the names that Hugging Face configs use."""

    architectures: tuple[str, ...]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float = 10000.0
    max_position_embeddings: int = 2048


def load(folder: str) -> tuple[ModelConfig, dict[str, Array]]:
    """Read a model folder; the weights are stored in float32 and computed with in float64."""
    config = json.loads((Path(folder) / "config.json").read_text())
    config["architectures"] = tuple(config["architectures"])
    with np.load(Path(folder) / "weights.npz") as stored:
        return ModelConfig(**config), dict(stored)


def save(folder: Path, config: ModelConfig, weights: dict[str, Array]) -> None:
    """Write a model folder that `load` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(asdict(config), indent=2) + "\n")
    np.savez(folder / "weights.npz", **{name: value.astype(np.float32) for name, value in weights.items()})  # type: ignore[arg-type]

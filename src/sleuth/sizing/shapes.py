"""Shapes of decoder models: what their ``config.json`` says of them, and what follows for parameters and caches."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sleuth.errors import UserError


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama-like decoder: grouped attention, gated MLP, RMS norms.

    Attributes:
        heads, key_value_heads: attention heads of ``head_size`` each.
        inner: width of the MLP. ``vocabulary``: rows of the embedding.
        tied: input and output embedding are one matrix.
        biases: on queries, keys and values (Qwen2). ``head_norms``: norms of queries and keys (Qwen3).
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    key_value_heads: int
    head_size: int
    vocabulary: int
    tied: bool = False
    biases: bool = False
    head_norms: bool = False

    @property
    def queries(self) -> int:
        """Width of all queries together."""
        return self.heads * self.head_size

    @property
    def key_values(self) -> int:
        """Width of all keys together, and of all values."""
        return self.key_value_heads * self.head_size

    @property
    def linear_parameters(self) -> int:
        """Weights that multiply every token: all layers, without embeddings and norms."""
        attention = self.hidden * (2 * self.queries + 2 * self.key_values)
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def parameters(self) -> int:
        """All of them."""
        biases = self.queries + 2 * self.key_values if self.biases else 0
        norms = 2 * self.hidden + (2 * self.head_size if self.head_norms else 0)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.linear_parameters + self.layers * (biases + norms) + self.hidden + embeddings

    def lora_parameters(self, rank: int) -> int:
        """Of adapters of that rank on every linear layer."""
        attention = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.key_values)
        return rank * self.layers * (attention + 3 * (self.hidden + self.inner))

    def cache_bytes(self, size: int = 2) -> int:
        """Keys and values of one token, at ``size`` bytes a number."""
        return 2 * self.layers * self.key_values * size

    def flops(self, tokens: float, context: float, logits: float | None = None) -> float:
        """Floating-point operations of a forward pass.

        Args:
            tokens: that go through the layers. ``context``: tokens that each of them attends to, on average.
            logits: tokens that meet the vocabulary; None: all.
        """
        attention = 4 * self.layers * self.queries * context
        head = 2 * self.vocabulary * self.hidden * (tokens if logits is None else logits)
        return tokens * (2 * self.linear_parameters + attention) + head


_QWEN25 = {"biases": True}
_QWEN3 = {"head_norms": True}

SHAPES: dict[str, Shape] = {
    "Qwen2.5-0.5B": Shape(24, 896, 4864, 14, 2, 64, 151936, tied=True, **_QWEN25),
    "Qwen2.5-1.5B": Shape(28, 1536, 8960, 12, 2, 128, 151936, tied=True, **_QWEN25),
    "Qwen2.5-3B": Shape(36, 2048, 11008, 16, 2, 128, 151936, tied=True, **_QWEN25),
    "Qwen2.5-7B": Shape(28, 3584, 18944, 28, 4, 128, 152064, **_QWEN25),
    "Qwen2.5-14B": Shape(48, 5120, 13824, 40, 8, 128, 152064, **_QWEN25),
    "Qwen2.5-32B": Shape(64, 5120, 27648, 40, 8, 128, 152064, **_QWEN25),
    "Qwen2.5-72B": Shape(80, 8192, 29568, 64, 8, 128, 152064, **_QWEN25),
    "Qwen3-0.6B": Shape(28, 1024, 3072, 16, 8, 128, 151936, tied=True, **_QWEN3),
    "Qwen3-1.7B": Shape(28, 2048, 6144, 16, 8, 128, 151936, tied=True, **_QWEN3),
    "Qwen3-4B": Shape(36, 2560, 9728, 32, 8, 128, 151936, tied=True, **_QWEN3),
    "Qwen3-8B": Shape(36, 4096, 12288, 32, 8, 128, 151936, **_QWEN3),
    "Qwen3-14B": Shape(40, 5120, 17408, 40, 8, 128, 151936, **_QWEN3),
    "Llama-3.2-1B": Shape(16, 2048, 8192, 32, 8, 64, 128256, tied=True),
    "Llama-3.2-3B": Shape(28, 3072, 8192, 24, 8, 128, 128256, tied=True),
    "Llama-3.1-8B": Shape(32, 4096, 14336, 32, 8, 128, 128256),
    "Llama-3.1-70B": Shape(80, 8192, 28672, 64, 8, 128, 128256),
    "SmolLM2-135M": Shape(30, 576, 1536, 9, 3, 64, 49152, tied=True),
    "SmolLM2-360M": Shape(32, 960, 2560, 15, 5, 64, 49152, tied=True),
    "SmolLM2-1.7B": Shape(24, 2048, 8192, 32, 32, 64, 49152, tied=True),
}
"""Facts of published models (their ``config.json``), so that planning needs no network."""


def find_shape(model: str) -> tuple[str, Shape]:
    """The shape of a model: a folder with a ``config.json``, or a name of :data:`SHAPES` as people write it.

    ``Qwen/Qwen2.5-3B-Instruct`` and ``qwen2.5-3b`` are both Qwen2.5-3B: fine-tuned models keep their base's shape.

    Raises:
        UserError: neither, or a model of another kind than :class:`Shape`.
    """
    config = Path(model) / "config.json"
    if config.is_file():
        try:
            return model, shape_of_config(json.loads(config.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{config}: no shape can be read ({error!r}); name a folder with a decoder") from None
    if Path(model).is_dir():
        raise UserError(f"{model}: no config.json in this folder; name a folder that save_pretrained wrote")
    known = {name.lower(): name for name in SHAPES}
    written = model.rsplit("/", 1)[-1].lower().removeprefix("meta-")
    for ending in ("-instruct", "-base", "-it", "-chat"):
        written = written.removesuffix(ending)
    if written in known:
        return known[written], SHAPES[known[written]]
    near = difflib.get_close_matches(written, known, n=1, cutoff=0.5)
    guess = f"; did you mean {known[near[0]]}?" if near else ""
    raise UserError(
        f"{model}: neither a folder with a config.json nor a model whose shape is known ({', '.join(SHAPES)}){guess}"
    )


def shape_of_config(config: dict[str, Any]) -> Shape:
    """The shape that a ``config.json`` describes.

    Raises:
        UserError: a mixture of experts, whose costs are others.
        KeyError: a number is missing.
    """
    config = {**config, **config.get("text_config", {})}
    if any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts")):
        raise UserError("a mixture of experts can't be planned: its costs are others than those of a dense model")
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    kind = str(config.get("model_type", ""))
    return Shape(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        inner=int(config["intermediate_size"]),
        heads=heads,
        key_value_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or hidden // heads),
        vocabulary=int(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", kind in _TIED_UNLESS_SAID)),
        biases=kind == "qwen2",
        head_norms=kind == "qwen3",
    )


_TIED_UNLESS_SAID = ("gemma", "gemma2", "gemma3_text")

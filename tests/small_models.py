"""Options of a small model of each family, which the tests vary, and what it may read."""

import torch
from torch import Tensor

from translate.attention.masks import padding_mask
from translate.vocabulary import PAD

RNN = {
    "family": "rnn", "cell": "lstm", "embedding_size": 12, "hidden_size": 16,
    "encoder_size": None, "encoder_layers": 2, "decoder_layers": 2, "attention": "additive",
    "attention_size": 10, "local_score": "general", "window": 2, "coverage": "none",
    "max_fertility": 2.0, "query": "previous", "input_feeding": False, "bridge": "linear",
    "tied_embeddings": "decoder", "dropout": 0.1,
}  # fmt: skip
TRANSFORMER = {
    "family": "transformer", "d_model": 16, "num_heads": 4, "num_kv_heads": 4, "d_v": None,
    "encoder_layers": 2, "decoder_layers": 2, "d_ff": 32, "activation": "relu", "norm": "pre",
    "normalization": "layer", "positions": "sinusoidal", "max_positions": 64, "max_distance": 3,
    "self_attention": "full", "window": 5, "stride": 4, "summary": 2, "tied_embeddings": "all",
    "dropout": 0.1, "attention_dropout": 0.1, "feed_forward_dropout": 0.1, "flex_attention": False,
    "layer_drop": 0.0,
}  # fmt: skip
CONVOLUTIONAL = {
    "family": "convolutional", "embedding_size": 12, "hidden_size": 16, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_width": 3, "decoder_width": 3, "max_positions": 64,
    "tied_embeddings": "all", "dropout": 0.1,
}  # fmt: skip
# one of each way to remember what was read
REMEMBERING = {
    "transformer": TRANSFORMER,
    "rotary-grouped": TRANSFORMER | {"positions": "rotary", "num_kv_heads": 2},
    "learned": TRANSFORMER | {"positions": "learned"},
    "relative": TRANSFORMER | {"positions": "relative"},
    "alibi": TRANSFORMER | {"positions": "alibi"},
    "window": TRANSFORMER | {"self_attention": "sliding_window"},
    "strided": TRANSFORMER | {"self_attention": "strided"},
    "linear": TRANSFORMER | {"self_attention": "linear"},
    "rnn": RNN,
    "rnn-feeding": RNN | {"input_feeding": True, "cell": "gru"},
    "rnn-local-p": RNN | {"query": "current", "attention": "local_p"},
    "rnn-coverage": RNN | {"coverage": "linguistic"},
    "convolutional": CONVOLUTIONAL,
}


def sentences(pieces: int, *lengths: int) -> tuple[Tensor, Tensor]:
    """Random padded sentences of a vocabulary of so many pieces, and their mask."""
    generator = torch.Generator().manual_seed(0)
    mask = padding_mask(torch.tensor(lengths), max(lengths))
    ids = torch.randint(4, pieces, mask.shape, generator=generator)
    return ids.masked_fill(~mask, PAD), mask

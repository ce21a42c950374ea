"""Options of a small model of each family, which the tests vary, and what it may read."""

from typing import Any

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
LUONG = {"query": "current", "attention": "general"}
# one of each way to remember what was read; a new family stands here
REMEMBERING: dict[str, dict[str, Any]] = {
    "transformer": TRANSFORMER,
    "transformer-rotary-grouped": TRANSFORMER
    | {"positions": "rotary", "num_kv_heads": 2, "activation": "swiglu"},
    "transformer-learned": TRANSFORMER | {"positions": "learned", "tied_embeddings": "none"},
    "transformer-relative": TRANSFORMER | {"positions": "relative"},
    "transformer-alibi": TRANSFORMER | {"positions": "alibi"},
    "transformer-window": TRANSFORMER | {"self_attention": "sliding_window"},
    "transformer-strided": TRANSFORMER | {"self_attention": "strided"},
    "transformer-linear": TRANSFORMER | {"self_attention": "linear"},
    "rnn-additive": RNN,
    "rnn-additive-feeding": RNN | {"input_feeding": True, "cell": "gru"},
    "rnn-local-p": RNN | LUONG | {"attention": "local_p"},
    "rnn-coverage": RNN | {"coverage": "linguistic"},
    "convolutional": CONVOLUTIONAL,
}

MODELS: dict[str, dict[str, Any]] = REMEMBERING | {
    "rnn-none": RNN | LUONG | {"attention": "none"},
    "rnn-additive-gru": RNN | {"cell": "gru", "bridge": "none"},
    "rnn-additive-wide-encoder": RNN | {"encoder_size": 20, "cell": "gru"},
    "rnn-general": RNN | LUONG,
    "rnn-general-narrow-encoder": RNN | LUONG | {"encoder_size": 10, "input_feeding": True},
    "rnn-general-feeding": RNN | LUONG | {"input_feeding": True},
    "rnn-dot-gru": RNN | LUONG | {"attention": "dot", "cell": "gru"},
    "rnn-scaled-dot": RNN | LUONG | {"attention": "scaled_dot"},
    "rnn-concat": RNN | LUONG | {"attention": "concat", "decoder_layers": 1},
    "rnn-projected": RNN | LUONG | {"attention": "projected"},
    "rnn-projected-previous-feeding": RNN | {"attention": "projected", "input_feeding": True},
    "rnn-local-m": RNN | LUONG | {"attention": "local_m", "local_score": "dot"},
    "rnn-local-m-previous": RNN | {"attention": "local_m", "local_score": "additive"},
    "rnn-local-p-feeding": RNN | LUONG | {"attention": "local_p", "input_feeding": True},
    "rnn-coverage-concat-current": RNN
    | {"coverage": "linguistic", "attention": "concat", "query": "current"},
    "rnn-coverage-local-p": RNN
    | {"coverage": "linguistic", "attention": "local_p", "local_score": "additive"},
    "transformer-post": TRANSFORMER | {"norm": "post", "activation": "gelu"},
    "transformer-unordered": TRANSFORMER | {"positions": "none", "num_kv_heads": 1},
    "transformer-values": TRANSFORMER | {"d_v": 7},
    "transformer-rms": TRANSFORMER | {"normalization": "rms"},
    "transformer-alibi-grouped": TRANSFORMER | {"positions": "alibi", "num_kv_heads": 2},
    "transformer-window-wide": TRANSFORMER | {"self_attention": "sliding_window", "window": 18},
    "transformer-window-relative": TRANSFORMER
    | {"self_attention": "sliding_window", "positions": "relative", "num_kv_heads": 2},
    "transformer-window-rotary": TRANSFORMER
    | {"self_attention": "sliding_window", "positions": "rotary"},
    "transformer-fixed-alibi": TRANSFORMER | {"self_attention": "fixed", "positions": "alibi"},
    "transformer-linear-grouped": TRANSFORMER | {"self_attention": "linear", "num_kv_heads": 2},
    "transformer-fast-weights": TRANSFORMER | {"self_attention": "fast_weights"},
    "convolutional-wide": CONVOLUTIONAL
    | {"encoder_width": 5, "decoder_width": 4, "decoder_layers": 3, "tied_embeddings": "none"},
    "convolutional-narrow": CONVOLUTIONAL | {"encoder_width": 1, "decoder_width": 1},
}


def sentences(pieces: int, *lengths: int) -> tuple[Tensor, Tensor]:
    """Random padded sentences of a vocabulary of so many pieces, and their mask."""
    generator = torch.Generator().manual_seed(0)
    mask = padding_mask(torch.tensor(lengths), max(lengths))
    ids = torch.randint(4, pieces, mask.shape, generator=generator)
    return ids.masked_fill(~mask, PAD), mask

"""A Transformer in the format of CTranslate2, an engine in C++ (pip install ctranslate2).

Its specification has a place for each weight; `problems` names the options without a place.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from translate.attention.multi_head import CrossAttention, SelfAttention
from translate.data.tokenizer import Tokenizer, Tokenizers
from translate.errors import UserError
from translate.inference import Quantization
from translate.models.transformer import FeedForward, Transformer
from translate.wording import install

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

POSITIONS = 4096  # rows of the table that stands for a formula: no translation is longer
EPSILON = {"layer": nn.LayerNorm(1).eps, "rms": torch.finfo(torch.float32).eps}


def imported() -> Any:
    """Import the module `ctranslate2`.

    Raises:
        UserError: it is not installed.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise UserError(
            f"CTranslate2 is not installed ({error}): {install('ctranslate2')}"
        ) from error
    return ctranslate2


def problems(family: str, options: Mapping[str, Any]) -> list[str]:
    """List why CTranslate2 cannot carry a model, one line each.

    It carries both norms, before or after; every activation; grouped heads (written out once a
    head); and added, rotary, relative or no positions.
    """
    if family != "transformer":
        return [f"model.family = {family}: CTranslate2 only supports Transformers"]
    lines = []
    if options["positions"] == "alibi":
        lines.append("model.positions = alibi: CTranslate2 only supports it in decoders")
    d_k, d_v = options["d_model"] // options["num_heads"], options["d_v"]
    if d_v not in (None, d_k):
        lines.append(f"model.d_v = {d_v}: in CTranslate2, values must have the size of keys, {d_k}")
    if options["self_attention"] != "full":
        lines.append(
            f"model.self_attention = {options['self_attention']}: in CTranslate2, every token of "
            "a translation attends to all tokens before it"
        )
    return lines


def convert(
    model: Transformer,
    options: Mapping[str, Any],
    tokenizers: Tokenizers,
    *,
    quantization: Quantization,
    folder: Path,
) -> None:
    """Write CTranslate2's files into an empty folder.

    `options` are those the model was built from, and `problems` finds none in them.
    """
    # a copy, for CTranslate2 quantises in the memory it is given
    spec = _spec(deepcopy(model).float(), options)
    spec.register_source_vocabulary(vocabulary(tokenizers.source))
    spec.register_target_vocabulary(vocabulary(tokenizers.target))
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = "<s>"
    spec.config.layer_norm_epsilon = EPSILON[options["normalization"]]
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return the pieces by their ids: CTranslate2 reads and writes them."""
    return tokenizer.pieces(range(len(tokenizer)))


def _spec(model: Transformer, options: Mapping[str, Any]) -> TransformerSpec:
    specs = imported().specs
    names = {"relu": "RELU", "gelu": "GELU", "swiglu": "SWISH"}  # of the gate
    heads, positions = options["num_heads"], options["positions"]
    common = {
        "pre_norm": options["norm"] == "pre",
        "activation": specs.Activation[names[options["activation"]]],
        "ffn_glu": options["activation"] == "swiglu",
        "rms_norm": options["normalization"] == "rms",
        "relative_position": positions == "relative",
        "rotary_dim": options["d_model"] // heads if positions == "rotary" else None,
    }
    encoder = specs.TransformerEncoderSpec(len(model.encoder_layers), heads, **common)
    decoder = specs.TransformerDecoderSpec(len(model.decoder_layers), heads, **common)
    encoder.embeddings[0].weight = model.source_embedding.weight.detach()
    decoder.embeddings.weight = model.target_embedding.weight.detach()
    _set_linear(decoder.projection, model.output)
    for spec, added in ((encoder, model.source_positions), (decoder, model.target_positions)):
        if hasattr(spec, "position_encodings"):
            spec.position_encodings.encodings = _table(added, options["d_model"])
    if common["pre_norm"]:
        _set_norm(encoder.layer_norm, model.encoder_norm)
        _set_norm(decoder.layer_norm, model.decoder_norm)
    for spec, layer in zip(encoder.layer, model.encoder_layers, strict=True):
        attention, feed_forward = layer.residuals
        _set_self_attention(spec.self_attention, layer.self_attention, attention.norm)
        _set_feed_forward(spec.ffn, layer.feed_forward, feed_forward.norm)
    for spec, block in zip(decoder.layer, model.decoder_layers, strict=True):
        attention, cross, feed_forward = block.residuals
        _set_self_attention(spec.self_attention, block.self_attention, attention.norm)
        _set_cross_attention(spec.attention, block.cross_attention, cross.norm)
        _set_feed_forward(spec.ffn, block.feed_forward, feed_forward.norm)
    return specs.TransformerSpec(encoder, decoder)


def _table(added: nn.Module, d_model: int) -> Float[Tensor, "T D"]:
    """Return the vectors added at each position, read off the module itself."""
    length = next((len(table) for table in added.parameters()), POSITIONS)
    return added(torch.zeros(1, length, d_model))[0].detach()  # type: ignore[no-any-return]


def _set_self_attention(spec: Any, attention: SelfAttention, norm: nn.Module) -> None:
    heads, groups = attention.num_heads, attention.num_kv_heads
    fused, output = spec.linear
    _set_linear(fused, attention.qkv, rows=_ungrouped(heads, groups, attention.d_k, "qkv"))
    _set_linear(output, attention.output)
    _set_norm(spec.layer_norm, norm)
    if hasattr(spec, "relative_position_keys"):
        keys = attention.pattern.get_parameter("relation.w").detach()
        spec.relative_position_keys = keys
        # the values' part of Shaw et al. 2018, which our model leaves out
        spec.relative_position_values = torch.zeros_like(keys)


def _set_cross_attention(spec: Any, attention: CrossAttention, norm: nn.Module) -> None:
    heads, groups = attention.num_heads, attention.num_kv_heads
    query, fused, output = spec.linear
    _set_linear(query, attention.query)
    d_k = attention.sizes[0] // groups
    _set_linear(fused, attention.key_value, rows=_ungrouped(heads, groups, d_k, "kv"))
    _set_linear(output, attention.output)
    _set_norm(spec.layer_norm, norm)


def _ungrouped(heads: int, groups: int, d_k: int, parts: str) -> Int[Tensor, "R"]:
    """Return the rows of a fused projection, each key and value head once for every head it serves.

    CTranslate2 groups heads in decoders without a source only (`num_heads_kv`).
    """
    counts = {"q": heads, "k": groups, "v": groups}
    rows, start = [], 0
    for part in parts:
        count = counts[part]
        indices = torch.arange(start, start + count * d_k).view(count, d_k)
        rows.append(indices.repeat_interleave(heads // count, dim=0).flatten())
        start += count * d_k
    return torch.cat(rows)


def _set_feed_forward(spec: Any, feed_forward: FeedForward, norm: nn.Module) -> None:
    if hasattr(spec, "linear_0_noact"):  # SwiGLU: the gate comes first
        gate, value = torch.arange(feed_forward.inner.out_features).chunk(2)
        _set_linear(spec.linear_0, feed_forward.inner, rows=gate)
        _set_linear(spec.linear_0_noact, feed_forward.inner, rows=value)
    else:
        _set_linear(spec.linear_0, feed_forward.inner)
    _set_linear(spec.linear_1, feed_forward.outer)
    _set_norm(spec.layer_norm, norm)


def _set_linear(spec: Any, layer: nn.Linear, *, rows: Int[Tensor, "R"] | None = None) -> None:
    """Set weight and bias, or these rows of them."""
    spec.weight = layer.weight.detach() if rows is None else layer.weight.detach()[rows]
    if layer.bias is not None:
        spec.bias = layer.bias.detach() if rows is None else layer.bias.detach()[rows]


def _set_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = norm.get_parameter("weight").detach()
    if hasattr(spec, "beta"):
        spec.beta = norm.get_parameter("bias").detach()

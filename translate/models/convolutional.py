"""The convolutional encoder-decoder (Gehring et al. 2017): gated windows of words, and attention.

Equations and sections are that paper's. E is the size of embeddings, D that of hidden states, k the
width of a window. Two devices made for plain gradient descent are left out, since AdamW's step does
not depend on the scale of a gradient: weight normalisation (with it, our toy experiment learned no
faster) and gradients of the encoder divided by the number of attentions (which would matter with
`optimizer=sgd`, or where a tied embedding gets gradients of the decoder too).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from translate.attention.cache import Places
from translate.attention.dot_product import softmax_where
from translate.attention.positions import LearnedPositions
from translate.linear import Linear
from translate.models.seq2seq import (
    TIED,
    Decoded,
    Dropout,
    Layers,
    Memory,
    ModelConfig,
    Rate,
    RowState,
    Seq2Seq,
    Size,
    Stack,
    Step,
    Tied,
    tie,
)

Weighted = TypeVar("Weighted", nn.Linear, nn.Conv1d)


class ConvolutionalConfig(ModelConfig):
    """The options of a convolutional model."""

    family: Literal["convolutional"] = Field(description="gated convolutions with attention")
    embedding_size: Size = Field(description="size of a word's vector, before and after the layers")
    hidden_size: Size = Field(description="size of a word's vector inside the layers")
    encoder_layers: Layers = Field(description="each sees encoder_width - 1 words more")
    decoder_layers: Layers = Field(description="each attends to the source")
    encoder_width: Size = Field(description="words in a window, an odd number")
    decoder_width: Size = Field(description="words in a window, the newest last")
    max_positions: Size = Field(description="the most pieces of a sentence, of either side")
    tied_embeddings: Tied = Field(description=TIED)
    dropout: Rate = Field(
        description="rate of dropout of embeddings, of the inputs of convolutions and of the "
        "decoder's output"
    )

    def contradictions(self) -> Iterator[str]:
        if self.encoder_width % 2 == 0:
            yield (
                f"a window of {self.encoder_width} words has no middle (model.encoder_width): "
                "make it odd"
            )


def initialised(layer: Weighted, gain: float = 1.0) -> Weighted:
    """W ~ N(0, gain / n) for n inputs of a unit, b = 0 (section 3.5).

    The gain is 4 before a gated linear unit, times the share of the inputs that dropout keeps: then
    the outputs vary as much as the inputs.
    """
    nn.init.normal_(layer.weight, std=math.sqrt(gain / layer.weight[0].numel()))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def residual(x: Float[Tensor, "B T D"], change: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """x + change, scaled to vary as much as either of them (section 3.4)."""
    return (x + change) * math.sqrt(0.5)


class GatedConvolution(nn.Module):
    """v([A B]) = A ⊗ σ(B), where [A B] = W [x_t … x_{t+k-1}] + b (section 3.2)."""

    def __init__(self, *, size: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution = initialised(nn.Conv1d(size, 2 * size, width), gain=4 * (1 - dropout))

    def forward(self, x: Float[Tensor, "B R D"]) -> Float[Tensor, "B T D"]:
        """One output a window: k - 1 fewer than inputs."""
        windows = self.convolution(self.dropout(x).transpose(1, 2))  # (B, 2·D, T)
        return F.glu(windows, dim=1).transpose(1, 2)


class GatedEncoderLayer(nn.Module):
    """h_i = v(W [h_{i-k/2} … h_{i+k/2}] + b) + h_i, as many words to the left as to the right."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(
            size=config.hidden_size, width=config.encoder_width, dropout=config.dropout
        )
        self.reach = config.encoder_width // 2

    def forward(
        self, h: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        # the padding of a batch is as empty as what lies beyond the ends of a sentence alone
        words = h.masked_fill(~mask[:, :, None], 0.0)
        return residual(h, self.convolution(F.pad(words, (0, 0, self.reach, self.reach))))


@dataclass(frozen=True)
class ConvolutionalMemory(Memory):
    """The encoder's outputs z are the keys of every decoder layer's attention."""

    values: Float[Tensor, "B S E"]  # z + e

    def at(self, sentences: Int[Tensor, "C"]) -> ConvolutionalMemory:
        return ConvolutionalMemory(
            self.states.index_select(0, sentences),
            self.mask.index_select(0, sentences),
            self.values.index_select(0, sentences),
        )

    def attend(
        self, d: Float[Tensor, "R T E"], places: Places
    ) -> tuple[Float[Tensor, "R T E"], Float[Tensor, "R T S"]]:
        """a_ij = softmax_j(d_i · z_j),  c_i = Σ_j a_ij (z_j + e_j)  (eq. 2)."""
        queries = places.spread(d).flatten(1, 2)  # (B, n·T, E)
        a = softmax_where(queries @ self.states.transpose(1, 2), self.mask[:, None])
        c = a @ self.values
        # m √(1/m): a mean of m vectors varies m times less than they do (section 3.4)
        c = c * self.mask.sum(1).to(c.dtype).sqrt()[:, None, None]
        c = c.reshape(-1, places.beam, *d.shape[1:])
        a = a.reshape(-1, places.beam, d.shape[1], a.shape[2])
        return places.rows(c), places.rows(a)


class GatedDecoderLayer(nn.Module):
    """A convolution over the target so far, then attention over the source (figure 1)."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(
            size=config.hidden_size, width=config.decoder_width, dropout=config.dropout
        )
        self.query = initialised(nn.Linear(config.hidden_size, config.embedding_size))
        self.context = initialised(nn.Linear(config.embedding_size, config.hidden_size))

    def forward(
        self,
        h: Float[Tensor, "R T D"],
        past: Float[Tensor, "R P D"],
        g: Float[Tensor, "R T E"],
        memory: ConvolutionalMemory,
        places: Places,
    ) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "R P D"], Float[Tensor, "R T S"]]:
        """Outputs, the past of the next token, and the weights of the attention.

        `past` are the k - 1 inputs before `h`, `g` the embeddings of the tokens that are read.
        """
        inputs = torch.cat((past, h), dim=1)
        h = residual(h, self.convolution(inputs))
        c, a = memory.attend(self.query(h) + g, places)  # d = W h + b + g (eq. 1)
        return residual(h, self.context(c)), inputs[:, h.shape[1] :], a


@dataclass(frozen=True)
class ConvolutionalState(RowState):
    """The last k - 1 inputs of every decoder layer, and how many tokens were read."""

    memory: ConvolutionalMemory
    pasts: list[Float[Tensor, "N P D"]]

    def select(self, hypotheses: Int[Tensor, "M"]) -> ConvolutionalState:
        return replace(self, pasts=[past.index_select(0, hypotheses) for past in self.pasts])

    @property
    def beam(self) -> int:
        return self.pasts[0].shape[0] // self.memory.mask.shape[0]


class Convolutional(Seq2Seq):
    """Gated convolutions read the source and, causally, the target; every decoder layer attends.

    A layer widens what a state has seen by k - 1 words, so that all positions are computed at once
    and distant words meet after few layers.
    """

    Config: ClassVar = ConvolutionalConfig
    parallel = True

    def __init__(
        self, config: ConvolutionalConfig, *, source_vocab_size: int, target_vocab_size: int
    ) -> None:
        super().__init__(source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)
        embedding_size, hidden_size = config.embedding_size, config.hidden_size
        self.source_embedding = nn.Embedding(source_vocab_size, embedding_size)
        self.target_embedding = nn.Embedding(target_vocab_size, embedding_size)
        self.source_positions, self.target_positions = (
            LearnedPositions(d_model=embedding_size, max_positions=config.max_positions)
            for _ in range(2)
        )
        self.max_length = config.max_positions
        kept = 1 - config.dropout
        self.encoder_in, self.decoder_in = (
            initialised(nn.Linear(embedding_size, hidden_size), gain=kept) for _ in range(2)
        )
        self.encoder_layers: Stack[GatedEncoderLayer] = Stack(
            GatedEncoderLayer(config) for _ in range(config.encoder_layers)
        )
        self.decoder_layers: Stack[GatedDecoderLayer] = Stack(
            GatedDecoderLayer(config) for _ in range(config.decoder_layers)
        )
        self.encoder_out, self.decoder_out = (
            initialised(nn.Linear(hidden_size, embedding_size)) for _ in range(2)
        )
        self.output = initialised(Linear(embedding_size, target_vocab_size), gain=kept)
        self.dropout = Dropout(config.dropout)
        self.hidden_size, self.past_words = hidden_size, config.decoder_width - 1
        for name, parameter in self.named_parameters():
            if "embedding" in name or "positions" in name:
                nn.init.normal_(parameter, std=0.1)  # section 3.5
        tie(self, config.tied_embeddings)

    def encode(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]
    ) -> ConvolutionalMemory:
        e = self.dropout(self.source_positions(self.source_embedding(source)))
        h = self.encoder_in(e)
        for layer in self.encoder_layers:
            h = self.through(layer, h, source_mask)
        z = self.encoder_out(h)
        return ConvolutionalMemory(z, source_mask, z + e)

    def start(
        self,
        memory: ConvolutionalMemory,  # type: ignore[override]
    ) -> ConvolutionalState:
        # before the sentence there is nothing: zero vectors, as many as a window reaches back
        nothing = memory.states.new_zeros(memory.mask.shape[0], self.past_words, self.hidden_size)
        return ConvolutionalState(memory, 0, [nothing] * len(self.decoder_layers))

    def decode(
        self,
        target_in: Int[Tensor, "B T"],
        memory: ConvolutionalMemory,  # type: ignore[override]
        *,
        need_alignment: bool = False,
    ) -> Decoded:
        places = Places.of(target_in.shape[0], 1)
        hidden, _, weights = self._advance(target_in, self.start(memory), places)
        alignment = torch.stack(weights, dim=1)[:, :, None] if need_alignment else None
        return Decoded(hidden, alignment)  # (B, L, 1, T, S)

    def decode_step(
        self,
        tokens: Int[Tensor, "R"],
        state: ConvolutionalState,  # type: ignore[override]  # each family steps its own state
        *,
        live: Int[Tensor, "R"] | None = None,
        need_alignment: bool = False,
    ) -> Step:
        places = Places.of(state.memory.mask.shape[0], state.beam, live)
        hidden, after, weights = self._advance(tokens[:, None], state.rows(places), places)
        alignment = None
        if need_alignment:
            alignment = places.spread(torch.stack(weights, dim=1)).flatten(0, 1)  # (N, L, 1, S)
        return Step(hidden[:, 0], after.spread(places), alignment)

    def _advance(
        self, tokens: Int[Tensor, "R T"], state: ConvolutionalState, places: Places
    ) -> tuple[Float[Tensor, "R T E"], ConvolutionalState, list[Float[Tensor, "R T S"]]]:
        """Read T more tokens in each row of the state; the weights are those of each layer."""
        g = self.dropout(self.target_positions(self.target_embedding(tokens), start=state.length))
        h = self.decoder_in(g)
        pasts, weights = [], []
        for layer, past in zip(self.decoder_layers, state.pasts, strict=True):
            h, past, a = self.through(layer, h, past, g, state.memory, places)
            pasts.append(past)
            weights.append(a)
        hidden = self.dropout(self.decoder_out(h))
        after = replace(state, pasts=pasts, length=state.length + tokens.shape[1])
        return hidden, after, weights

"""Recurrent encoder-decoders: a fixed vector, Bahdanau's attention, Luong's attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from translate.attention.cache import Places
from translate.attention.scores import LOCAL, SCORES, Alignment, GlobalAlignment, LinguisticCoverage
from translate.config import OnlyWith
from translate.linear import Linear
from translate.models.recurrence import BidirectionalEncoder, RecurrentState, StepwiseRecurrence
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


@dataclass(frozen=True)
class RNNMemory(Memory):
    """The encoder's states, what score and coverage need of them, and a summary per layer."""

    keys: Float[Tensor, "B S A"] | None
    fertility: Float[Tensor, "B S"] | None
    summary: Float[Tensor, "L B D"]

    def at(self, sentences: Int[Tensor, "C"]) -> RNNMemory:
        return RNNMemory(
            self.states.index_select(0, sentences),
            self.mask.index_select(0, sentences),
            _rows(self.keys, sentences),
            _rows(self.fertility, sentences),
            self.summary.index_select(1, sentences),
        )


@dataclass(frozen=True)
class RNNState(RowState):
    """The memory of every hypothesis before it reads target word t."""

    memory: RNNMemory
    recurrent: RecurrentState  # s_{t-1}: each (L, N, D)
    attentional: Float[Tensor, "N E"] | None  # h̃_{t-1}, for input feeding
    attended: Float[Tensor, "N S"] | None  # Σ_{k<t} α_k, for coverage

    def select(self, hypotheses: Int[Tensor, "M"]) -> RNNState:
        return replace(
            self,
            recurrent=tuple(part.index_select(1, hypotheses) for part in self.recurrent),
            attentional=_rows(self.attentional, hypotheses),
            attended=_rows(self.attended, hypotheses),
        )

    @property
    def beam(self) -> int:
        return self.recurrent[0].shape[1] // self.memory.mask.shape[0]


def _rows(
    part: Float[Tensor, "N *rest"] | None, hypotheses: Int[Tensor, "M"]
) -> Float[Tensor, "M *rest"] | None:
    return None if part is None else part.index_select(0, hypotheses)


Score = Literal["additive", "dot", "scaled_dot", "general", "concat", "projected"]


class RNNConfig(ModelConfig):
    """The options of a recurrent model."""

    since: ClassVar = {"encoder_size": None}

    family: Literal["rnn"] = Field(description="a recurrent encoder and decoder")
    cell: Literal["gru", "lstm"] = Field(description="the cell of all recurrences")
    embedding_size: Size = Field(description="size of a word's vector")
    hidden_size: Size = Field(description="size of a state")
    encoder_size: Size | None = Field(
        description="size of a state of the encoder, whose two directions have half each; null: "
        "hidden_size"
    )
    encoder_layers: Layers = Field(description="layers of both directions")
    decoder_layers: Layers = Field(description="no more than the encoder's")
    attention: Literal["none", "local_m", "local_p", Score] = Field(
        description="none, or the score of the attention over the source; local_m and local_p "
        "look at a window"
    )
    attention_size: Annotated[
        Size, OnlyWith("attention", "additive", "concat", "projected", *LOCAL)
    ] = Field(
        description="additive, concat and projected: size of the space where query and key meet"
    )
    local_score: Annotated[Score, OnlyWith("attention", "local_p", "local_m")] = Field(
        description="local_m and local_p: the score inside the window"
    )
    window: Annotated[Size, OnlyWith("attention", "local_p", "local_m")] = Field(
        description="local_m and local_p: words to either side of the middle that are seen"
    )
    coverage: Literal["none", "linguistic"] = Field(
        description="linguistic: the score hears what was looked at before (additive, concat)"
    )
    max_fertility: Annotated[PositiveFloat, OnlyWith("coverage", "linguistic")] = Field(
        description="coverage: the most target words that a source word stands for"
    )
    query: Annotated[Literal["previous", "current"], OnlyWith("attention", *SCORES, *LOCAL)] = (
        Field(description="previous: s_{t-1}, before the step; current: s_t, after it")
    )
    input_feeding: bool = Field(
        description="true: the attentional vector of a step enters the next"
    )
    bridge: Literal["none", "linear"] = Field(
        description="s_0 from c, the last states of the encoder's directions: linear: tanh(W c); "
        "none: c"
    )
    tied_embeddings: Tied = Field(description=TIED)
    dropout: Rate = Field(
        description="rate of dropout of embeddings, between layers, and of the decoder's output"
    )

    @property
    def memory_size(self) -> int:
        """The size of a state of the encoder."""
        return self.encoder_size or self.hidden_size

    def contradictions(self) -> Iterator[str]:
        if self.memory_size % 2:
            key = "hidden_size" if self.encoder_size is None else "encoder_size"
            yield (
                f"{key} {self.memory_size} cannot be halved between the encoder's two directions "
                f"(model.{key}): make it even"
            )
        if self.encoder_layers < self.decoder_layers:
            yield (
                f"{self.decoder_layers} decoder layers need as many encoder layers to start from, "
                f"but there are {self.encoder_layers} (model.encoder_layers)"
            )
        if self.attention == "none" and self.input_feeding:
            yield (
                "input feeding passes on the attentional vector, but model.attention=none has "
                "none: set model.input_feeding=false"
            )
        key = "local_score" if self.attention in LOCAL else "attention"
        score = getattr(self, key)
        if self.memory_size != self.hidden_size:
            sizes = f"{self.memory_size} numbers, but one of the decoder {self.hidden_size}"
            unequal = f"a state of the encoder has {sizes} (model.encoder_size, model.hidden_size)"
            if score in ("dot", "scaled_dot"):
                yield (
                    f"{unequal}: model.{key}={score} multiplies them one by one; set it to "
                    "general, or model.encoder_size=null"
                )
            if self.bridge == "none":
                yield (
                    f"{unequal}: model.bridge=none takes one for the other; set it to linear, or "
                    "model.encoder_size=null"
                )
        if self.coverage != "none" and score not in ("additive", "concat"):
            yield (
                "coverage is a term inside the tanh of the additive score, but "
                f"model.{key}={score} has no such term (model.coverage): set "
                f"model.{key}=additive or concat, or model.coverage=none"
            )


class RNN(Seq2Seq):
    """A bidirectional encoder and a recurrent decoder.

    `attention=none` is the fixed context vector c of Cho et al. 2014, which every step reads: here
    the last state of both directions, [→h_S ; ←h_1]. `query=previous` asks with s_{t-1}
    before the step and feeds the context into it (Bahdanau et al. 2015); `query=current` asks with
    s_t after it (Luong et al. 2015). With `input_feeding` the attentional vector of the last step
    enters the next (Luong, section 3.3). `local_m` and `local_p` look at a window by `local_score`
    (Luong, section 3.2); `coverage` tells the score what was looked at before (Tu et al. 2016). All
    end in Luong's h̃_t (eq. 5), not in the maxout layer of Cho and Bahdanau.
    """

    Config: ClassVar = RNNConfig

    def __init__(
        self, config: RNNConfig, *, source_vocab_size: int, target_vocab_size: int
    ) -> None:
        super().__init__(source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)
        embedding_size, hidden_size = config.embedding_size, config.hidden_size
        memory_size, attention = config.memory_size, config.attention
        self.source_embedding = nn.Embedding(source_vocab_size, embedding_size)
        self.target_embedding = nn.Embedding(target_vocab_size, embedding_size)
        self.encoder = BidirectionalEncoder(
            cell=config.cell, input_size=embedding_size, hidden_size=memory_size,
            num_layers=config.encoder_layers, dropout=config.dropout,
        )  # fmt: skip
        self.bridge: Stack[Linear] = Stack(
            Linear(memory_size, hidden_size)
            for _ in range(config.decoder_layers if config.bridge == "linear" else 0)
        )
        self.align: Alignment = GlobalAlignment()
        score: str = attention
        if attention in LOCAL:
            self.align = LOCAL[attention](query_size=hidden_size, window=config.window)
            score = config.local_score
        self.score = None if score == "none" else SCORES[score](
            query_size=hidden_size, memory_size=memory_size, attention_size=config.attention_size
        )  # fmt: skip
        self.coverage = None if config.coverage == "none" else LinguisticCoverage(
            memory_size=memory_size, attention_size=config.attention_size,
            max_fertility=config.max_fertility,
        )  # fmt: skip
        self.query, self.input_feeding = config.query, config.input_feeding
        reads_context = attention == "none" or config.query == "previous"
        self.decoder = StepwiseRecurrence(
            cell=config.cell,
            input_size=embedding_size * (1 + config.input_feeding) + memory_size * reads_context,
            hidden_size=hidden_size, num_layers=config.decoder_layers, dropout=config.dropout,
        )  # fmt: skip
        # as wide as an embedding, so that the output can be tied to the embeddings
        self.sizes = [memory_size, hidden_size]  # of c_t and s_t
        self.W_c = Linear(memory_size + hidden_size, embedding_size, bias=False)
        self.output = Linear(embedding_size, target_vocab_size)
        self.dropout = Dropout(config.dropout)
        self._initialise()
        tie(self, config.tied_embeddings)

    def _initialise(self) -> None:
        """Orthogonal recurrences, gate by gate (Bahdanau et al. 2015, B.1).

        Other matrices have Xavier's weights, all gates of an input together as one matrix.
        An LSTM's forget gates start open (Jozefowicz et al. 2015), or little would reach back.
        """
        for name, parameter in self.named_parameters():
            if "embedding" in name:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            elif parameter.dim() < 2:
                nn.init.zeros_(parameter)
            elif "weight_hh" in name:
                for gate in torch.split(parameter.data, parameter.shape[1]):
                    nn.init.orthogonal_(gate)
            else:
                nn.init.xavier_uniform_(parameter)
        for layer in self.modules():
            if isinstance(layer, nn.LSTM):
                for *_, bias in layer.all_weights:
                    nn.init.ones_(bias.data.chunk(4)[1])  # PyTorch's gates: input, forget, …

    def _embed(
        self, embedding: nn.Embedding, tokens: Int[Tensor, "*rows"]
    ) -> Float[Tensor, "*rows E"]:
        """Embeddings times √E, of unit variance: where tied, the small matrix makes the logits."""
        return self.dropout(embedding(tokens) * embedding.embedding_dim**0.5)  # type: ignore[no-any-return]

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> RNNMemory:
        embedded = self._embed(self.source_embedding, source)
        states, summaries = self.encoder(embedded, source_mask)
        states = self.dropout(states)
        keys = None if self.score is None else self.score.keys(states)
        fertility = None if self.coverage is None else self.coverage.fertility(states)
        return RNNMemory(states, source_mask, keys, fertility, torch.stack(summaries))

    def start(self, memory: RNNMemory) -> RNNState:  # type: ignore[override]  # its own memory
        """s_0 = tanh(W_s c), or c = [→h_S ; ←h_1] itself without a bridge.

        As in Bahdanau et al. 2015, A.2.2, but of both directions' ends, not the backward one's.
        """
        hidden = memory.summary[-len(self.decoder.layers) :]
        if self.bridge:
            pairs = zip(self.bridge, hidden, strict=True)
            hidden = torch.stack([torch.tanh(linear(layer)) for linear, layer in pairs])
        hidden = hidden.to(memory.states.dtype)
        others = self.decoder.zeros(memory.states)[1:]  # an LSTM's cell starts empty
        nothing = None
        if self.input_feeding:
            nothing = hidden.new_zeros(hidden.shape[1], self.W_c.out_features)
        unseen = None
        if self.coverage is not None:
            # float32 at least: bf16 sums drift
            wide = torch.promote_types(hidden.dtype, torch.float32)
            unseen = hidden.new_zeros(memory.mask.shape, dtype=wide)
        return RNNState(memory, 0, (hidden, *others), nothing, unseen)

    def decode(
        self,
        target_in: Int[Tensor, "B T"],
        memory: RNNMemory,  # type: ignore[override]
        *,
        need_alignment: bool = False,
    ) -> Decoded:
        embedded = self._embed(self.target_embedding, target_in)
        state = self.start(memory)
        places = Places.of(embedded.shape[0], 1)
        at_once = embedded.shape[1] if self._whole_target_at_once else 1
        steps, rows = [], []
        for tokens in torch.split(embedded, at_once, dim=1):
            step, state, weights = self._advance(tokens, state, places)
            steps.append(step)
            if weights is not None:
                rows.append(weights)
        alignment = torch.cat(rows, dim=1)[:, None, None] if need_alignment and rows else None
        return Decoded(self._readout(torch.cat(steps, dim=1)), alignment)

    def decode_step(
        self,
        tokens: Int[Tensor, "R"],
        state: RNNState,  # type: ignore[override]  # each family steps its own state
        *,
        live: Int[Tensor, "R"] | None = None,
        need_alignment: bool = False,
    ) -> Step:
        places = Places.of(state.memory.mask.shape[0], state.beam, live)
        embedded = self._embed(self.target_embedding, tokens)[:, None]
        read, after, weights = self._advance(embedded, state.rows(places), places)
        alignment = None
        if need_alignment and weights is not None:
            alignment = places.spread(weights).flatten(0, 1)[:, None]
        return Step(self._readout(read)[:, 0], after.spread(places), alignment)

    @property
    def _whole_target_at_once(self) -> bool:
        """No step waits for what the attention found in the last one."""
        fed_back = self.query == "previous" or self.input_feeding or self.coverage is not None
        return self.score is None or not fed_back

    def _advance(
        self, embedded: Float[Tensor, "R T E"], state: RNNState, places: Places
    ) -> tuple[Float[Tensor, "R T F"], RNNState, Float[Tensor, "R T S"] | None]:
        """Read T tokens: one, where what the attention finds enters the recurrence.

        The rows of the state are those of the tokens. Returns what `_readout` takes: [c_t ; s_t],
        or with input feeding h̃_t.
        """
        inputs = [embedded]
        context = weights = None
        if self.score is None:
            context = self._fixed_context(embedded, state.memory, places)
            inputs.append(context)
        elif self.query == "previous":
            context, weights = self._attend(state.recurrent[0][-1][:, None], state, places)
            inputs.append(context)
        if state.attentional is not None:
            inputs.append(state.attentional[:, None])
        s, recurrent = self.decoder(torch.cat(inputs, dim=-1), state.recurrent)
        if context is None:
            context, weights = self._attend(s, state, places)
        read = torch.cat((context, s), dim=-1)
        if self.input_feeding:
            read = self._attentional(context, s)
        attended = state.attended
        if attended is not None and weights is not None:
            attended = attended + weights.sum(1)
        after = RNNState(
            state.memory,
            state.length + embedded.shape[1],
            recurrent,
            read[:, -1] if self.input_feeding else None,
            attended,
        )
        return read, after, weights

    def _attentional(
        self, context: Float[Tensor, "R T M"], s: Float[Tensor, "R T D"]
    ) -> Float[Tensor, "R T E"]:
        """Luong et al. 2015, eq. 5:  h̃_t = tanh(W_c [c_t ; s_t])"""
        both = torch.cat((context, self.dropout(s)), dim=-1)
        return self.dropout(torch.tanh(self.W_c(both)))  # type: ignore[no-any-return]

    def _readout(self, read: Float[Tensor, "R T F"]) -> Float[Tensor, "R T E"]:
        """h̃_t: with input feeding each step has made its own, else all are made at once here."""
        if self.input_feeding:
            return read
        return self._attentional(*torch.split(read, self.sizes, dim=-1))

    def _attend(
        self, query: Float[Tensor, "R T Q"], state: RNNState, places: Places
    ) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "R T S"]]:
        """c_t for each query; the hypotheses of a sentence ask one memory."""
        memory, keys = state.memory, state.memory.keys
        assert self.score is not None
        assert keys is not None
        by_hypothesis = places.spread(query)  # (B, n, T, Q)
        queries = by_hypothesis.flatten(1, 2)  # (B, n·T, Q)
        if self.coverage is None:
            scores = self.score(queries, keys)  # (B, n·T, S)
        else:  # T is 1, and each hypothesis has keys of its own
            assert state.attended is not None
            assert memory.fertility is not None
            attended = places.spread(state.attended).flatten(0, 1)  # (N, S)
            keys = self.coverage(keys, attended, memory.fertility)  # (N, S, A)
            scores = self.score(by_hypothesis.flatten(0, 1), keys).reshape(*queries.shape[:2], -1)
        beam, length = by_hypothesis.shape[1:3]
        position = state.length + torch.arange(length, device=query.device)
        weights = self.align(scores, memory.mask, queries, position.repeat(beam))
        context = weights @ memory.states
        each = beam, length
        return places.rows(context.unflatten(1, each)), places.rows(weights.unflatten(1, each))

    @staticmethod
    def _fixed_context(
        embedded: Float[Tensor, "R T E"], memory: RNNMemory, places: Places
    ) -> Float[Tensor, "R T D"]:
        """c = [→h_S ; ←h_1] at every step (Cho et al. 2014, section 2.2, with one direction)."""
        c = memory.summary[-1].to(embedded.dtype)
        of_rows = places.rows(c[:, None].expand(-1, places.beam, -1))
        return of_rows[:, None].expand(-1, embedded.shape[1], -1)

"""What a recurrent encoder leaves for the decoder, and what the decoder remembers between words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from translate.models.recurrence import RecurrentState
from translate.models.seq2seq import Memory, RowState


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
    """What every hypothesis remembers before it reads target word t."""

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

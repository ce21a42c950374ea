"""What a Transformer's decoder remembers between two words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from translate.attention.cache import Ancestry, Cache, Kept, KeysValues
from translate.models.seq2seq import rows_of


@dataclass(frozen=True)
class TransformerState:
    """The source as every decoder layer sees it, and what each has cached of the target."""

    memory: list[KeysValues]
    padding: Float[Tensor, "B 1 1 S"] | None  # of the source, added to scores; None: there is none
    caches: list[Cache]
    ancestry: Ancestry
    beam: int  # hypotheses a sentence

    @property
    def sentences(self) -> int:
        return self.memory[0].keys.shape[0]

    def select(self, hypotheses: Int[Tensor, "M"]) -> TransformerState:
        return replace(
            self,
            caches=[cache.select(hypotheses) for cache in self.caches],
            ancestry=self.ancestry.select(hypotheses),
            beam=len(hypotheses) // self.sentences,
        )

    def keep(self, sentences: Int[Tensor, "C"]) -> TransformerState:
        ancestry, columns = self.ancestry.keep(sentences)
        kept = Kept(sentences, rows_of(sentences, self.beam), columns)
        return replace(
            self,
            memory=[memory.at(sentences) for memory in self.memory],
            padding=None if self.padding is None else self.padding.index_select(0, sentences),
            caches=[cache.keep(kept) for cache in self.caches],
            ancestry=ancestry,
        )

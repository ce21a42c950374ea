"""What a search returns, and what a search is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from translate.config import Node
from translate.models.seq2seq import Seq2Seq
from translate.search.constraints import Constraints
from translate.search.rules import NO_RULES, RulesConfig

MOST = 4096  # pieces or hypotheses: more, which only a stranger asks for, take all memory or a day


class SearchConfig(Node):
    """The keys that every search has."""

    place: ClassVar[str] = "search"

    kind: str
    max_length_ratio: float = Field(
        ge=0,
        le=MOST,
        description="a translation has at most ratio · source length + offset pieces",
    )
    max_length_offset: int = Field(
        gt=0, le=MOST, description="so many pieces more, so that a word may become a phrase"
    )
    rules: RulesConfig = Field(
        default=NO_RULES,  # of a bundle from before there were any, or a search made in Python
        description="which next pieces may be chosen",
    )


@dataclass(frozen=True)
class Hypothesis:
    """One translation as token ids. T = len(tokens) + 1, for </s> is predicted too.

    Attributes:
        tokens: without <s> and </s>.
        score: what ranks hypotheses: `log_prob` over the length penalty, where the search has one,
            plus its coverage penalty. Under `rules.repetition_penalty` repeated tokens count more
            than `log_prob` says.
        log_prob: natural logarithm of P(tokens, </s> | source), the model's own: no rule, filter or
            temperature of a search changes it. With a shortlist it is normalised over the
            sentence's candidates alone.
        token_log_probs: the T summands of `log_prob`, </s> last.
        alignment: the decoder's attention, when asked for and when the model has any.
        finished: False where the length limit was reached, so that </s> was the only choice left;
            its log-probability counts all the same. Where rules alone leave nothing but </s>, it
            is True.
    """

    tokens: tuple[int, ...]
    score: float
    log_prob: float
    token_log_probs: tuple[float, ...]
    alignment: Float[Tensor, "L H T S"] | None
    finished: bool


@runtime_checkable
class Search(Protocol):
    """Finds likely translations with nothing but the contract of `translate.models.seq2seq`."""

    rules: RulesConfig

    def __call__(
        self,
        model: Seq2Seq,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        *,
        constraints: Constraints = None,
        need_alignment: bool = False,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each of the B sentences, best first, at least one each.

        `source` ends with </s> and `source_mask` is True at real tokens; `constraints` holds one
        for each sentence. The model is used in the mode it is in: call `model.eval()` first.

        Raises:
            UserError: phrases that this search cannot promise, or more than the model reads; a
                coverage penalty without attention; log-probabilities that are not finite.
        """

"""The protocol of a search, and its hypotheses, read from a tree of all that it has chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from translate.attention.cache import Number
from translate.config import Node
from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.search.constraints import NO_RULES, Constraints, RulesConfig

MOST = 4096  # pieces or hypotheses: more, which only a stranger asks for, take all memory or a day
ROOT = -1  # the parent of every first token
LATE = {"cuda"}  # devices that compute behind the program
NOT_FINITE = (
    "the model's log-probabilities are not finite (NaN or infinite weights): load an earlier "
    "checkpoint, or train again with a lower learning rate"
)

Indices = npt.NDArray[np.int64]


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
    """A way to find likely translations with nothing but the contract of `Seq2Seq`."""

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
        """Return the hypotheses of each of the B sentences, best first, at least one each.

        `source` ends with </s> and `source_mask` is True at real tokens; `constraints` holds one
        for each sentence. The model is used in the mode it is in: call `model.eval()` first.

        Raises:
            UserError: phrases that this search cannot promise, or more than the model reads; a
                coverage penalty without attention; log-probabilities that are not finite.
        """


class Nodes(NamedTuple):
    """The tokens chosen at one step, in any shape."""

    sentences: Int[Tensor, "*M"]  # whose translation, by its index in the whole batch
    parents: Int[Tensor, "*M"]  # the node before, or ROOT
    rows: Int[Tensor, "*M"]  # the row of the step that predicted the token
    tokens: Int[Tensor, "*M"]
    log_probs: Float[Tensor, "*M"]  # of the token alone, the model's own
    ranks: Float[Tensor, "*M"]  # what it was chosen by: equal, but for penalties of rules
    scores: Float[Tensor, "*M"]  # what ranks a finished hypothesis; -inf where none ends
    penalties: Float[Tensor, "*M"]  # what a score holds beside ranks / length penalty: at most 0

    def ids(self, before: Number) -> Int[Tensor, "*M"]:
        """Return the numbers of these nodes in a tree that has so many nodes before them."""
        count, device = self.tokens.numel(), self.tokens.device
        return (before + torch.arange(count, device=device)).view_as(self.tokens)


class Tree:
    """Nodes that point back at their parents.

    Growing it copies no history and reads nothing from the device: a hypothesis costs one look
    along its own path, after the search.
    """

    def __init__(self) -> None:
        self._steps: list[Nodes] = []
        self._alignments: list[Float[Tensor, "N L H S"] | None] = []

    def grow(self, nodes: Nodes, alignment: Float[Tensor, "N L H S"] | None) -> None:
        """Add one step's nodes."""
        self._steps.append(nodes)
        self._alignments.append(alignment)

    def best(
        self,
        count: int,
        *,
        penalty: Callable[[int], float],
        limits: list[int],
        source_lengths: list[int],
    ) -> list[list[Hypothesis]]:
        """Return the best finished hypotheses of each sentence, best first.

        Args:
            count: how many of each, or as many as there are.
            penalty: length with </s> → divisor of the sum of ranks.
            limits: the most tokens each translation may have.
            source_lengths: how many source positions are real, </s> included.

        Raises:
            UserError: the model's output is not finite, in any hypothesis: another would win that
                is worse than it seemed.
        """
        columns = [
            torch.cat([column.flatten() for column in steps])
            for steps in zip(*self._steps, strict=True)
        ]
        sentences, parents, rows, tokens = torch.stack(columns[:4]).cpu().numpy()
        log_probs, ranks, scores, penalties = torch.stack(columns[4:]).cpu().numpy()
        if np.isnan(ranks).any():
            raise UserError(NOT_FINITE)

        def hypothesis(path: Indices) -> Hypothesis:
            end = path[-1]
            sentence = int(sentences[end])
            summands = tuple(log_probs[path].tolist())
            rank = math.fsum(ranks[path].tolist())
            return Hypothesis(
                tokens=tuple(tokens[path[:-1]].tolist()),
                score=rank / penalty(len(path)) + float(penalties[end]),
                log_prob=math.fsum(summands),
                token_log_probs=summands,
                alignment=self._along(rows[path].tolist(), source_lengths[sentence]),
                finished=len(path) <= limits[sentence],
            )

        ends = _ends(sentences, scores, len(limits), count)
        paths = iter(_paths(parents, np.concatenate(ends)))
        n_best = [[hypothesis(next(paths)) for _ in of_sentence] for of_sentence in ends]
        # the exact sums may order near-ties of float32 another way
        return [
            sorted(of_sentence, key=lambda one: one.score, reverse=True) for of_sentence in n_best
        ]

    def _along(self, rows: list[int], source_length: int) -> Float[Tensor, "L H T S"] | None:
        """Return the alignment of the hypothesis whose token t was predicted by row rows[t]."""
        # the search may have taken more steps than this hypothesis has tokens
        steps = [
            alignment[row]
            for alignment, row in zip(self._alignments, rows, strict=False)
            if alignment is not None
        ]
        return torch.stack(steps, dim=2)[..., :source_length].clone() if steps else None


def _paths(parents: Indices, ends: Indices) -> list[Indices]:
    """Return the nodes from the first token to each of the `ends`."""
    backwards = [ends]
    while (backwards[-1] != ROOT).any():
        backwards.append(np.where(backwards[-1] == ROOT, ROOT, parents[backwards[-1]]))
    return [path[path != ROOT] for path in np.stack(backwards[::-1], axis=1)]


def _ends(
    sentences: Indices, scores: npt.NDArray[np.floating], batch: int, count: int
) -> list[Indices]:
    """Return the last nodes of each sentence's `count` best finished hypotheses, best first."""
    ends = np.flatnonzero(scores > -math.inf)
    ends = ends[np.lexsort((-scores[ends], sentences[ends]))]
    firsts = np.searchsorted(sentences[ends], np.arange(1, batch))
    best = [of_sentence[:count] for of_sentence in np.split(ends, firsts)]
    if not all(map(len, best)):
        raise UserError(NOT_FINITE)
    return best


class Counts:
    """Numbers that a search asks for at every step, to end and to make its batch smaller.

    A GPU computes behind the program: whoever asks it for a number waits until it has caught up,
    and lets it stand idle until the next step is prepared. So there a number is copied out when the
    GPU comes to it, and read one step later, when the GPU has long been there. A search takes a
    step more than it needs to, in which everything has ended already.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.late = device, device.type in LATE
        self._asked: tuple[Tensor, torch.cuda.Event] | None = None  # at the step before
        self._stayed: Sequence[int] | None = None  # of those asked for; None: all

    def read(self, numbers: Int[Tensor, "B"]) -> list[int] | None:
        """Return these; on a GPU those of the step before, or None at the first step."""
        if not self.late:
            now: list[int] = numbers.tolist()
            return now
        copy = numbers.to("cpu", non_blocking=True)
        asked, self._asked = self._asked, (copy, reached(numbers.device))
        stayed, self._stayed = self._stayed, None
        if asked is None:
            return None
        before, event = asked
        event.synchronize()
        late: list[int] = before.tolist()
        return late if stayed is None else [late[place] for place in stayed]

    def rows_to_compute(self, wanted: Bool[Tensor, "N"]) -> Int[Tensor, "R"] | None:
        """Return where `wanted` holds, and a few other rows besides; None: all rows.

        Products are compiled for every number of rows, so it is rounded up: to a multiple of 16, or
        of 4 where they are fewer. On a GPU all are computed: to count would be to wait.
        """
        if self.late:
            return None
        rows = int(wanted.sum())
        step = 16 if rows > 16 else 4
        count = -(-rows // step) * step
        if count >= len(wanted):
            return None
        first = wanted.to(torch.uint8).argsort(descending=True, stable=True)[:count]
        return first.sort().values

    def keep(self, places: Sequence[int]) -> None:
        """Note that only these stay in the batch."""
        self._stayed = places


def reached(device: torch.device) -> torch.cuda.Event:
    """Return an event that comes when the GPU has done all that it has been asked for."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))  # which need not be the current device
    return event

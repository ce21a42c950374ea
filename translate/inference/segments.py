"""How texts become batches: no more at once than is read, those of like length together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.search import Constraint

MAX_SOURCE_LENGTH = 512  # pieces
MAX_SCORED_LENGTH = 4096  # pieces of a side; to read a pair takes time and memory by their product


class Segment(NamedTuple):
    """A text as the model reads it, and what is asked of its translation."""

    text: str
    ids: list[int]  # without </s>
    pieces: list[str]  # as the text spells them; none where no word will be replaced
    constraint: Constraint
    asked: str = ""  # the words of the constraint, which its source need not have


def each(texts: Iterable[str]) -> Iterator[str]:
    """The texts.

    Raises:
        UserError: a string, which Python would take for a list of its characters, or no list; or
            one of them is none, told when it shows.
    """
    if isinstance(texts, str):
        raise UserError(f"{texts!r} is a string: give a list of sentences, as [{texts!r}]")
    if not isinstance(texts, Iterable):
        raise UserError(f"{texts!r} is not a list of sentences")
    for number, text in enumerate(texts, start=1):
        yield text_of(text, f"line {number}")


def text_of(text: object, name: str) -> str:
    """The text; UserError if it is none."""
    if not isinstance(text, str):
        raise UserError(f"{name} is {text!r}: give a string (of bytes their .decode())")
    return text


def most_pieces(model: Seq2Seq, most: int = MAX_SOURCE_LENGTH) -> int:
    """The pieces of a text that are translated at once: `most`, or what the model reads."""
    return most if model.max_length is None else min(most, model.max_length - 1)  # </s>


def by_length(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Indices in batches, longest first; longest length × count stays within the budget.

    A single item longer than the budget is a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and lengths[batch[0]] * (len(batch) + 1) > tokens_per_batch:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def shared_out(lengths: Sequence[int], tokens_per_batch: int, workers: int) -> list[list[int]]:
    """`by_length`, in equal shares: no worker waits long for the others at the end.

    Each gets as many batches as the others, all of about one size; or where there are fewer batches
    than workers, one or none.
    """
    batches = list(by_length(lengths, tokens_per_batch))
    if workers == 1 or len(batches) < 2:
        return batches
    most = len(batches) if len(batches) < workers else -(-len(batches) // workers) * workers

    def few_enough(budget: int) -> bool:
        return len(list(by_length(lengths, budget))) <= most

    smallest = bisect_left(range(tokens_per_batch), True, key=few_enough)
    return list(by_length(lengths, smallest))

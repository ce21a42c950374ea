"""What stands inside a sentence and is not translated: taken out, and put back by the alignment.

A tag, an address, a placeholder or a sign would disturb the words around it, and a sentence cut
there loses its grammar. So the sentence is translated without them. Each then stands beside the
translation of the words that it stood beside, and a pair of tags around the translation of what it
enclosed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from translate.data.tokenizer import Tokenizers
from translate.inference.batches import by_length
from translate.inference.forcing import TeacherForcing, as_numpy
from translate.inference.markup import as_characters
from translate.inference.translation import Translation
from translate.models.head import AttentionHead

TOKEN = re.compile(r"%?\w+(?:['’]\w+)*|[^\w\s]")
OPENING = re.compile(r"<([^\W\d][\w:.-]*)(?=[\s>/])[^<]*(?<!/)>")
CLOSING = re.compile(r"</([^\W\d][\w:.-]*)\s*>")
# elements that may begin and end inside a word; others, such as <br>, part two words
PARTING = re.compile(r"</?(?:br|hr|p|div|li|td|th|tr|h\d|ul|ol|table)\b|[^<&]")
INLINE = re.compile(r"</?(?:a|b|em|emph|font|g|i|mark|q|s|small|span|strong|su[bp]|tt|u)\b")
TIGHT = set(",.;:!?)]}…»”、。，！？")  # marks without a space before them
VOID = {"br", "hr", "img", "input", "wbr"}  # elements of HTML that nothing closes
MARK = re.compile(r"[^\w\s…)\]}»”]")
FAINT = 1e-3  # attention to itself of a word that looks elsewhere
REACH = 2.0  # tokens: how fast neighbours of a place count less

Spans = Sequence[tuple[int, int]]  # characters
TakenOut = tuple[str, int, tuple[bool, bool]]  # a text, the place it stood at, spaces beside it
Weights = Float[np.ndarray, "T S"]
NO_WEIGHTS: Weights = np.zeros((0, 0))


@dataclass
class InlineItem:
    """A text that stands before the source token `start`; with a closing tag, around tokens.

    Attributes:
        end: the token after the last that it encloses.
        closing: the tag at its end; empty for an item that encloses nothing.
        spaces: whether white space stands before and behind it.
        inner: the items between its tags.
    """

    text: str
    start: int
    spaces: tuple[bool, bool]
    end: int = 0
    closing: str = ""
    inner: list[InlineItem] = field(default_factory=list)


@dataclass(frozen=True)
class BareText:
    """A sentence without its items.

    Attributes:
        xml: whether its translation is XML, in which no character may look like markup.
    """

    text: str
    items: list[InlineItem]
    xml: bool = False


def take_out(text: str, spans: Spans, *, xml: bool = False) -> BareText:
    """Return a sentence without the items at these places."""
    bare, pieces, position, parted, before = "", list[TakenOut](), 0, False, ""
    for start, end in spans:
        parted = parted and start == position  # by items that touch
        bare += text[position:start]
        item, left, right = text[start:end], text[start - 1 : start], text[end : end + 1]
        spaces = not start or left.isspace(), not right.isalnum()
        begins = CLOSING.fullmatch(before) and OPENING.fullmatch(item) and start == position
        parted |= bool(PARTING.match(item) or (begins and not INLINE.match(item)))
        if parted and bare[-1:].isalnum() and right.isalnum():
            bare += " "
        if bare.endswith(" ") and right in TIGHT:
            bare = bare[:-1]
        pieces.append((item, len(bare), spaces))
        position, before = end, item
        if not bare or bare.endswith(" "):  # one space is left of two
            position += len(text[end:]) - len(text[end:].lstrip(" "))
    bare = (bare + text[position:]).rstrip()
    tokens = [match.span() for match in TOKEN.finditer(bare)]
    return BareText(bare, list(_nested(pieces, tokens)), xml)


def _nested(pieces: Sequence[TakenOut], tokens: Spans) -> Iterator[InlineItem]:
    """Yield the items; a tag that is closed holds those up to its end."""
    while pieces:
        (text, place, spaces), *pieces = pieces
        item = InlineItem(text, sum(end <= place for _, end in tokens), spaces)
        if (last := _closed_by(text, [piece for piece, *_ in pieces])) is not None:
            closing, end, (_, behind) = pieces[last]
            item.closing, item.end = closing, sum(start < end for start, _ in tokens)
            item.spaces = spaces[0], behind
            item.inner = list(_nested(pieces[:last], tokens))
            pieces = pieces[last + 1 :]
        yield item


def _closed_by(tag: str, others: Sequence[str]) -> int | None:
    """Return the place of the tag that closes an opening one; None where nothing does."""
    opening, depth = OPENING.fullmatch(tag), 1
    if not opening or opening[1].lower() in VOID:
        return None
    for place, other in enumerate(others):
        again, closing = OPENING.fullmatch(other), CLOSING.fullmatch(other)
        depth += bool(again and again[1] == opening[1])
        depth -= bool(closing and closing[1] == opening[1])
        if not depth:
            return place
    return None


def put_back(bare: BareText, translation: str, weights: Weights) -> str:
    """Return a translation with the items of its source.

    Args:
        weights: how much each token of the translation (`TOKEN`) looks at each of the source.
    """
    tokens = [match.span() for match in TOKEN.finditer(translation)]
    words = TOKEN.findall(bare.text), TOKEN.findall(translation)
    looks = Looks(mutual(anchored(weights, *words)), *words)
    placed = _placed(bare.items, looks, 0, len(tokens))
    characters = as_characters if bare.xml else str
    written, position = "", 0
    for place, text in _insertions(placed, translation, tokens, 0):
        written += characters(translation[position:place]) + text
        position = max(position, place)
    return (written + characters(translation[position:])).rstrip()


class Placement:
    """The way of items back into translations, by the attention of a model that reads these.

    Args:
        head: the attention that says which words belong together; None: the order of words does.
        tokens_per_batch: padded pieces of the longer side that are read at once.
    """

    def __init__(
        self,
        tokenizers: Tokenizers,
        forcing: TeacherForcing,
        head: AttentionHead | None,
        *,
        tokens_per_batch: int,
    ) -> None:
        self.tokenizers, self.forcing, self.head = tokenizers, forcing, head
        self.tokens_per_batch = tokens_per_batch
        self._longest = forcing.model.max_length or math.inf

    def __call__(
        self, bare: Sequence[BareText], n_best: Sequence[list[Translation]]
    ) -> list[list[Translation]]:
        """Return the n best of each sentence with its items."""
        pairs = [
            (text.text, translation.text)
            for text, translations in zip(bare, n_best, strict=True)
            for translation in translations
            if text.items
        ]
        weights = iter(self._weights(pairs))
        return [
            [
                replace(each, text=put_back(text, each.text, next(weights)), alignment=None)
                if text.items
                else replace(each, text=put_back(text, each.text, NO_WEIGHTS))
                for each in translations
            ]
            for text, translations in zip(bare, n_best, strict=True)
        ]

    def _weights(self, pairs: Sequence[tuple[str, str]]) -> list[Weights]:
        """Return how much each token of each translation looks at each of its source."""
        source, target = self.tokenizers.source, self.tokenizers.target
        ids = [(source.encode(text), target.encode(translation)) for text, translation in pairs]
        weights = [between_tokens(None, [text], [translation]) for text, translation in pairs]
        if self.head is None:
            return weights
        longest = [max(map(len, sides)) + 1 for sides in ids]
        chosen = [i for i, sides in enumerate(ids) if all(sides) and longest[i] <= self._longest]
        for batch in by_length([longest[i] for i in chosen], self.tokens_per_batch):
            rows = [chosen[i] for i in batch]
            attention = self.forcing.attention([ids[i][0] for i in rows], [ids[i][1] for i in rows])
            for i, matrix in zip(rows, as_numpy(self.head.of(attention)), strict=True):
                surfaces = source.surfaces(pairs[i][0]), target.surfaces(pairs[i][1])
                pieces = matrix[: len(surfaces[1]), source.front :][:, : len(surfaces[0])]
                known = between_tokens(pieces, *surfaces)
                if known.shape == weights[i].shape:  # else characters are read as others
                    weights[i] = known
        return weights


def between_tokens(
    pieces: Float[np.ndarray, "T S"] | None, source: Sequence[str], target: Sequence[str]
) -> Weights:
    """Return the attention between tokens (`TOKEN`), of that between pieces.

    Args:
        pieces: rows of the translation, columns of the source; None: the order of the words alone.
        source, target: what each piece stands for.
    """
    rows, columns = _pieces_of_tokens(target), _pieces_of_tokens(source)
    if pieces is None:
        places = [(np.arange(len(side)) + 0.5) / max(1, len(side)) for side in (rows, columns)]
        order: Weights = np.exp(-10 * np.abs(places[0][:, None] - places[1][None, :]))
        return order
    means = rows / np.maximum(1, rows.sum(axis=1, keepdims=True))
    weights: Weights = means @ pieces @ columns.T
    return weights


def _pieces_of_tokens(surfaces: Sequence[str]) -> Float[np.ndarray, "tokens pieces"]:
    """Return 1 where a piece has a part of a token."""
    ends = np.cumsum([0, *map(len, surfaces)])
    spans = [match.span() for match in TOKEN.finditer("".join(surfaces))]
    starts, stops = np.array(spans, dtype=int).reshape(-1, 2).T
    overlap = (ends[None, :-1] < stops[:, None]) & (ends[None, 1:] > starts[:, None])
    return overlap.astype(float)


def anchored(weights: Weights, source: Sequence[str], target: Sequence[str]) -> Weights:
    """Let a word that stands in both look at itself, and no other word at it."""
    same = [[a == b and any(map(str.isalnum, a)) for b in source] for a in target]
    if not any(map(any, same)) or weights.shape != np.shape(same):
        return weights
    there = np.array(same)
    itself = there * (weights + FAINT)
    sums = itself.sum(axis=1, keepdims=True)
    others: Weights = np.where(there.any(axis=0), 0.0, weights)
    looking: Weights = np.where(sums > 0, itself / np.maximum(sums, FAINT), others)
    return looking


def mutual(weights: Weights) -> Weights:
    """Multiply what a token looks at by what it is looked at by: both must say so."""
    if not weights.size:
        return weights
    rows, columns = (
        weights / np.maximum(weights.sum(axis=a, keepdims=True), FAINT) for a in (1, 0)
    )
    both = rows * columns
    product: Weights = both / np.maximum(both.sum(axis=1, keepdims=True), FAINT)
    return product


class Looks(NamedTuple):
    """How much each token of a translation looks at each of its source, and what they are."""

    weights: Weights
    source: Sequence[str]
    target: Sequence[str]


@dataclass(frozen=True)
class Placed:
    """An item before the token `start` of the translation, and around those up to `end`."""

    item: InlineItem
    start: int
    end: int
    inner: list[Placed]


def _placed(items: Sequence[InlineItem], looks: Looks, first: int, last: int) -> list[Placed]:
    """Place items among the tokens [first, last) of the translation; none overlaps another."""
    placed: list[Placed] = []
    free = np.zeros(len(looks.weights), dtype=bool)
    free[first:last] = True
    after = first  # the last of the tags that are alone, whose order stays
    # those that enclose words go first: the others can stand between any two tokens
    for item in sorted(items, key=lambda item: item.start >= item.end):
        if item.start < item.end and free.any():
            start, end = _enclosed(looks, item, free)
            free[start:end] = False
            placed.append(Placed(item, start, end, _placed(item.inner, looks, start, end)))
        else:
            place = _beside(looks.weights, item, first, last)
            if item.text[0] == "<":
                after = place = max(after, place)
            place = next((each.end for each in placed if each.start < place < each.end), place)
            inner = _placed(item.inner, looks, place, place)
            placed.append(Placed(item, place, place, inner))
    order = {id(item): number for number, item in enumerate(items)}
    return sorted(placed, key=lambda each: (each.start, each.end, order[id(each.item)]))


def _enclosed(looks: Looks, item: InlineItem, free: np.ndarray) -> tuple[int, int]:
    """Return the run of free tokens that looks most into the item and least elsewhere."""
    inside = looks.weights[:, item.start : item.end].sum(axis=1)
    gain = np.where(free, inside - 0.5 * looks.weights.sum(axis=1), -np.inf)
    best, run, start = (-np.inf, 0, 0), 0.0, 0
    for place, value in enumerate(gain):
        if run <= 0:
            run, start = 0.0, place
        run += value
        if run > best[0]:
            best = run, start, place + 1
    return _with_its_marks(best[1], best[2], looks, item, free)


def _with_its_marks(
    start: int, end: int, looks: Looks, item: InlineItem, free: np.ndarray
) -> tuple[int, int]:
    """Return a run with the marks at its edges that the item has there in the source."""
    target, first, last = looks.target, looks.source[item.start], looks.source[item.end - 1]
    while end - start > 1 and not MARK.fullmatch(last) and MARK.fullmatch(target[end - 1]):
        end -= 1
    while end - start > 1 and not MARK.fullmatch(first) and MARK.fullmatch(target[start]):
        start += 1
    if MARK.fullmatch(last) and target[end : end + 1] == [last] and free[end]:
        end += 1
    if MARK.fullmatch(first) and start and target[start - 1] == first and free[start - 1]:
        start -= 1
    return start, end


def _beside(weights: Weights, item: InlineItem, first: int, last: int) -> int:
    """Return the place in [first, last] for an item that encloses nothing.

    One that is written close to a word stays with it. Otherwise tokens before the place should look
    at what is left of the item, those behind it at what is right; its neighbours count most.
    """
    gap, count = item.start, weights.shape[1]
    here = weights[first:last]
    if len(here) and not item.spaces[1] and gap < count:
        return first + int(here[:, gap].argmax())
    if len(here) and not item.spaces[0] and gap > 0:
        return first + int(here[:, gap - 1].argmax()) + 1
    if gap in (0, count):
        return first if gap == 0 else last
    near = here * np.exp(-np.abs(np.arange(count) + 0.5 - gap) / REACH)
    left, right = near[:, :gap].sum(axis=1), near[:, gap:].sum(axis=1)
    costs = np.append(0, right.cumsum()) + np.append(left[::-1].cumsum()[::-1], 0)
    return first + int(costs.argmin())


def _insertions(
    placed: Sequence[Placed], text: str, tokens: Spans, first: int
) -> Iterator[tuple[int, str]]:
    """Yield the places in the text, and what is put in there, from left to right.

    Args:
        first: the token before which the text between two tags begins.
    """
    for each in placed:
        item = each.item
        if each.start < each.end:
            yield tokens[each.start][0], item.text
            yield from _insertions(each.inner, text, tokens, each.start)
            yield tokens[each.end - 1][1], item.closing
            continue
        whole = item.text + "".join(_whole(inner) for inner in item.inner) + item.closing
        before, behind = item.spaces
        if each.start == len(tokens) == 0:
            yield len(text), f"{whole}{' ' * behind}"
        elif each.start == first:
            yield tokens[first][0], f"{whole}{' ' * behind}"
        elif before and not behind and each.start < len(tokens):  # close to the word behind it
            yield tokens[each.start][0], whole
        else:
            yield tokens[each.start - 1][1], f"{' ' * before}{whole}"


def _whole(item: InlineItem) -> str:
    return item.text + "".join(map(_whole, item.inner)) + item.closing

"""Segments in another wording: without what must be copied, with other names, in clauses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from translate.inference.batches import Segment
from translate.inference.inline import BareText, Spans, take_out
from translate.inference.lines import CutLine, Cutter, Protection
from translate.inference.translation import Find, Translation
from translate.search import Constraint


@dataclass(frozen=True)
class Renamed:
    """A sentence with common names, which the model knows, in place of rare ones.

    Attributes:
        names: the common name of each rare one.
    """

    text: str
    names: dict[str, str]

    def restored(self, n_best: Sequence[Translation]) -> list[Translation]:
        """Return those of its translations that have all names, with the rare ones in them."""
        if not self.names:
            return list(n_best)
        rare = {common: name for name, common in self.names.items()}
        common = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in rare))
        return [
            replace(each, text=common.sub(lambda name: rare[name[0]], each.text), alignment=None)
            for each in n_best
            if {*common.findall(each.text)} == {*rare}
        ]


def with_other_names(text: str, spans: Spans, common: Iterable[str]) -> Renamed:
    """Return a sentence with other names at these places, as far as there are such.

    Args:
        common: names that training has often shown to stay as they are.
    """
    rare = dict.fromkeys(text[start:end] for start, end in spans)
    names = dict(zip(rare, (each for each in common if each not in text), strict=False))
    written, position = "", 0
    for start, end in spans:
        written += text[position:start] + names.get(text[start:end], text[start:end])
        position = end
    return Renamed(written + text[position:], names)


@dataclass(frozen=True)
class Rewriting:
    """The ways to translate segments otherwise than as they stand.

    Attributes:
        segments: makes those of a line, with the constraint on each and what is asked for.
        nothing: the constraint that asks for nothing.
        placed: puts items back into the n best of texts that lack them.
        common_names: names that training has often shown to stay as they are.
    """

    protection: Protection
    cut: Cutter
    segments: Callable[[CutLine, Iterable[Constraint], str], list[Segment]]
    nothing: Constraint
    placed: Callable[[Sequence[BareText], Sequence[list[Translation]]], list[list[Translation]]]
    common_names: Sequence[str]

    def without_items(
        self, search: Find, segments: Sequence[Segment], *, names: bool = False
    ) -> list[list[Translation]]:
        """Return the n best of each, translated without its items, which are then put back."""
        bare = [self._bare(segment, names=names) for segment in segments]
        return self._put_back(search, segments, bare)

    def without_names(self, search: Find, segments: Sequence[Segment]) -> list[list[Translation]]:
        """Return the n best of each with common names for rare ones; without, where one is lost."""
        n_best = self.renamed(search, self.protection.names, segments)
        lost = [each for each, answers in zip(segments, n_best, strict=True) if not answers]
        taken_out = iter(self.without_items(search, lost, names=True))
        return [answers or next(taken_out) for answers in n_best]

    def renamed(
        self,
        search: Find,
        names: Callable[[str], list[tuple[int, int]]],
        segments: Sequence[Segment],
    ) -> list[list[Translation]]:
        """Return the n best of each with common names for these; none where one is lost."""
        texts = [
            with_other_names(each.text, [] if each.fixed else names(each.text), self.common_names)
            for each in segments
        ]
        others = [each._replace(text=text.text) for each, text in zip(segments, texts, strict=True)]
        n_best = self.without_items(search, others, names=True)
        return [text.restored(each) for text, each in zip(texts, n_best, strict=True)]

    def apart(self, search: Find, segments: Sequence[Segment]) -> list[list[Translation]]:
        """Return the n best of each, translated clause by clause."""
        bare = [
            self._bare(each) or (None if each.fixed else BareText(each.text, []))
            for each in segments
        ]
        return self._put_back(search, segments, bare, apart=True)

    def _bare(self, segment: Segment, *, names: bool = False) -> BareText | None:
        """Return the text of a segment without its items; None: it has none, or is fixed.

        Args:
            names: are items too; its text need not be that of its ids.
        """
        if segment.fixed and not segment.xml:
            return None
        spans = self.protection.spans(segment.text, names=names)
        wanted = bool(spans) or segment.xml or names
        return take_out(segment.text, spans, xml=segment.xml) if wanted else None

    def _put_back(
        self,
        search: Find,
        segments: Sequence[Segment],
        bare: Sequence[BareText | None],
        *,
        apart: bool = False,
    ) -> list[list[Translation]]:
        """Return the n best of segments that are translated as their bare texts, with their items.

        Args:
            bare: of each segment; None: it is translated as it is.
            apart: clause by clause, but for what is fixed.
        """
        lines: list[CutLine | None] = []
        parts: list[Segment] = []
        for segment, text in zip(segments, bare, strict=True):
            if text is None:
                lines.append(None)
                parts.append(segment)
                continue
            if segment.fixed:
                line, wanted = self.cut.uncut(text.text), [segment.constraint]
            else:
                line = self.cut.clauses(text.text, len(segment.ids) // 2 if apart else None)
                wanted = [self.nothing] * len(line.texts)
            lines.append(line)
            parts += self.segments(line, wanted, segment.asked)
        answers = iter(search(parts))
        n_best = [
            next(answers) if line is None else line.joined([next(answers) for _ in line.texts])
            for line in lines
        ]
        texts = {i: text for i, text in enumerate(bare) if text is not None}
        placed = self.placed([*texts.values()], [n_best[i] for i in texts])
        for i, one in zip(texts, placed, strict=True):
            n_best[i] = one
        return n_best

"""BLEU of sentences that are changed as people's text differs from a corpus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random

from translate.data.modifiers import ALONE, Texts
from translate.evaluation.metrics import bleu
from translate.evaluation.report import ModifiedScore

log = logging.getLogger(__name__)


def modified_scores(
    translate: Callable[[Sequence[str]], list[str]],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    hypotheses: Sequence[str],
    *,
    names: Sequence[str],
    seed: int,
    tokenize: str,
) -> list[ModifiedScore]:
    """Translate a test set as each modifier changes it, and score it beside the plain sentences.

    A sentence that a modifier cannot change is left out, on both sides of the comparison.

    Args:
        hypotheses: translations of the plain sources.
        names: the modifiers, as in the node `data.modifiers`.
        seed: what they draw from, with the place of the sentence.
    """
    scores = []
    for name in names:
        items = {}
        for place, source in enumerate(sources):
            changed = [
                ALONE[name](Texts(source, reference), Random(f"{seed} {place}"))
                for reference in references[place]
            ]
            first = changed[0]
            if first is not None:  # of the other references those that change the source alike
                alike = [each.target for each in changed if each and each.source == first.source]
                items[place] = first.source, alike
        if not items:
            log.warning("modifiers=%s: it can change none of these sentences", name)
            continue
        translated = translate([source for source, _ in items.values()])
        plain = bleu(
            [hypotheses[place] for place in items],
            [references[place] for place in items],
            tokenize=tokenize,
        )
        modified = bleu(translated, [alike for _, alike in items.values()], tokenize=tokenize)
        scores.append(ModifiedScore(name, len(items), plain, modified))
    return scores

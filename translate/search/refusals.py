"""What a beam cannot do, in words: other engines and training refuse it as the search does."""

from __future__ import annotations


def too_many(n_best: int, beam_size: int) -> str:
    """What is wrong with more translations than hypotheses."""
    return (
        f"search.n_best = {n_best} is more than the beam size ({beam_size}): raise "
        "search.beam_size or lower search.n_best"
    )


def nothing_to_cover(coverage_penalty: float) -> str:
    """What is wrong with a coverage penalty where there is no attention."""
    return (
        f"search.coverage_penalty = {coverage_penalty} adds up the decoder's attention to each "
        "source word, but this model has no attention: set search.coverage_penalty=0"
    )

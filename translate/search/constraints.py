"""Demands on a translation: rules for all, prefixes, phrases and bans of one.

A rule changes ranks, by which a search chooses, and never log-probabilities: those of a hypothesis
remain the model's own. What a rule forbids has rank -inf.

Phrases that a translation must contain get their places by dynamic beam allocation (Post and Vilar
2018). A beam would drop a hypothesis that begins a phrase for a likelier one that does not. So
hypotheses with equally many phrase tokens form a bank, and the banks share the places of the beam
evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor

from translate.attention.cache import Number
from translate.config import Node
from translate.errors import UserError
from translate.search.scoring import Candidates, only_end
from translate.vocabulary import BOS, EOS, PAD

Tokens = tuple[int, ...]
MOST_BANNED, LONGEST_BANNED = 1000, 200  # phrases; characters of one
FILL = -1  # in tensors of phrases of unlike length; no token


class Joints(NamedTuple):
    """The places where a word goes on: from an `open` token to an `onward` one."""

    open: Bool[np.ndarray, "V"]  # ends with a letter
    onward: Bool[np.ndarray, "V"]  # begins with one, and with no space before it; never </s>


@dataclass(frozen=True)
class Constraint:
    """Demands on one translation; they outrank the rules and the length limit of a search.

    Attributes:
        prefix: its first tokens.
        phrases: token sequences it must contain somewhere, without a gap; each begins a word.
        banned: token sequences it may not contain after the prefix.
        glued: the same, but allowed where the token before them ends with a letter (`joints`).
        joints: where a phrase, given or banned, is only the beginning of a longer word, which is
            another; None: nowhere. The same for all of a batch that have any.
    """

    prefix: Tokens = ()
    phrases: tuple[Tokens, ...] = ()
    banned: tuple[Tokens, ...] = ()
    glued: tuple[Tokens, ...] = ()
    joints: Joints | None = field(default=None, compare=False, repr=False)

    @property
    def tokens_needed(self) -> int:
        """The number of tokens of the prefix and of the phrases that it does not contain.

        A phrase at its very end may yet become a longer word, and counts.
        """
        missing = (phrase for phrase in set(self.phrases) if not self._begins_with(phrase))
        return len(self.prefix) + sum(map(len, missing))

    def _begins_with(self, phrase: Tokens) -> bool:
        """Tell whether the prefix contains the phrase, and goes on with another word."""
        joints = self.joints
        return any(
            joints is None or not (joints.open[phrase[-1]] and joints.onward[self.prefix[end]])
            for end in range(len(phrase), len(self.prefix))
            if self.prefix[end - len(phrase) : end] == phrase
        )


Constraints = Sequence[Constraint] | None
"""One for each sentence of the batch; None: nothing is constrained."""


def length_limits(
    source_lengths: Sequence[int],
    ratio: float,
    offset: int,
    constraints: Constraints = None,
    *,
    max_length: int | None,
) -> list[int]:
    """Return the most tokens of each translation: ratio · source length + offset, </s> apart.

    More where the given tokens alone would exceed it.

    Args:
        source_lengths: those of the model's input, which ends with </s>.
        max_length: the most tokens that the model can read, <s> among them.

    Raises:
        UserError: more is given than the model can read.
    """
    most = math.inf if max_length is None else max_length - 1
    limits = [min(ratio * (length - 1) + offset, most) for length in source_lengths]
    needed = [one.tokens_needed for one in constraints or [Constraint()] * len(limits)]
    if max(needed, default=0) > most:
        raise UserError(
            f"a translation must contain {max(needed)} given pieces, but this model reads at most "
            f"{most}: shorten the prefix and the phrases"
        )
    return [int(max(limit, count)) for limit, count in zip(limits, needed, strict=True)]


def at_limit(limits: Int[Tensor, "N"], length: Number, shortest: int) -> Bool[Tensor, "N"] | None:
    """Return which are as long as they may be; None: none, for the `shortest` limit is more."""
    if not isinstance(length, Tensor) and length < shortest:
        return None
    return limits <= length


def word_edges(
    constraints: Sequence[Constraint], device: torch.device
) -> tuple[Bool[Tensor, "V"], Bool[Tensor, "V"]]:
    """Return the two sides of the constraints' joints; V is 1 where there are none."""
    # those of all constraints are alike, but for sentences where nothing goes on
    by_use = sorted(constraints, key=_goes_on, reverse=True)
    none = Joints(np.zeros(1, bool), np.zeros(1, bool))
    joints = next(filter(None, (constraint.joints for constraint in by_use)), none)
    is_open, onward = (torch.from_numpy(side).to(device) for side in joints)
    return is_open, onward


def word_beginnings(
    constraints: Sequence[Constraint], last: Int[Tensor, "B P"]
) -> tuple[Bool[Tensor, "B P"], Bool[Tensor, "V"]]:
    """Return which phrases, known by their last tokens, may begin a longer word; what goes on."""
    is_open, onward = word_edges(constraints, last.device)
    there = torch.tensor([_goes_on(one) for one in constraints], device=last.device)
    inside = last.clamp(0, len(onward) - 1)
    return is_open[inside] & (last == inside) & there[:, None], onward


def _goes_on(constraint: Constraint) -> bool:
    return constraint.joints is not None and bool(constraint.joints.onward.any())


def refuse_phrases(constraints: Constraints, kind: str) -> None:
    """Raise a UserError where phrases must be written, which this kind cannot promise."""
    if any(constraint.phrases for constraint in constraints or ()):
        raise UserError(
            f"search.kind = {kind} cannot force phrases into a translation: use search=beam"
        )


def padded(sentences: Sequence[Sequence[Tokens]], device: torch.device) -> Int[Tensor, "B P L"]:
    """Return the phrases of every sentence, filled up behind; P and L are at least 1."""
    count = max([1, *map(len, sentences)])
    longest = max([1, *(len(phrase) for phrases in sentences for phrase in phrases)])
    table = torch.full((len(sentences), count, longest), FILL)
    for row, phrases in zip(table, sentences, strict=True):
        for line, phrase in zip(row, phrases, strict=False):
            line[: len(phrase)] = torch.tensor(phrase, dtype=torch.long)
    return table.to(device)


class Position(NamedTuple):
    """The point that a search has reached, a row for each open hypothesis."""

    sentences: Int[Tensor, "N"]  # index in the whole batch
    history: Int[Tensor, "N T"]  # the tokens so far, <s> apart
    log_probs: Float[Tensor, "N V"]  # of the next token, the model's own


class Rule(Protocol):
    """A change of ranks."""

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        """Return the ranks under this rule, none above what it was, but for a prefix's tokens."""


class RulesConfig(Node):
    """The node `search.rules`: which next pieces may be chosen."""

    min_length: int = Field(
        ge=0, description="pieces before a translation may end; the limit of length wins"
    )
    no_repeat_ngram_size: int = Field(
        ge=0,
        description="no sequence of this many pieces occurs twice in a translation; 0: off",
    )
    repetition_penalty: float = Field(
        ge=1,
        le=1e6,  # what float32 can count
        description="above 1: the log-probability of a piece that the translation has already is "
        "multiplied by this, for ranking; the probabilities reported stay the model's own",
    )
    # text, which the translator turns into each sentence's `Constraint`
    banned: tuple[Annotated[str, Field(max_length=LONGEST_BANNED)], ...] = Field(
        max_length=MOST_BANNED,  # each takes time at each step
        description='whole words and phrases never to be written: [foo, "two words"]; in scripts '
        "without spaces, characters in a row (greedy, sample and beams of one: nor a longer word "
        "that begins so)",
    )

    def stricter(self, other: RulesConfig) -> RulesConfig:
        """Return these rules, and what `other` asks for beyond them, but for what is banned."""
        sizes = {self.no_repeat_ngram_size, other.no_repeat_ngram_size} - {0}  # 0 allows everything
        return self.model_copy(
            update={
                "min_length": max(self.min_length, other.min_length),
                "no_repeat_ngram_size": min(sizes, default=0),
                "repetition_penalty": max(self.repetition_penalty, other.repetition_penalty),
            }
        )


NO_RULES = RulesConfig(min_length=0, no_repeat_ngram_size=0, repetition_penalty=1.0, banned=())


def active_rules(
    config: RulesConfig, constraints: Constraints, limits: Int[Tensor, "B"], *, alone: bool
) -> tuple[Rule, ...]:
    """Return the rules that may do something, the strictest last.

    Args:
        alone: a hypothesis has no other beside it that could take its place.
    """
    rules: list[Rule] = []
    if config.repetition_penalty > 1:
        rules.append(RepetitionPenalty(config.repetition_penalty))
    if config.no_repeat_ngram_size:
        rules.append(NoRepeat(config.no_repeat_ngram_size))
    if config.min_length:
        rules.append(MinLength(config.min_length))
    if constraints and any(constraint.banned or constraint.glued for constraint in constraints):
        rules.append(Banned(constraints, limits, alone=alone))
    if constraints and any(constraint.prefix for constraint in constraints):
        rules.append(Prefix([constraint.prefix for constraint in constraints], limits.device))
    return tuple(rules)


def apply(rules: Sequence[Rule], at: Position) -> Float[Tensor, "N V"]:
    """Return the ranks of all next tokens: their log-probabilities under every rule."""
    ranks = at.log_probs
    for rule in rules:
        ranks = rule(ranks, at)
    return ranks


def forbid(ranks: Float[Tensor, "N V"], tokens: Int[Tensor, "N P"]) -> Float[Tensor, "N V"]:
    """Forbid these tokens of each row. <pad>, never allowed anyway, stands for none."""
    return ranks.scatter(1, tokens, -math.inf)


class MinLength:
    """A rule that forbids </s> before so many tokens; the length limit of a search wins over it."""

    def __init__(self, length: PositiveInt) -> None:
        self.length = length

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        if at.history.shape[1] >= self.length:
            return ranks
        return forbid(ranks, torch.full_like(at.sentences, EOS)[:, None])


class NoRepeat:
    """A rule that forbids n tokens that the hypothesis has had in a row (Paulus et al. 2018)."""

    def __init__(self, size: PositiveInt) -> None:
        self.size = size

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        length = at.history.shape[1]
        if length < self.size:
            return ranks
        grams = at.history.unfold(1, self.size, 1)  # (N, T - n + 1, n)
        tail = at.history[:, None, length - self.size + 1 :]  # (N, 1, n - 1)
        repeats = (grams[:, :, :-1] == tail).all(2)
        return forbid(ranks, grams[:, :, -1].where(repeats, PAD))


class RepetitionPenalty:
    """Ranks a token that occurs in the hypothesis by θ log p instead of log p, θ ≥ 1.

    Keskar et al. 2019 divide its logit by θ; a logarithm of a probability is never above 0, so that
    ranks only fall, as the early stopping of a beam needs.
    """

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        used = ranks.gather(1, at.history) * self.penalty
        return ranks.scatter(1, at.history, used)  # what comes twice gets the same value twice


class Banned:
    """A rule that forbids the last token of a banned phrase once the others are written.

    If a longer word may begin with the phrase ("ban" with "banned"), the phrase may be written, and
    what is forbidden is to end the word there; unless the length limit leaves no room to go on with
    it, or the hypothesis is `alone`: without others beside it, it would have to make some longer
    word of the phrase, however unlikely. (Where other rules leave nothing to go on with, the word
    may end all the same.) A phrase that is `glued` to a letter before it is the end of another
    word, and allowed.
    """

    def __init__(
        self, constraints: Sequence[Constraint], limits: Int[Tensor, "B"], *, alone: bool
    ) -> None:
        backwards = [
            [phrase[::-1] for phrase in (*constraint.banned, *constraint.glued)]
            for constraint in constraints
        ]
        self.phrases = padded(backwards, limits.device)  # (B, P, L), the last token first
        self.lengths = (self.phrases != FILL).sum(2)
        banned = torch.tensor([len(each.banned) for each in constraints], device=limits.device)
        places = torch.arange(self.phrases.shape[1], device=limits.device)
        self.glued = places >= banned[:, None]  # (B, P)
        self.ends_open, _ = word_edges(constraints, limits.device)
        self.beginnings, self.onward = word_beginnings(
            constraints, self.phrases[:, :, 0]
        )  # (B, P), (V,)
        self.beginnings &= not alone
        lengths = [len(constraint.prefix) for constraint in constraints]
        self.prefix_lengths, self.limits = torch.tensor(lengths, device=limits.device), limits

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        phrases, beginnings = self.phrases[at.sentences], self.beginnings[at.sentences]
        length, last = at.history.shape[1], phrases[:, :, 0]
        room = (length + 1 < self.limits[at.sentences])[:, None]
        ending = _ends_with(at.history, phrases[:, :, 1:]) & (last != FILL)
        ending &= ~self._inside_a_word(at, length)
        ranks = forbid(ranks, last.where(ending & ~(beginnings & room), PAD))
        written = _ends_with(at.history, phrases) & beginnings
        written &= ~self._inside_a_word(at, length - 1)
        written &= (length > self.prefix_lengths[at.sentences])[:, None]
        return ranks.masked_fill(written.any(1, keepdim=True) & ~self.onward, -math.inf)

    def _inside_a_word(self, at: Position, end: int) -> Bool[Tensor, "N P"]:
        """Tell which glued phrases would have a letter before them, if they ended at `end`."""
        before = (end - self.lengths[at.sentences] + 1).clamp(0, at.history.shape[1])
        tokens = F.pad(at.history, (1, 0), value=BOS).gather(1, before)
        letter = self.ends_open[tokens.clamp(max=len(self.ends_open) - 1)]
        return letter & self.glued[at.sentences]


def _ends_with(history: Int[Tensor, "N T"], phrases: Int[Tensor, "N P L"]) -> Bool[Tensor, "N P"]:
    """Tell which phrases, spelled backwards, each history ends with."""
    before = history.flip(1)[:, None, : phrases.shape[2]]
    there, beyond = phrases[:, :, : before.shape[2]], phrases[:, :, before.shape[2] :]
    return ((there == before) | (there == FILL)).all(2) & (beyond == FILL).all(2)


class Prefix:
    """Allows nothing but the first tokens that are given, whatever other rules say."""

    def __init__(self, prefixes: Sequence[Tokens], device: torch.device) -> None:
        self.tokens = padded([[prefix] for prefix in prefixes], device)[:, 0]  # (B, L)

    def __call__(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        length = at.history.shape[1]
        if length >= self.tokens.shape[1]:
            return ranks
        forced = self.tokens[at.sentences, length][:, None]
        token = forced.clamp(min=0)
        only = torch.full_like(ranks, -math.inf).scatter(1, token, at.log_probs.gather(1, token))
        return torch.where(forced == FILL, ranks, only)


NO_TOKEN = -2  # beside the history


class Phrases:
    """The phrases of each sentence's translation, and how far a hypothesis has come.

    Args:
        bans: the rules that phrases keep to as well; no other does when a phrase is to be written.
    """

    def __init__(
        self, constraints: Sequence[Constraint], limits: Int[Tensor, "B"], bans: Sequence[Rule] = ()
    ) -> None:
        wanted = [
            list(dict.fromkeys(filter(None, constraint.phrases))) for constraint in constraints
        ]
        self.tokens = padded(wanted, limits.device)  # (B, P, L)
        self.lengths = (self.tokens != FILL).sum(2)  # (B, P)
        last = padded([[phrase[-1:] for phrase in phrases] for phrases in wanted], limits.device)
        self.beginnings, self.onward = word_beginnings(constraints, last[:, :, 0])  # (B, P), (V,)
        lengths = [len(constraint.prefix) for constraint in constraints]
        self.prefix_lengths = torch.tensor(lengths, device=limits.device)
        self.limits = limits
        self.bans = bans

    def candidates(self, best: Candidates, at: Position) -> tuple[Candidates, Int[Tensor, "N K"]]:
        """Add the next token of every missing phrase to the best, drop what can never be whole.

        Behind the prefix no hypothesis ends with a phrase missing, and none goes on so that the
        tokens which are missing would no longer fit under its length limit. How many are, comes
        second: the bank. What is banned is no candidate either, unless nothing else is left.
        """
        in_prefix = at.history.shape[1] < self.prefix_lengths[at.sentences]
        following = self._next_of_missing(at, in_prefix)
        # what is among the phrases' tokens is no candidate a second time
        twice = (best.tokens[:, :, None] == following[:, None]).any(2)
        ranks = best.ranks.masked_fill(twice, -math.inf)
        tokens = torch.cat([best.tokens, following], dim=1)
        ranks = torch.cat([ranks, at.log_probs.gather(1, following)], dim=1)
        missing_then = self._missing(tokens, at)
        room = self.limits[at.sentences] - at.history.shape[1] - 1  # for tokens after the next
        # </s> may be among them: the rules forbid it, but leave it where they forbid all else too
        lost = torch.where(tokens == EOS, missing_then > 0, missing_then > room[:, None])
        ranks = ranks.masked_fill(lost & ~in_prefix[:, None], -math.inf)
        banned = apply(self.bans, at).gather(1, following).isneginf()
        banned = F.pad(banned, (best.tokens.shape[1], 0))  # from the best the rules kept it already
        allowed = ranks.masked_fill(banned, -math.inf)
        ranks = torch.where(allowed.isneginf().all(1, keepdim=True), ranks, allowed)
        # nothing is missing, but there would be no room to write a last word anew that went on
        ends = ranks.isneginf().all(1)
        together = only_end(tokens, ranks, at.log_probs, ends)
        return together, missing_then.masked_fill(ends[:, None], 0)

    def _next_of_missing(self, at: Position, in_prefix: Bool[Tensor, "N"]) -> Int[Tensor, "N P"]:
        """Return the next token of each missing phrase, each token once; elsewhere <pad>."""
        begun, _ = self._begun(at.history, at.sentences)
        missing = begun < self.lengths[at.sentences]
        following = self._following(begun, at.sentences)
        following = following.where(missing & ~in_prefix[:, None], PAD)
        alike = following[:, :, None] == following[:, None]  # (N, P, P): two may go on alike
        return following.masked_fill(alike.tril(-1).any(2), PAD)

    def unfinished(self, ranks: Float[Tensor, "N V"], at: Position) -> Float[Tensor, "N V"]:
        """Forbid </s> while a phrase is missing: a rule."""
        begun, _ = self._begun(at.history, at.sentences)
        missing = (begun < self.lengths[at.sentences]).any(1)
        return forbid(ranks, torch.where(missing, EOS, PAD)[:, None])

    def _missing(self, tokens: Int[Tensor, "N K"], at: Position) -> Int[Tensor, "N K"]:
        """Count the tokens that each extended hypothesis still lacks, if no two phrases overlap."""
        count = tokens.shape[1]
        history = at.history.repeat_interleave(count, dim=0)
        history = torch.cat([history, tokens.reshape(-1, 1)], dim=1)
        sentences = at.sentences.repeat_interleave(count)
        (begun, gained), lengths = self._begun(history, sentences), self.lengths[sentences]
        lacking = lengths.where(begun < lengths, 0).sum(1)
        return (lacking - gained.amax(1)).view_as(tokens)

    def _following(
        self, begun: Int[Tensor, "N P"], sentences: Int[Tensor, "N"]
    ) -> Int[Tensor, "N P"]:
        """Return the token after the first `begun` of each phrase; any where there is none."""
        tokens = self.tokens[sentences]
        return tokens.gather(2, begun.clamp(max=tokens.shape[2] - 1)[:, :, None])[:, :, 0]

    def _begun(
        self, history: Int[Tensor, "N T"], sentences: Int[Tensor, "N"]
    ) -> tuple[Int[Tensor, "N P"], Int[Tensor, "N P"]]:
        """Count the tokens of each phrase that are written, and what going on with it would gain.

        All of a phrase that occurs; of another, the longest beginning that the history ends with. A
        whole phrase at the very end may yet be undone: if the next token of another phrase made its
        last word longer, its tokens would be lost. So the beginning of that other phrase counts
        only where it is longer than what would be lost, and gains only the difference. A phrase
        that is whole gains 0.
        """
        tokens, lengths = self.tokens[sentences], self.lengths[sentences]
        whole, at_end = self._occurring(history, sentences)
        begun = torch.where(whole | at_end, lengths, 0)
        longest = tokens.shape[2]
        before = F.pad(history, (longest, 0), value=NO_TOKEN)
        for size in range(1, longest):
            tail = before[:, None, -size:]  # (N, 1, size)
            partly = (tail == tokens[:, :, :size]).all(2)  # never of shorter phrases: FILL
            begun = torch.where(partly & (begun < lengths), size, begun)
        missing = begun < lengths
        at_risk = lengths.where(at_end & ~whole & self.beginnings[sentences], 0).sum(1)
        goes_on = self._onward(self._following(begun, sentences))
        gained = (begun - at_risk[:, None] * goes_on).where(missing, 0)
        return begun.where(~missing | (gained > 0), 0), gained.clamp(min=0)

    def _occurring(
        self, history: Int[Tensor, "N T"], sentences: Int[Tensor, "N"]
    ) -> tuple[Bool[Tensor, "N P"], Bool[Tensor, "N P"]]:
        """Tell which phrases occur before the end, if their last words do not go on; and at it."""
        tokens, lengths = self.tokens[sentences], self.lengths[sentences]
        longest = tokens.shape[2]
        beside = F.pad(history, (longest, longest + 1), value=NO_TOKEN)
        windows = beside.unfold(1, longest + 1, 1)  # (N, W, L + 1)
        equal = (windows[:, None, :, :-1] == tokens[:, :, None]) | (tokens[:, :, None] == FILL)
        there = equal.all(3)  # (N, P, W)
        places = lengths[:, None].expand(-1, windows.shape[1], -1)
        after = windows.gather(2, places).mT  # (N, P, W): the token behind the phrase
        longer = self.beginnings[sentences][:, :, None] & self._onward(after)
        at_end = after == NO_TOKEN
        return (there & ~at_end & ~longer).any(2), (there & at_end).any(2)

    def _onward(self, tokens: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Tell which tokens go on with a word; none of those that are no tokens does."""
        inside = tokens.clamp(0, len(self.onward) - 1)
        return self.onward[inside] & (tokens == inside)


def in_turns(
    totals: Float[Tensor, "B M"], banks: Int[Tensor, "B M"], count: int
) -> Int[Tensor, "B m"]:
    """Return which candidates get the places: the best of each bank in turn, the fullest first.

    A bank's number is how many tokens it lacks. Every bank has the same number of places, and those
    that it cannot fill are the others'.
    """
    order = totals.argsort(dim=1, descending=True, stable=True)
    sorted_banks = banks.gather(1, order)
    one_hot = F.one_hot(sorted_banks)  # (B, M, banks)
    turn = (one_hot.cumsum(1) * one_hot).sum(2)  # the first of its bank, the second …
    keys = turn * one_hot.shape[2] + sorted_banks
    dead = totals.gather(1, order).isneginf()
    keys = keys.masked_fill(dead, torch.iinfo(keys.dtype).max)
    return order.gather(1, keys.argsort(dim=1, stable=True)[:, :count])

"""Beam search: the best few hypotheses side by side, for many sentences at once.

A hypothesis that takes </s> leaves its beam, and its place is not filled again: the beam of a
sentence shrinks from `beam_size` to nothing. That makes a beam of one equal greedy search under
every length penalty, and bounds the work. A sentence ends sooner when none of its open hypotheses
can still enter the n best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from translate.attention.cache import Number, Places
from translate.config import OnlyWith
from translate.errors import UserError
from translate.models.seq2seq import DecoderState, Seq2Seq, Step
from translate.search.constraints import (
    Banned,
    Constraints,
    Phrases,
    Position,
    Rule,
    active_rules,
    apply,
    at_limit,
    in_turns,
    length_limits,
    refuse_phrases,
)
from translate.search.cuda_graph import Progress, StepRecord, replayed
from translate.search.hypothesis import (
    MOST,
    ROOT,
    Counts,
    Hypothesis,
    Nodes,
    SearchConfig,
    Tree,
)
from translate.search.scoring import (
    PENALTIES,
    Candidates,
    LengthPenalty,
    Strength,
    best_next,
    coverage_penalty,
    likeliest,
    next_log_probs,
    nothing_to_cover,
    words_of,
)
from translate.vocabulary import BOS, EOS

ROUNDED_UP = 1 + 1e-6  # keeps the bound of early stopping a bound in float32
DEAD = -math.inf  # the total of a row that holds no hypothesis


class BeamKeys(SearchConfig):
    """The keys of both beam searches."""

    beam_size: int = Field(gt=0, le=MOST, description="hypotheses per sentence")
    length_penalty: LengthPenalty = Field(
        description="what log-probabilities are divided by: none: 1; average: the length; gnmt: "
        "((5 + length) / 6)^alpha"
    )
    alpha: Annotated[float, OnlyWith("length_penalty", "gnmt")] = Field(
        ge=0,
        le=10,  # 400 is beyond the largest float
        description="of gnmt: 0 is no penalty, more prefers longer translations",
    )
    coverage_penalty: Strength = Field(
        description="β of Wu et al. 2016, eq. 14: above 0 (0.2, say) no source word is forgotten; "
        "needs attention"
    )
    n_best: int = Field(
        gt=0, le=MOST, description="translations per sentence, no more than beam_size"
    )

    def contradictions(self) -> Iterator[str]:
        if self.n_best > self.beam_size:
            yield (
                f"search.n_best = {self.n_best} is more than the beam size ({self.beam_size}): "
                "raise search.beam_size or lower search.n_best"
            )


class BeamConfig(BeamKeys):
    """The node `search` of beam search."""

    kind: Literal["beam"] = Field(
        description="the best few hypotheses side by side: usually half a BLEU to one above "
        "greedy, at several times the work"
    )


@dataclass(frozen=True)
class Beam:
    """The open hypotheses, best first, of the beams still in the batch: one a sentence, or groups.

    n is the widest beam among them; narrower ones end with DEAD rows.
    """

    beams: Int[Tensor, "B"]  # index in the whole batch, sentence by sentence
    sentences: Int[Tensor, "B"]  # of each
    limits: Int[Tensor, "B"]  # the most tokens each translation may have
    longest_penalty: Float[Tensor, "B"]  # the length penalty at that length
    vacant: Int[Tensor, "B"]  # places of the beam, not yet taken by finished hypotheses
    kept: Float[Tensor, "B n_best"]  # the best finished scores so far, -inf for none
    nodes: Int[Tensor, "B n"]
    tokens: Int[Tensor, "B n"]  # the last of each hypothesis
    history: Int[Tensor, "B n T"]  # its tokens so far; T = 0 when no rule asks for them
    totals: Float[Tensor, "B n"]  # the ranks of its tokens added up: log P, but for rules
    words: Bool[Tensor, "B S"]  # which source positions count as covered or not
    coverage: Float[Tensor, "B n S"]  # the attention each has had; S is 0 without a penalty

    @classmethod
    def at_start(
        cls,
        limits: Int[Tensor, "B"],
        longest_penalty: Float[Tensor, "B"],
        words: Bool[Tensor, "B S"],
        *,
        groups: int,
        width: int,
        n_best: int,
    ) -> Beam:
        """Return the empty hypothesis in each of the `groups` beams of these sentences."""
        sentences = torch.arange(len(limits), device=limits.device).repeat_interleave(groups)
        limits, words = limits[sentences], words[sentences]
        empty = torch.zeros_like(limits)[:, None]
        return cls(
            beams=torch.arange(len(limits), device=limits.device),
            sentences=sentences,
            limits=limits,
            longest_penalty=longest_penalty[sentences],
            vacant=torch.full_like(limits, width),
            kept=torch.full((len(limits), n_best), DEAD, device=limits.device),
            nodes=empty + ROOT,
            tokens=empty + BOS,
            history=empty[:, :, None][:, :, :0],
            totals=empty.float(),
            words=words,
            coverage=torch.zeros_like(words[:, None], dtype=torch.float32),
        )

    def keep(self, places: Int[Tensor, "C"]) -> Beam:
        """Return the beams at these places of the batch alone."""
        return Beam(*(getattr(self, field.name)[places] for field in fields(self)))


class Extensions(NamedTuple):
    """The m extensions of each beam's hypotheses that get its places, in the order of the choice.

    That is best first, but under phrases and among groups.
    """

    rows: Int[Tensor, "B m"]  # of the batch: which hypothesis is extended
    tokens: Int[Tensor, "B m"]
    log_probs: Float[Tensor, "B m"]  # of the token
    ranks: Float[Tensor, "B m"]  # of the token
    totals: Float[Tensor, "B m"]  # of the whole hypothesis; DEAD beyond the sentence's places
    scores: Float[Tensor, "B m"]  # of those that end, -inf for the others
    penalties: Float[Tensor, "B m"]  # the part of a score that is the coverage penalty

    def nodes(self, beam: Beam) -> Nodes:
        """Return what the tree grows by, of the beam that is extended."""
        return Nodes(
            sentences=beam.sentences[:, None].expand_as(self.tokens),
            parents=beam.nodes.flatten()[self.rows],
            rows=self.rows,
            tokens=self.tokens,
            log_probs=self.log_probs,
            ranks=self.ranks,
            scores=self.scores,
            penalties=self.penalties,
        )


class Taken(NamedTuple):
    """A step that was taken, and what it leads to."""

    extensions: Extensions
    coverage: Float[Tensor, "N S"]  # of what was extended
    state: DecoderState
    kept: Float[Tensor, "B n_best"]  # the best finished scores
    alive: Float[Tensor, "B m"]  # the totals of the extensions that go on, else DEAD
    shown: StepRecord


class Asked(NamedTuple):
    """The demands of a call beyond likely translations."""

    rules: tuple[Rule, ...]
    phrases: Phrases | None
    shortest: int  # of the limits of length
    alignment: bool
    chances: Float[Tensor, "W T"] | None  # a draw for each token of each beam; None: nothing drawn


class Beams:
    """Beams of `width` hypotheses, `groups` of them a sentence: the steps of every search.

    Each beam has its own `n_best` and early stopping. A translation has at most
    max_length_ratio · source length + max_length_offset tokens (the prefix and the phrases, if
    they are more), and no more than the model can read.
    """

    takes_phrases: ClassVar[bool] = False  # which must occur in a translation

    def __init__(
        self,
        config: SearchConfig,
        *,
        groups: int = 1,
        width: int = 1,
        n_best: int = 1,
        coverage_penalty: float = 0.0,
    ) -> None:
        self.config, self.rules = config, config.rules
        self._length_limits = config.max_length_ratio, config.max_length_offset
        self._groups, self._width, self._n_best = groups, width, n_best
        self._beta = coverage_penalty

    @torch.inference_mode()
    def __call__(
        self,
        model: Seq2Seq,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        *,
        constraints: Constraints = None,
        need_alignment: bool = False,
    ) -> list[list[Hypothesis]]:
        if not self.takes_phrases:
            refuse_phrases(constraints, self.config.kind)
        lengths = source_mask.sum(1).tolist()
        limits = self._limits(model, source_mask, constraints)
        # without a penalty none are counted, and coverage is a tensor of no columns
        words = words_of(source_mask) if self._beta else source_mask[:, :0]
        most_tokens = torch.tensor(limits, device=source.device)
        longest = [self._length_penalty(limit + 1) * ROUNDED_UP for limit in limits]
        beam = Beam.at_start(
            most_tokens, torch.tensor(longest, device=source.device), words,
            groups=self._groups, width=self._width, n_best=self._n_best,
        )  # fmt: skip
        chances = self._chances(source, source_mask, limits)
        asked = self._asked(constraints, most_tokens, min(limits), need_alignment, chances)
        state = model.start(model.encode(source, source_mask))
        if self._groups > 1:
            state = state.keep(beam.sentences)
        progress = Progress(beam, state, length=0, nodes=0)
        tree, counts = Tree(), Counts(source.device)
        self._search(model, progress, asked, longest=max(limits), tree=tree, counts=counts)
        n_best = tree.best(
            self._n_best * self._groups,
            penalty=self._length_penalty,
            limits=limits,
            source_lengths=lengths,
        )
        return list(map(self._answer, n_best))

    def _limits(
        self, model: Seq2Seq, source_mask: Bool[Tensor, "B S"], constraints: Constraints
    ) -> list[int]:
        """Return the most tokens of each translation."""
        return length_limits(
            source_mask.sum(1).tolist(), *self._length_limits, constraints,
            max_length=model.max_length,
        )  # fmt: skip

    def _search(
        self,
        model: Seq2Seq,
        start: Progress,
        asked: Asked,
        *,
        longest: int,
        tree: Tree,
        counts: Counts,
    ) -> None:
        """Take step after step, until nothing is left; at its limit every hypothesis ends."""

        def again(progress: Progress) -> tuple[Progress, StepRecord]:
            taken = self._take(model, progress, asked, None)
            return self._go_on(progress, taken, taken.alive.shape[1], asked), taken.shown

        progress: Progress | None = start
        repeats = counts.late and not asked.rules  # whose histories grow
        while progress is not None and progress.length <= longest:
            live = counts.rows_to_compute(progress.open.totals.flatten() > DEAD)
            taken = self._take(model, progress, asked, live)
            tree.grow(taken.shown.nodes, taken.shown.alignment)
            open_ones = counts.read(taken.shown.open)  # of each beam
            if open_ones is not None and not any(open_ones):
                return
            # late ones do not tell how many there are now, which may be more
            known = None if counts.late else open_ones
            widest = taken.alive.shape[1] if known is None else max(known)
            progress = self._go_on(progress, taken, widest, asked)
            if open_ones is not None:
                progress = self._without_ended(progress, open_ones, counts)
            if repeats and progress.open.tokens.shape[1] == self._width:
                before, most = progress, longest + 1 - int(progress.length)
                progress = replayed(
                    again, before, beam=self._width, most=most, tree=tree, counts=counts
                )
                repeats = progress is not before  # what was refused is not asked for again

    def _chances(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], limits: list[int]
    ) -> Float[Tensor, "W T"] | None:
        """Return a number in [0, 1) for each token of each beam, where tokens are drawn by them."""
        return None

    def _answer(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """Return those of a sentence that are asked for, of the best of all its beams."""
        return hypotheses

    def _length_penalty(self, length: Any) -> Any:  # a number or a tensor
        """Return what divides the log-probability of `length` tokens, </s> included."""
        return 1.0

    def _asked(
        self,
        constraints: Constraints,
        limits: Int[Tensor, "B"],
        shortest: int,
        alignment: bool,
        chances: Float[Tensor, "W T"] | None,
    ) -> Asked:
        rules = active_rules(self.rules, constraints, limits, alone=self._width == 1)
        if not constraints or not any(constraint.phrases for constraint in constraints):
            return Asked(rules, None, shortest, alignment, chances)
        bans = [rule for rule in rules if isinstance(rule, Banned)]
        phrases = Phrases(constraints, limits, bans)
        return Asked((phrases.unfinished, *rules), phrases, shortest, alignment, chances)

    def _take(
        self,
        model: Seq2Seq,
        progress: Progress,
        asked: Asked,
        live: Int[Tensor, "R"] | None,
    ) -> Taken:
        """Extend every hypothesis by a token."""
        beam, length = progress.open, progress.length
        places = Places.of(beam.tokens.shape[0], beam.tokens.shape[1], live)
        step = model.decode_step(
            places.rows(beam.tokens), progress.state,
            live=live, need_alignment=asked.alignment or self._beta > 0,
        )  # fmt: skip
        coverage = self._covered(beam, step)
        logits = model.project(step.hidden)
        ending = at_limit(beam.limits, length, asked.shortest)
        extensions = self._extend(beam, coverage, places, logits, length, ending, asked)
        kept, alive = self._compete(beam, extensions)
        alignment = step.alignment if asked.alignment else None
        shown = StepRecord(extensions.nodes(beam), alignment, (alive > DEAD).sum(1))
        return Taken(extensions, coverage, step.state, kept, alive, shown)

    def _covered(self, beam: Beam, step: Step) -> Float[Tensor, "N S"]:
        """Return Σ_j p_ij of every hypothesis, this step included."""
        before = beam.coverage.flatten(0, 1)
        if not self._beta:
            return before
        if step.alignment is None:
            raise UserError(nothing_to_cover(self._beta))
        # float32 at least: bf16 sums drift
        wide = torch.promote_types(step.alignment.dtype, torch.float32)
        return before + step.alignment.mean((1, 2), dtype=wide)

    def _extend(
        self,
        beam: Beam,
        coverage: Float[Tensor, "N S"],
        places: Places,
        logits: Float[Tensor, "R V"],
        length: Number,
        ending: Bool[Tensor, "B"] | None,
        asked: Asked,
    ) -> Extensions:
        """Return the best continuations of hypotheses that have `length` tokens."""
        sentences, width = beam.tokens.shape
        best, banks = self._candidates(beam, places, logits, length, ending, asked)
        # (B, n, K); what is in DEAD places stays dead
        best = Candidates(*map(places.spread, best))
        if banks is not None:
            banks = places.spread(banks).flatten(1)
        totals = (beam.totals[:, :, None] + best.ranks).flatten(1)  # (B, n·K)
        tokens = best.tokens.flatten(1)
        index = self._choose(beam, totals, tokens, banks)  # (B, m)
        order = torch.arange(index.shape[1], device=index.device)
        chosen = totals.gather(1, index).masked_fill(order >= beam.vacant[:, None], DEAD)
        first = torch.arange(sentences, device=index.device) * width
        rows = first[:, None] + index // best.tokens.shape[2]
        penalties = torch.zeros_like(chosen)
        if self._beta:
            words = beam.words.repeat_interleave(width, dim=0)
            penalties = coverage_penalty(coverage, words, self._beta).to(chosen.dtype)[rows]
        # in double precision, as Python computes it of a number
        exact: Any = length.double() if isinstance(length, Tensor) else length
        scores = chosen / self._length_penalty(exact + 1) + penalties
        tokens = tokens.gather(1, index)
        return Extensions(
            rows=rows,
            tokens=tokens,
            log_probs=best.log_probs.flatten(1).gather(1, index),
            ranks=best.ranks.flatten(1).gather(1, index),
            totals=chosen,
            scores=torch.where(tokens == EOS, scores, DEAD),
            penalties=penalties,
        )

    def _candidates(
        self,
        beam: Beam,
        places: Places,
        logits: Float[Tensor, "R V"],
        length: Number,
        ending: Bool[Tensor, "B"] | None,
        asked: Asked,
    ) -> tuple[Candidates, Int[Tensor, "R K"] | None]:
        """Return the next tokens that each hypothesis brings, with their banks under phrases."""
        width = beam.tokens.shape[1]
        if ending is not None:
            ending = places.rows(ending[:, None].expand(-1, width))
        if not asked.rules:
            return likeliest(logits, self._width * self._groups, ending=ending), None
        at = self._position(beam, places, logits)
        ranks = apply(asked.rules, at)
        best = best_next(at.log_probs, ranks, self._width * self._groups, ending=ending)
        if asked.phrases is None:
            return best, None
        return asked.phrases.candidates(best, at)

    @staticmethod
    def _position(beam: Beam, places: Places, logits: Float[Tensor, "R V"]) -> Position:
        sentences = beam.sentences[:, None].expand(-1, beam.tokens.shape[1])
        return Position(places.rows(sentences), places.rows(beam.history), next_log_probs(logits))

    def _choose(
        self,
        beam: Beam,
        totals: Float[Tensor, "B M"],
        tokens: Int[Tensor, "B M"],
        banks: Int[Tensor, "B M"] | None,
    ) -> Int[Tensor, "B m"]:
        """Return which candidates get the places of a beam: here the best, best first."""
        count = min(self._width, totals.shape[1])
        if banks is not None:
            return in_turns(totals, banks, count)
        return totals.topk(count).indices

    def _compete(
        self, beam: Beam, extensions: Extensions
    ) -> tuple[Float[Tensor, "B n_best"], Float[Tensor, "B m"]]:
        """Return the best finished scores, and the totals of what may yet beat one, else DEAD.

        A hypothesis is dropped when it has ended, or when it cannot beat the worst kept score any
        more: its total only falls and the length penalty only grows, so total / penalty at the
        length limit bounds whatever it may become. The coverage penalty is left out of the bound:
        it is at most 0, and as coverage only grows it may yet rise to 0.
        """
        totals, scores = extensions.totals, extensions.scores
        kept = torch.cat([beam.kept, scores], dim=1).topk(self._n_best).values
        hopeless = totals / beam.longest_penalty[:, None] <= kept[:, -1:]
        return kept, totals.masked_fill((scores > DEAD) | hopeless, DEAD)

    def _go_on(self, progress: Progress, taken: Taken, widest: int, asked: Asked) -> Progress:
        """Go on with the best of what was extended, at most `widest` of each beam."""
        beam, extensions = progress.open, taken.extensions
        totals, order = taken.alive.topk(widest)
        rows, tokens = extensions.rows.gather(1, order), extensions.tokens.gather(1, order)
        history = beam.history.flatten(0, 1)[rows]
        if asked.rules:
            history = torch.cat([history, tokens[:, :, None]], dim=2)
        nodes = taken.shown.nodes
        pruned = replace(
            beam,
            vacant=beam.vacant - (extensions.scores > DEAD).sum(1),
            kept=taken.kept,
            nodes=nodes.ids(progress.nodes).gather(1, order),
            tokens=tokens,
            history=history,
            totals=totals,
            coverage=taken.coverage[rows],
        )
        return Progress(
            pruned,
            taken.state.select(rows.flatten()),
            length=progress.length + 1,
            nodes=progress.nodes + nodes.tokens.numel(),
        )

    @staticmethod
    def _without_ended(progress: Progress, open_ones: Sequence[int], counts: Counts) -> Progress:
        """Leave out the beams that have ended, once they are a quarter.

        To leave is to copy what is remembered of all that stay: as much work as a step of them.
        """
        places = [place for place, count in enumerate(open_ones) if count]
        if 4 * len(places) > 3 * len(open_ones):
            return progress
        counts.keep(places)
        left = torch.tensor(places, device=counts.device)
        return replace(progress, open=progress.open.keep(left), state=progress.state.keep(left))


class BeamSearch(Beams):
    """Return up to `n_best` hypotheses a sentence, all different, best first.

    Finished ones are ranked by (Wu et al. 2016, eq. 14)

        score = log P / lp(Y) + cp(X; Y),   cp(X; Y) = β Σ_i log(min(Σ_j p_ij, 1))

    where lp is `none` 1, `average` the length |Y| with </s>, `gnmt` ((5 + |Y|) / 6)^alpha (alpha
    counts for `gnmt` alone), β is `coverage_penalty`, and p_ij is the attention of target piece j
    (</s> is one) to source piece i (</s> is none, a tag in front is one): the mean of all layers
    and heads. Open hypotheses are ranked by log P. Under a repetition penalty repeated tokens count
    more in both. Phrases that must occur get their places by dynamic beam allocation.
    """

    Config: ClassVar[type[BeamKeys]] = BeamConfig
    takes_phrases = True
    config: BeamKeys

    def __init__(self, config: BeamKeys, *, groups: int = 1) -> None:
        width = config.beam_size // groups
        super().__init__(
            config, groups=groups, width=width, n_best=min(config.n_best, width),
            coverage_penalty=config.coverage_penalty,
        )  # fmt: skip

    def _length_penalty(self, length: Any) -> Any:
        return PENALTIES[self.config.length_penalty](length, self.config.alpha)

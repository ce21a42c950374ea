"""Text to text: a trained model, its tokenizers and a search."""

from __future__ import annotations

import copy
import itertools
import logging
import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate import search as searches
from translate.attention.masks import padding_mask
from translate.data.tokenizer import END, Tokenizers
from translate.errors import UserError
from translate.inference import bundle
from translate.inference.engines import Precision
from translate.inference.minimum_bayes_risk import Utility, expected_utilities
from translate.inference.segments import by_length, has_text, split
from translate.inference.translation import NOTHING, AttentionMap, Score, Translation
from translate.inference.unknown_words import UnknownWords
from translate.inference.wishes import NO_WISH, Wish, demands, paired
from translate.inference.workers import Workers
from translate.models.head import NO_ATTENTION
from translate.models.seq2seq import Seq2Seq
from translate.schema import check, nearest
from translate.search import Demand, Hypothesis, Search
from translate.vocabulary import BOS, EOS, PAD

log = logging.getLogger(__name__)

TOKENS_PER_BATCH = 4096
WINDOW = 2048  # lines
MAX_SOURCE_LENGTH = 512  # pieces


class Segment(NamedTuple):
    """A line or a part of one, as the model reads it."""

    ids: list[int]  # without </s>
    pieces: list[str]  # as the line spells them; none where no word will be replaced
    demand: Demand


BatchWorkers = Workers[list[Segment], list[list[Translation]]]


class Translator:
    """Translates, scores and aligns sentences.

    The model is moved to the device and put in evaluation mode. How lines are batched never
    changes a translation, but for rounding: exact in float64, in float32 up to near-ties.

    Args:
        tokens_per_batch: padded source pieces of a batch; a beam needs as much for each hypothesis.
        device: `auto` takes a GPU if there is one.
        window: lines `stream` reads before it answers; 1 answers each line at once, more makes
            better batches.
        max_source_length: a line of more pieces is translated in segments, split after a sentence
            or a word, and joined by spaces, with a warning; as is one longer than the model reads.
        unknown_words: what to write for each <unk>, by the attention; None leaves them.
        workers: processes that translate batches at the same time, each on one thread.
        mbr: translations of a line are ranked by minimum Bayes risk under this utility; their score
            is then the utility expected of them. None: by the score of the search.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizers: Tokenizers,
        search: Search,
        *,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        device: str | torch.device = "cpu",
        window: int = WINDOW,
        max_source_length: int = MAX_SOURCE_LENGTH,
        unknown_words: UnknownWords | None = None,
        workers: int = 1,
        mbr: Utility | None = None,
    ) -> None:
        self.device = choose_device(device)
        if workers > 1 and self.device.type != "cpu":
            raise UserError(f"workers = {workers} share out a CPU: device=cpu, or workers=1")
        self.workers = workers
        self.model = model.to(self.device).eval()
        self.tokenizers = tokenizers
        self.search = search
        self.tokens_per_batch = tokens_per_batch
        self.window = window
        readable = max_source_length if model.max_length is None else model.max_length - 1  # </s>
        self.max_source_length = min(max_source_length, readable)
        self.unknown_words = unknown_words
        self.mbr = mbr
        self._banned = tuple(tuple(tokenizers.target.encode(text)) for text in search.rules.banned)

    def translate(self, sentences: Iterable[str]) -> list[str]:
        """The best translation of each sentence."""
        return [best.text for best, *_ in self.stream(sentences)]

    def stream(
        self,
        lines: Iterable[str],
        *,
        window: int | None = None,
        need_alignment: bool = False,
        wishes: Wish | Iterable[Wish] = NO_WISH,
    ) -> Generator[list[Translation], None, None]:
        """The n best translations of each line, in input order, best first.

        Reads no further ahead than `window` lines. A line without a visible character has one
        translation, the empty one. `wishes` holds one for each line, or is that of all.
        """
        asked, read = paired(lines, wishes), 0
        work = partial(self._batch, need_alignment=need_alignment)
        with Workers(self.workers, work) as workers:
            while some := list(itertools.islice(asked, window or self.window)):
                yield from self._translate(some, read + 1, workers)
                read += len(some)

    def _translate(
        self, lines: list[tuple[str, Wish]], number: int, workers: BatchWorkers
    ) -> list[list[Translation]]:
        """The n best of consecutive lines, the first of which is line `number`."""
        segments = [
            self._segments(line, wish, i) for i, (line, wish) in enumerate(lines, start=number)
        ]
        found = iter(self._search(list(itertools.chain(*segments)), workers))
        return [self._ranked(_joined([next(found) for _ in line])) for line in segments]

    def _ranked(self, found: list[Translation]) -> list[Translation]:
        """By minimum Bayes risk, if that is wanted; else as they are."""
        if self.mbr is None or len(found) == 1:
            return found
        utilities = expected_utilities([translation.text for translation in found], self.mbr)
        scored = [replace(t, score=u) for t, u in zip(found, utilities, strict=True)]
        return sorted(scored, key=lambda translation: translation.score, reverse=True)

    def _segments(self, line: str, wish: Wish, number: int) -> list[Segment]:
        """A line in one segment, in several if it is long, in none if it is empty."""
        tokenizer = self.tokenizers.source
        ids = tokenizer.encode(line) if has_text(line) else []
        pieces = tokenizer.spelled(line) if self.unknown_words else []
        if not ids:
            return []
        tag, ids = ids[: tokenizer.front], ids[tokenizer.front :]  # it begins every segment
        name, pieces = pieces[: tokenizer.front], pieces[tokenizer.front :]
        segments, most = [slice(None)], self.max_source_length - tokenizer.front
        if len(ids) > most:
            segments = split(tokenizer.pieces(ids), most)
            log.warning(
                "line %d has %d pieces, more than %d: translated in %d segments",
                number, len(ids), most, len(segments),
            )  # fmt: skip
        asked = demands(
            wish, len(segments), line=number, banned=self._banned,
            encode=self.tokenizers.target.encode,
        )  # fmt: skip
        return [
            Segment([*tag, *ids[s]], [*name, *pieces[s]], demand)
            for s, demand in zip(segments, asked, strict=True)
        ]

    def _search(
        self, segments: Sequence[Segment], workers: BatchWorkers
    ) -> list[list[Translation]]:
        """The n best of every segment, in batches of like length."""
        batches = list(by_length([len(s.ids) + 1 for s in segments], self.tokens_per_batch))
        answers = workers.map([[segments[i] for i in batch] for batch in batches])
        found = dict(zip(itertools.chain(*batches), itertools.chain(*answers), strict=True))
        return [found[i] for i in range(len(segments))]

    def _batch(self, segments: list[Segment], *, need_alignment: bool) -> list[list[Translation]]:
        """The n best of segments that are searched together."""
        wanted = need_alignment or self.unknown_words is not None
        source, mask = self.padded([[*segment.ids, EOS] for segment in segments])
        asked = [segment.demand for segment in segments]
        hypotheses = self.search(self.model, source, mask, demands=asked, need_alignment=wanted)
        return [
            [self._translation(segment, found, need_alignment) for found in n_best]
            for segment, n_best in zip(segments, hypotheses, strict=True)
        ]

    def _translation(
        self, segment: Segment, hypothesis: Hypothesis, need_alignment: bool
    ) -> Translation:
        target, tokens = self.tokenizers.target, list(hypothesis.tokens)
        alignment = None if hypothesis.alignment is None else _numpy(hypothesis.alignment)
        if self.unknown_words is None:
            text = target.decode(tokens)
        else:
            text = self.unknown_words.replace(segment.pieces, tokens, alignment, target)
        return Translation(
            text,
            hypothesis.score,
            hypothesis.log_prob,
            tuple(target.pieces(tokens)),
            hypothesis.token_log_probs,
            alignment if need_alignment else None,
        )

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> list[Score]:
        """How likely each target is as the translation of its source, by teacher forcing.

        Raises:
            UserError: not as many targets as sources.
        """
        source_ids = [self.tokenizers.source.encode(text) for text in sources]
        target_ids = [self.tokenizers.target.encode(text) for text in targets]
        if len(source_ids) != len(target_ids):
            raise UserError(
                f"{len(source_ids)} sources but {len(target_ids)} targets: line n of one must be "
                "the translation of line n of the other"
            )
        scores = [Score(0.0, 0, ())] * len(source_ids)
        longest = [max(map(len, pair)) + 1 for pair in zip(source_ids, target_ids, strict=True)]
        for batch in by_length(longest, self.tokens_per_batch):
            rows = self.forced([source_ids[i] for i in batch], [target_ids[i] for i in batch])
            for i, log_probs in zip(batch, rows, strict=True):
                scores[i] = Score(math.fsum(log_probs), len(log_probs), tuple(log_probs))
        return scores

    @torch.inference_mode()
    def forced(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """The log-probability of every target token, </s> included."""
        memory = self.model.encode(*self.padded([[*ids, EOS] for ids in sources]))
        target_in, mask = self.padded([[BOS, *ids] for ids in targets])
        target_out, _ = self.padded([[*ids, EOS] for ids in targets])
        hidden = self.model.decode(target_in, mask, memory).hidden
        logits = self.model.project(hidden[mask])  # (real tokens, V)
        wide = torch.promote_types(logits.dtype, torch.float32)
        log_probs = logits.log_softmax(-1, dtype=wide).gather(1, target_out[mask][:, None])
        flat = iter(log_probs[:, 0].tolist())
        return [list(itertools.islice(flat, len(ids) + 1)) for ids in targets]

    def align(self, source: str, target: str | None = None) -> AttentionMap:
        """Which source pieces the model looks at for each piece of `target`, or of its own words.

        Raises:
            UserError: the model has no attention over the source, or there is nothing to align.
        """
        if not has_text(source):
            raise UserError("the sentence to align is empty: give one with words")
        source_ids = self.tokenizers.source.encode(source)
        if target is None:
            ((best, *_),) = self.search(self.model, *self.padded([[*source_ids, EOS]]))
            target_ids = list(best.tokens)
            target_pieces = self.tokenizers.target.pieces(target_ids)
            target = self.tokenizers.target.decode(target_ids)
        else:
            target_ids = self.tokenizers.target.encode(target)
            target_pieces = self.tokenizers.target.spelled(target)
        return AttentionMap(
            source,
            target,
            (*self.tokenizers.source.spelled(source), END),
            (*target_pieces, END),
            self._alignment([*source_ids, EOS], [BOS, *target_ids]),
        )

    @torch.inference_mode()
    def _alignment(self, source: list[int], target_in: list[int]) -> Float[np.ndarray, "L H T S"]:
        memory = self.model.encode(*self.padded([source]))
        tokens, mask = self.padded([target_in])
        alignment = self.model.decode(tokens, mask, memory, need_alignment=True).alignment
        if alignment is None:
            raise UserError(NO_ATTENTION)
        return _numpy(alignment[0])

    def padded(self, sentences: list[list[int]]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
        """Token ids as one matrix on the device, and where they are."""
        lengths = torch.tensor([len(ids) for ids in sentences])
        mask = padding_mask(lengths, int(lengths.max()))
        ids = torch.full(mask.shape, PAD)
        ids[mask] = torch.tensor(list(itertools.chain.from_iterable(sentences)))
        return ids.to(self.device), mask.to(self.device)


def load(
    run: str | Path,
    *,
    device: str | torch.device = "auto",
    search: Search | Mapping[str, Any] | None = None,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    unknown_words: UnknownWords | None = None,
    workers: int = 1,
    precision: Precision | None = None,
) -> Translator:
    """The translator in the folder of a run or of a bundle; `search` in place of its own.

    Raises:
        UserError: nothing to load there, or files that are damaged or do not belong together.
    """
    device = choose_device(device)  # a wrong one is told before the work
    loaded = bundle.load(bundle.find(run))
    search = loaded.config.search if search is None else search
    if isinstance(search, Mapping):
        check([] if "kind" in search else [f"search.kind is missing{nearest('', searches.KINDS)}"])
        search = searches.build(**search)
    return Translator(
        in_precision(loaded.model, precision),
        loaded.tokenizers,
        search,
        tokens_per_batch=tokens_per_batch,
        device=device,
        unknown_words=unknown_words,
        workers=workers,
    )


def in_precision(model: Seq2Seq, precision: Precision | None) -> Seq2Seq:
    """The model with its weights as these numbers (a copy), or as they are.

    Sums over the vocabulary and the scores stay in float32: searches see to it.
    """
    if precision is None:
        return model
    return copy.deepcopy(model).to({"float32": torch.float32, "bf16": torch.bfloat16}[precision])


def choose_device(device: str | torch.device) -> torch.device:
    """`auto`: a GPU if there is one.

    Raises:
        UserError: there is no such device here.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device} is not to be had here: try device=auto") from error
    return chosen


def _joined(segments: list[list[Translation]]) -> list[Translation]:
    """The translations of a line from those of its segments: the i-th best of each together."""
    if not segments:
        return [NOTHING]
    if len(segments) == 1:
        return segments[0]
    return [
        Translation(
            " ".join(part.text for part in parts),
            math.fsum(part.score for part in parts),
            math.fsum(part.log_prob for part in parts),
            tuple(itertools.chain.from_iterable(part.tokens for part in parts)),
            tuple(itertools.chain.from_iterable(part.token_log_probs for part in parts)),
            None,
        )
        for parts in zip(*segments, strict=False)  # as many as the shortest list has
    ]


def _numpy(weights: Float[Tensor, "L H T S"]) -> Float[np.ndarray, "L H T S"]:
    wide = torch.promote_types(weights.dtype, torch.float32)  # NumPy has no bfloat16
    array: Float[np.ndarray, "L H T S"] = weights.to("cpu", wide).numpy()
    return array

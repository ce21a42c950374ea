"""Text to text: a trained model, its tokenizers and a search.

The way of a line through `Translator`, with the modules beside this one that have a part in it:

    stream        the line, and the constraint on its translation      text_constraints
    _translate    → CutLine: its texts, and what stands around them       lines
    _segments     → Segment: ids of a text, and its constraint         batches
    _search       segments of like length, shared out to workers       batches
    _batch        as many of them at once as memory holds              batches
    _together     → Hypothesis: from the model                         translate/search
    _translation  → Translation: of a segment, decoded                 unknown_words, confidence
    _search       the n best of each in order                          minimum_bayes_risk
    _translate    → Translation: of the line, joined                   lines

What must be copied is taken out of a segment and put back into its translations (rewriting,
inline). Before they are joined the guard looks at them (guard), and has some made again: by its own
search, clause by clause, or with other names (rewriting).
"""

from __future__ import annotations

import copy
import itertools
import logging
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from translate import machine
from translate import search as searches
from translate.data.plain_text import LINE_BREAK
from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.inference import Engine, Precision, bundle
from translate.inference import confidence as confidence_of
from translate.inference.batches import (
    MAX_SCORED_LENGTH,
    MAX_SOURCE_LENGTH,
    Segment,
    Workers,
    by_halves,
    choose_device,
    default_tokens,
    each,
    most_pieces,
    one_a_core,
    padded,
    shared_out,
    survive_forks,
)
from translate.inference.bundle import Bundle
from translate.inference.confidence import Confidence, evidence
from translate.inference.forcing import TeacherForcing, as_numpy, encoded_pairs
from translate.inference.guard import Guard, configured
from translate.inference.inline import BareText, Placement
from translate.inference.lines import CutLine, Cutter, Protection, never
from translate.inference.markup import Markup
from translate.inference.minimum_bayes_risk import Utility, ranked
from translate.inference.rewriting import Rewriting
from translate.inference.terms import Terms, term_search, with_terms
from translate.inference.text_constraints import (
    NO_CONSTRAINT,
    ConstraintEncoder,
    TextConstraint,
    paired,
)
from translate.inference.translation import AttentionMap, Find, Score, Translation
from translate.inference.unknown_words import UnknownWords
from translate.linear import prepack
from translate.machine import keep_memory
from translate.models.head import AttentionHead, attends, choose_head
from translate.models.seq2seq import Seq2Seq
from translate.names import on_demand
from translate.search import Constraint, Hypothesis, Search, SearchConfig
from translate.vocabulary import EOS

log = logging.getLogger(__name__)

TOKENS_SCORED = 4096  # with all their logits in memory
SMALLEST_SHARE = 1024  # tokens of a worker's batch
WINDOW = 2048  # lines
CAPITAL_NOUNS = ("de", "lb")  # languages in which a capital makes no name
# parameters of a model from which several threads answer a line clearly sooner than one: with fewer
# they gain a seventh, and take several times as long where others use the cores too
WORTH_THREADS = 20_000_000
# what is on the porch, by name
ENGINES = {"ctranslate2": "translate.extras.ctranslate2_engine:load"}
ATTENTION_MAPS = "translate.extras.attention_maps:AttentionMaps"
ENSEMBLE = "translate.extras.ensemble:together"
READ_SHORTLIST = "translate.extras.lexical_shortlist:read"
# Sums over the vocabulary and the scores stay in float32: searches see to it.
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}
QUANTIZE = "translate.extras.int8:quantize"


Batch = tuple[list[Segment], str]  # searched together, by the search of this name
BatchWorkers = Workers[Batch, list[list[Translation]]]


class Translator:
    """A model with its tokenizers and a search: it translates, scores and aligns sentences.

    The model is moved to the device and put in evaluation mode. How lines are batched never
    changes a translation, but for rounding: exact in float64, in float32 up to near-ties.

    Args:
        tokens_per_batch: padded source pieces translated at once, by all workers together; a beam
            needs as much for each hypothesis. None: 8192, on a GPU 16384.
        device: `auto` takes a GPU if there is one.
        max_source_length: a line of more pieces, or of more than the model reads, is translated in
            segments that end with a sentence, else a clause, else a word, with a warning.
        practised: likewise, of a line with more pieces of words; None: the same number.
        common_names: names that training has often shown to stay as they are.
        split_sentences: translate each sentence of a line by itself, as the model has seen them.
        markup: `auto`: a line that is well-formed XML, and has tags or references, is read and
            written as such, if the guard protects tags; of others references are read, and tags
            taken out and put back. `xml`: every line is XML. `none`: `<` and `&` are characters.
        languages: ISO 639-1 codes of source and target, where they are known.
        unknown_words: what to write for each <unk>, by the attention; None leaves them.
        workers: 2 or more: processes of one thread each that translate batches at the same time,
            each its share of `tokens_per_batch`, or 1,024 if that is more.
        mbr: translations of a text are ranked by minimum Bayes risk under this utility; their score
            is then the utility expected of them, of several segments the sum. None: by the score of
            the search.
        guard: what looks for translations that cannot be right; None trusts the search.
        terms: what terms of the source are to be called.
        term_search: searches again for what lacks a term: a beam.
        confidence: what tells how sure a translation is; None where nothing was learned.
        taught: the attention that guided alignment has trained, if any.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizers: Tokenizers,
        search: Search,
        *,
        tokens_per_batch: int | None = None,
        device: str | torch.device = "cpu",
        max_source_length: int = MAX_SOURCE_LENGTH,
        practised: int | None = None,
        common_names: Sequence[str] = (),
        split_sentences: bool = False,
        markup: Markup = "auto",
        languages: tuple[str, str] = ("", ""),
        unknown_words: UnknownWords | None = None,
        workers: int = 1,
        mbr: Utility | None = None,
        guard: Guard | None = None,
        terms: Terms | None = None,
        term_search: Search | None = None,
        confidence: Confidence | None = None,
        taught: AttentionHead | None = None,
    ) -> None:
        self.device = choose_device(device)
        if workers > 1 and self.device.type != "cpu":
            raise UserError(f"workers = {workers} only works on a CPU: set device=cpu or workers=1")
        self.workers = workers
        self.model = model.to(self.device).eval()
        self.tokenizers = tokenizers
        self.search = search
        self._scored_at_once = tokens_per_batch or TOKENS_SCORED
        self.tokens_per_batch = tokens_per_batch or default_tokens(self.device)
        protects_tags = guard is not None and "tag" in guard.config.protect
        self._unguarded = Protection(["tag"] if markup == "xml" else [])
        self._cut = Cutter(
            tokenizers.source,
            language=languages[0],
            limit=most_pieces(model, max_source_length),
            practised=practised,
            sentences=split_sentences,
            markup=markup if markup != "auto" or protects_tags else "references",
        )
        self.unknown_words = unknown_words and unknown_words.read_by(tokenizers.source)
        self.mbr = mbr
        self.common_names = common_names
        self.guard = guard
        self._terms = terms
        others = {"again": None if guard is None else guard.again, "terms": term_search}
        self._others = {name: other for name, other in others.items() if other is not None}
        self.confidence = confidence
        self._taught = taught
        # such a search cuts what it is given into batches itself
        self._whole_windows = getattr(search, "whole_windows", False)
        self._constraint_encoder = ConstraintEncoder(
            tokenizers.target, search.rules.banned,
            max_length=model.max_length, unknown_replaced=unknown_words is not None,
        )  # fmt: skip

    @cached_property
    def forcing(self) -> TeacherForcing:
        """The model, made to read translations that are there already."""
        return TeacherForcing(self.model, self.device)

    @cached_property
    def _placement(self) -> Placement:
        head = None
        if attends(self.model):
            layer = None if self._taught is None else self._taught.layer
            head = choose_head(self.model, layer=layer, head=None)
        return Placement(self.tokenizers, self.forcing, head, tokens_per_batch=TOKENS_SCORED)

    def _placed(
        self, bare: Sequence[BareText], n_best: Sequence[list[Translation]]
    ) -> list[list[Translation]]:
        return self._placement(bare, n_best)

    @property
    def _protection(self) -> Protection:
        return self._unguarded if self.guard is None else self.guard.protection

    def _read(self, line: str) -> str:
        return self._cut.read(line).text

    @cached_property
    def _maps(self) -> Any:
        return on_demand(ATTENTION_MAPS)(self.tokenizers, self.forcing, self._translation_of)

    def translate(self, texts: Iterable[str]) -> list[str]:
        """Return the best translation of each text.

        Each line of a text is translated by itself, and its line breaks stay; only a single line,
        as a file has it, loses the one at its end. Warnings count the lines of all texts.
        """
        parts = [re.split(f"({LINE_BREAK})", text) for text in each(texts)]  # line, break, line …
        parts = [part[:1] if part[2:] == [""] else part for part in parts]
        best = (best.text for best, *_ in self.stream(itertools.chain(*(p[::2] for p in parts))))
        for part in parts:
            part[::2] = itertools.islice(best, len(part[::2]))
        return list(map("".join, parts))

    def check(self, constraints: Iterable[TextConstraint]) -> None:
        """Refuse, line by line, a constraint that no translation can meet.

        Raises:
            UserError: there is one.
        """
        for number, constraint in enumerate(constraints, start=1):
            list(self._constraint_encoder(constraint, 1, number))

    def stream(
        self,
        lines: Iterable[str],
        *,
        window: int | None = None,
        need_alignment: bool = False,
        constraints: TextConstraint | Iterable[TextConstraint] = NO_CONSTRAINT,
    ) -> Generator[list[Translation], None, None]:
        """Yield the n best translations of each line, in input order, best first.

        Reads no further ahead than `window` lines: 1 answers at once, more makes better batches.
        A line without visible characters stays empty. `constraints` is one a line, or that of all.
        """
        if window is not None and (type(window) is not int or window < 1):
            raise UserError(f"window={window!r}: must be a whole number of lines, at least 1")
        asked: Iterator[tuple[str, TextConstraint]]
        if isinstance(constraints, TextConstraint):
            asked = zip(each(lines), itertools.repeat(constraints), strict=False)
        else:
            asked = paired(lines, constraints)
        read = 0
        work = partial(self._batch, need_alignment=need_alignment)
        with Workers(self.workers, work) as workers:
            search: Find = partial(self._search, workers)
            if self._terms is not None:
                search = partial(with_terms, self._terms, self._constraint_encoder, search)
            while ahead := list(itertools.islice(asked, window or WINDOW)):
                yield from self._translate(ahead, read + 1, search)
                read += len(ahead)

    def _translate(
        self, lines: list[tuple[str, TextConstraint]], number: int, search: Find
    ) -> list[list[Translation]]:
        """Return the n best of consecutive lines, the first of which is line `number`."""
        cut: list[CutLine] = []
        words: list[str] = []  # that are asked for
        segments: list[Segment] = []
        for i, (line, constraint) in enumerate(lines, start=number):
            asked = constraint != NO_CONSTRAINT
            cut.append(self._cut(line, i, whole=bool(constraint.phrases), asked=asked))
            count = len(cut[-1].texts)
            encoded: Iterable[Constraint] = [self._constraint_encoder.nothing_asked] * count
            if asked:
                encoded = self._constraint_encoder(constraint, count, i)
            words.append(constraint.words if asked else "")
            segments += self._segments(cut[-1], encoded, words[-1])
        rewriting = Rewriting(
            self._protection, self._cut, self._segments, self._constraint_encoder.nothing_asked,
            self._placed, self.common_names,
        )  # fmt: skip
        if any(each.xml or self._protection.spans(each.text) for each in segments):
            n_best = rewriting.without_items(search, segments)
        else:
            n_best = search(segments)
        if self.guard is not None:
            n_best = self.guard.watch(
                segments, n_best,
                without=partial(rewriting.without_names, search),
                renamed=partial(rewriting.renamed, search, self._protection.first_name),
                apart=partial(rewriting.apart, search),
                again=partial(rewriting.without_items, partial(search, by="again")),
            )  # fmt: skip
        of_texts = iter(n_best)
        joined = [line.joined([next(of_texts) for _ in line.texts]) for line in cut]
        if self.guard is not None:
            joined = [
                self.guard.whole(line, asked, n_best, self._read) if each.case is None else n_best
                for (line, _), asked, each, n_best in zip(lines, words, cut, joined, strict=True)
            ]
            if self.confidence is not None:
                joined = [list(map(self.confidence.marked, n_best)) for n_best in joined]
        for i, (best, *_) in enumerate(joined, start=number):
            if best.mended:
                log.warning("line %d was translated again: %s", i, ", ".join(best.mended))
            if best.flags:
                log.warning("line %d may be wrong: %s", i, ", ".join(best.flags))
        return joined

    def _segments(self, line: CutLine, wanted: Iterable[Constraint], asked: str) -> list[Segment]:
        """Return the segments that the model reads of a line, each with its constraint."""
        spelled = self.tokenizers.source.spelled if self.unknown_words else lambda text: []
        return [
            Segment(text, ids, spelled(text), constraint, asked, line.xml)
            for text, ids, constraint in zip(line.texts, line.ids, wanted, strict=True)
        ]

    def _search(
        self, workers: BatchWorkers, segments: Sequence[Segment], *, by: str = "first"
    ) -> list[list[Translation]]:
        """Return the n best of every segment, searched in batches of like length."""
        share = max(self.tokens_per_batch // self.workers, SMALLEST_SHARE)
        most = min(self.tokens_per_batch, share)
        if self._whole_windows and by == "first":
            most = sys.maxsize
        batches = shared_out([len(s.ids) + 1 for s in segments], most, self.workers)
        answers = workers.map([([segments[i] for i in batch], by) for batch in batches])
        by_index = dict(zip(itertools.chain(*batches), itertools.chain(*answers), strict=True))
        n_best = [by_index[i] for i in range(len(segments))]
        return n_best if self.mbr is None else [ranked(each, self.mbr) for each in n_best]

    def _batch(self, batch: Batch, *, need_alignment: bool) -> list[list[Translation]]:
        """Return the n best of segments that are searched together, as far as memory goes."""
        segments, by = batch
        search = partial(self._together, by=by, need_alignment=need_alignment)
        return by_halves(search, segments, fits=self._remember_size)

    def _remember_size(self, tokens: int) -> None:
        """Make later batches no larger than memory holds."""
        self.tokens_per_batch = min(self.tokens_per_batch, tokens)

    def _together(
        self, segments: list[Segment], *, by: str, need_alignment: bool
    ) -> list[list[Translation]]:
        search = self.search if by == "first" else self._others[by]
        wanted = need_alignment or self.unknown_words is not None
        hypotheses = self._hypotheses(search, segments, need_alignment=wanted)
        return [
            [self._translation(segment, hypothesis, need_alignment) for hypothesis in n_best]
            for segment, n_best in zip(segments, hypotheses, strict=True)
        ]

    def _hypotheses(
        self, search: Search, segments: Sequence[Segment], *, need_alignment: bool
    ) -> list[list[Hypothesis]]:
        ids = [[*segment.ids, EOS] for segment in segments]
        source, mask = padded(ids, self.device, self.model.source_multiple)
        asked = [segment.constraint for segment in segments]
        return search(self.model, source, mask, constraints=asked, need_alignment=need_alignment)

    def _translation(
        self, segment: Segment, hypothesis: Hypothesis, need_alignment: bool
    ) -> Translation:
        target, tokens = self.tokenizers.target, list(hypothesis.tokens)
        alignment = None if hypothesis.alignment is None else as_numpy(hypothesis.alignment)
        if self.unknown_words is None:
            text = target.decode(tokens)
        else:
            text = self.unknown_words.replace(
                segment.pieces, tokens, alignment, target, front=self.tokenizers.source.front,
                prefix=len(segment.constraint.prefix), banned=self.search.rules.banned,
            )  # fmt: skip
        banned: list[str] = []
        if self.search.rules.banned:
            banned = self._constraint_encoder.banned_in(text, segment.constraint.prefix)
        confidence = None
        if self.confidence is not None and not segment.fixed:  # of demands nothing was learned
            confidence = self.confidence(evidence(hypothesis.log_prob, len(tokens)))
        return Translation(
            text=text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            tokens=tuple(target.pieces(tokens)),
            token_log_probs=hypothesis.token_log_probs,
            alignment=alignment if need_alignment else None,
            finished=hypothesis.finished,
            flags=tuple(f"banned {never}" for never in banned),
            confidence=confidence,
        )

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> list[Score]:
        """Score each target as the translation of its source, by teacher forcing.

        Raises:
            UserError: not as many targets as sources, or a pair longer than is read at once.
        """
        source_ids, target_ids = encoded_pairs(
            self.tokenizers, sources, targets, limit=most_pieces(self.model, MAX_SCORED_LENGTH)
        )
        tokens = min(self.tokens_per_batch, self._scored_at_once)
        return self.forcing.scores(source_ids, target_ids, tokens)

    def align(self, source: str, target: str | None = None) -> AttentionMap:
        """Show where the model looks in the source, for each piece of `target` or of its own words.

        Raises:
            UserError: the model has no attention over the source, or there is nothing to align.
        """
        attention: AttentionMap = self._maps.cross(source, target)
        return attention

    def self_attention(
        self, source: str, target: str | None = None, *, side: Literal["encoder", "decoder"]
    ) -> AttentionMap:
        """Show where each piece (row) looks in its own sentence (columns).

        The encoder reads the source and </s>; the decoder reads <s> and the pieces of `target`, or
        of the model's own translation, and from each predicts the next.

        Raises:
            UserError: the model has no self-attention or no such side, or the source is empty.
        """
        attention: AttentionMap = self._maps.within(source, target, side=side)
        return attention

    def _translation_of(self, source_ids: list[int]) -> list[int]:
        """Return the model's translation of a source, by the search alone."""
        asked = self._constraint_encoder.nothing_asked
        segment = Segment(self.tokenizers.source.decode(source_ids), source_ids, [], asked)
        ((best, *_),) = self._hypotheses(self.search, [segment], need_alignment=False)
        return list(best.tokens)


def load(
    run: str | Path | Bundle,
    *,
    ensemble: Sequence[str | Path] = (),
    target: str | None = None,
    search: Search | SearchConfig | str | Mapping[str, Any] | None = None,
    split_sentences: bool = False,
    markup: Markup = "auto",
    guard: Guard | str | Mapping[str, Any] | None = None,
    terms: str | Path | None = None,
    mbr: Utility | None = None,
    shortlist: str | Path | None = None,
    unknown_words: UnknownWords | None = None,
    confidence: Confidence | bool = False,
    engine: Engine = "native",
    export: str | Path | None = None,
    workers: int | None = 1,
    precision: Precision | None = None,
    device: str | torch.device = "auto",
    tokens_per_batch: int | None = None,
    interactive: bool = False,
) -> Translator:
    """Return the translator of a run or of a bundle, in its folder or loaded already.

    Args:
        ensemble: further runs, whose probabilities are averaged with its own.
        target: the tag of the language to translate into, of a multilingual run.
        search: in place of its own: the name of an option of conf/search, or keys of it. Keys
            change its own search, or with another `kind` that option.
        guard: what looks for translations that cannot be right: the name of an option of
            conf/guard, or keys of it, laid over `default`. None trusts the search.
        terms: a file of terms of the source and what they are to be called, with tabs between.
        shortlist: a file of `translate shortlist`.
        confidence: how sure a translation is; True reads what `translate calibrate` has learned.
        engine: `ctranslate2` translates with what `translate export` has written, in the folder
            `export` or else in that of the run.
        workers: None: one a core, where lines can be shared out.
        precision: the numbers to compute with; None: those of the weights. In `int8` a text never
            depends on how lines are batched.
        interactive: each line is answered before the next one comes.

    `Translator` describes the others. The process keeps the memory it has from then on, and what is
    forked from it computes on one thread.

    Raises:
        UserError: nothing to load there, or files that are damaged or do not belong together.
    """
    counts: dict[str, object] = {"workers": workers, "tokens_per_batch": tokens_per_batch}
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 1):
            raise UserError(f"{name}={count!r}: must be a whole number of at least 1")
    for name, value, known in (("markup", markup, Markup), ("precision", precision, Precision)):
        if value is not None and value not in get_args(known):
            raise UserError(f"{name}={value!r}: must be one of {', '.join(get_args(known))}")
    if not isinstance(split_sentences, bool):
        raise UserError(f"split_sentences={split_sentences!r}: must be True or False")
    keep_memory()
    survive_forks()
    device = choose_device(device)  # refuse a wrong one before the work
    if device.type == "meta":
        raise UserError("device=meta has shapes, and no numbers: try device=auto")
    if isinstance(run, Bundle):
        loaded = run
    elif not isinstance(run, str | Path):
        raise UserError(f"{run!r} is no path: give the folder of a run")
    else:
        loaded = bundle.of_run(run)
        if ensemble:
            others = [(str(other), bundle.of_run(other)) for other in ensemble]
            loaded = on_demand(ENSEMBLE)([(str(run), loaded), *others])
    loaded = loaded.into(target)
    glossary = None if terms is None else Terms.read(terms)
    chosen = searches.chosen(search, loaded.config.search)
    options: Any = getattr(chosen, "config", None)  # a search of one's own may have none
    limiting: Callable[[Search], Search] | None = None
    if shortlist is not None:
        limiting = on_demand(READ_SHORTLIST)(Path(shortlist), loaded.tokenizers).limiting
    node = configured(guard, options) if isinstance(guard, str | Mapping) else None
    if node is not None:
        node = node.reading(markup)
        source_language, target_language = loaded.config.languages
        foreign = source_language != target_language
        tokenizer = loaded.tokenizers.source
        guard = Guard(
            node, options, foreign=foreign, limiting=limiting, lacks=tokenizer.lacks,
            rare=never if source_language in CAPITAL_NOUNS else tokenizer.is_rare,
        )  # fmt: skip
    learned = confidence if isinstance(confidence, Confidence) else None
    as_learned = loaded.tokenizers.source.tag == loaded.config.tag and not (
        isinstance(run, Bundle) or ensemble or shortlist or mbr or precision in ("bf16", "int8")
    )
    if confidence is True and as_learned and Path(str(run), confidence_of.FILE).exists():
        learned = confidence_of.read(
            Path(str(run)),
            weights_sha256=loaded.weights_sha256,
            search=options.model_dump(mode="json"),
        )
    if interactive:
        _answer_at_once(loaded.model, engine)
        workers = 1
    if engine != "native":
        chosen = on_demand(ENGINES[engine])(
            Path(str(run), engine) if export is None else Path(export),
            str(run), loaded, options.model_dump(mode="json"),
            tokens_per_batch=tokens_per_batch, workers=workers, device=device,
        )  # fmt: skip
    elif workers is None:
        workers = one_a_core(device)
    translator = Translator(
        _in_precision(loaded.model, precision, shared=isinstance(run, Bundle)),
        loaded.tokenizers,
        chosen if limiting is None else limiting(chosen),
        tokens_per_batch=tokens_per_batch,
        device=device,
        practised=loaded.config.practised,
        common_names=loaded.config.common_names,
        split_sentences=split_sentences,
        markup=markup,
        languages=loaded.config.languages,
        unknown_words=unknown_words,
        workers=workers if engine == "native" and workers else 1,
        mbr=mbr,
        guard=guard if isinstance(guard, Guard) else None,
        terms=glossary,
        term_search=None if glossary is None else term_search(options),
        confidence=learned,
        taught=loaded.config.taught,
    )
    if precision == "int8":
        on_demand(QUANTIZE)(translator.model)
    else:
        prepack(translator.model)
    return translator


def _in_precision(model: Seq2Seq, precision: Precision | None, *, shared: bool) -> Seq2Seq:
    """Return a model with weights to compute in this precision: for int8 no `shared` ones."""
    if precision is None:
        return model
    wanted = model.in_dtype(DTYPES[precision])
    lent = precision == "int8" and shared and wanted is model
    return copy.deepcopy(wanted) if lent else wanted


def _answer_at_once(model: Seq2Seq, engine: Engine) -> None:
    """Let PyTorch compute with one thread where more do not pay for a line by itself.

    Beside PyTorch's threads another engine waits for its own.
    """
    parameters = sum(weight.numel() for weight in model.parameters())
    small = parameters < WORTH_THREADS and not machine.THREADS_ARE_CHOSEN
    if small or engine != "native":
        torch.set_num_threads(1)

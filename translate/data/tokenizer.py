"""Sentences to subword ids and back, by SentencePiece (Kudo and Richardson 2018)."""

from __future__ import annotations

import hashlib
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, Protocol

import sentencepiece
from pydantic import AfterValidator, Field, PositiveInt

from translate import config as schema
from translate.config import Node
from translate.data.plain_text import one_line, without_surrogates
from translate.errors import UserError
from translate.files import read_plain
from translate.names import on_demand
from translate.vocabulary import BOS, EOS, PAD, UNK

Words = list[list[int]]  # the pieces of each word
Kind = Literal["unigram", "bpe", "char", "word"]
Normalization = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]
UNIGRAM_SAMPLER = "translate.extras.subword_sampling:UnigramSampler"
BPE_SAMPLER = "translate.extras.subword_sampling:BPESampler"
WORD_START = "▁"  # SentencePiece's mark for a space before a piece
WORD = re.compile(f"{WORD_START}[^{WORD_START}]*|[^{WORD_START}]+")
DRAWS = 4  # of a sentence, if they are too long
UNKNOWN, START, END = "<unk>", "<s>", "</s>"  # the names of these pieces
RESERVED = ("pad", "unk", "s")
SYMBOLS = {"No", "Sc", "Sk", "Sm", "So"}  # numbers such as ², currencies, mathematics, others
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
ERRORS_ONLY = 2  # SentencePiece's log level: its errors are raised, all else is chatter on stderr
THREADS = 2  # fixed: sums over another number of threads round otherwise, into another model
# bytes; SentencePiece skips longer ones silently, cleaning has decided before
LONGEST_LINE = 1 << 20
RARE = 3  # pieces of a rare word, at least, and letters of each, at most
LARGEST_MODEL = 1 << 27  # bytes


class Sampling(Node):
    """The node `tokenizer.sampling`: segment the training text anew each epoch; 0 is off."""

    alpha: float = Field(
        ge=0, le=1,
        description="subword regularisation of unigram: the smaller above 0, the wilder; 0.2 to "
        "0.5 is usual",
    )  # fmt: skip
    dropout: float = Field(
        ge=0, lt=1,
        description="subword regularisation of bpe: the probability of skipping a merge; 0.1 is "
        "usual",
    )  # fmt: skip


class Sampler(Protocol):
    """A callable that draws a segmentation of one word."""

    def __call__(self, word: str, random: Random) -> list[str]:
        """Pieces that spell `word`; a character without a piece stands by itself."""


OFF = Sampling(alpha=0.0, dropout=0.0)


def _names_a_tag(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or name in RESERVED:
        raise ValueError(
            f"{name!r} cannot be a tag: use letters, digits, - and _, starting with a letter, and "
            f"not {', '.join(RESERVED)}"
        )
    return name


Tag = Annotated[str, AfterValidator(_names_a_tag)]  # `bt` is the piece <bt>


class TokenizerConfig(schema.Node):
    """The node `tokenizer`: how SentencePiece learns a vocabulary, or whose is taken.

    A change of any key but `sampling` prepares the corpus anew. With `pretrained`, only `kind`,
    `joint` and `sampling` count.
    """

    kind: Kind = Field(description="how words are cut into pieces")
    joint: bool = Field(
        description="one vocabulary for both languages; false: one each, of vocab_size pieces each"
    )
    vocab_size: int = Field(
        gt=4, lt=2**31,
        description="pieces of a vocabulary, special tokens and bytes included; for char and word "
        "the most there may be",
    )  # fmt: skip
    hard_vocab_limit: bool = Field(
        description="true: an error where the text cannot give vocab_size pieces (unigram, bpe); "
        "false: take fewer"
    )
    character_coverage: float = Field(
        ge=0.98, le=1,  # SentencePiece's bounds
        description="share of the text's characters that get a piece; 0.9995 for Chinese or "
        "Japanese",
    )  # fmt: skip
    byte_fallback: bool = Field(
        description="spell unknown characters out in bytes, so that nothing is unknown (not with "
        "word)"
    )
    normalization: Normalization = Field(
        description="SentencePiece's rules for characters that are written in several ways; those "
        "with _cf make all letters small"
    )
    train_sentences: PositiveInt = Field(
        description="sentences that the vocabulary is learned from, drawn by data.seed"
    )
    # the default is for runs that were begun without this key, which are still evaluated
    pretrained: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="a run, a bundle or a folder with source.spm and target.spm, to take its "
        "vocabulary; null: learn one",
    )
    sampling: Sampling = Field(description="segment the training text anew each epoch; 0 is off")

    def contradictions(self) -> Iterator[str]:
        if self.byte_fallback and self.kind == "word":
            yield (
                "tokenizer.byte_fallback = true: a word model would spell out everything after "
                "the first unknown word in bytes, including spaces and known words; set it to "
                "false or choose tokenizer=unigram or tokenizer=bpe"
            )
        strengths = (("alpha", "unigram", "dropout"), ("dropout", "bpe", "alpha"))
        for name, only, other in strengths:
            strength = getattr(self.sampling, name)
            if strength and self.kind in ("char", "word"):
                yield (
                    f"tokenizer.sampling.{name} = {strength}: a {self.kind} model has one way to "
                    "split a sentence, so there is nothing to sample; set it to 0 or choose "
                    "tokenizer=unigram or tokenizer=bpe"
                )
            elif strength and self.kind != only:
                yield (
                    f"tokenizer.sampling.{name} = {strength} is for kind {only}, not {self.kind}; "
                    f"set it to 0 and tokenizer.sampling.{other} instead"
                )


class Tokenizer:
    """A trained SentencePiece model with the ids of translate/vocabulary.py.

    Args:
        model: the serialised SentencePiece model.
        sampling: strength of `sample`; a matter of the training run, not part of the model.
        tag: a piece before every text, such as <bt> for `bt`: where a source comes from, or which
            language it is to be translated into. No text can spell it.

    Raises:
        UserError: no SentencePiece model of this program, or one without the tag.
    """

    def __init__(self, model: bytes, *, sampling: Sampling = OFF, tag: str | None = None) -> None:
        sentencepiece.set_min_log_level(ERRORS_ONLY)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError) as error:
            raise UserError(
                f"these {len(model)} bytes are not a SentencePiece model ({error})"
            ) from None
        ids = {name: getattr(self._processor, name)() for name in SPECIAL}
        if ids != SPECIAL:
            raise UserError(
                f"the SentencePiece model has the special ids {ids}, but needs {SPECIAL}"
            )
        self._model = model
        self.sampling, self.tag = sampling, tag
        names = {self._processor.id_to_piece(i): i for i in range(len(self))}
        self._bytes = [names[byte] for byte in BYTES if byte in names]
        controls = {name: i for name, i in names.items() if self._processor.is_control(i)}
        self.tags = tuple(name[1:-1] for name, i in controls.items() if i not in SPECIAL.values())
        self.prefix = self._tag_ids(tag)
        special = {*self._bytes, *controls.values(), UNK}
        self._ids = {name: [i] for name, i in names.items() if i not in special}
        self._names = list(names)
        if self.whole_words:
            self._names[UNK] = WORD_START + self._names[UNK]
        scores = {name: self._processor.get_score(i) for name, (i,) in self._ids.items()}
        self._sampler: Sampler | None = None
        if sampling.alpha:
            self._sampler = on_demand(UNIGRAM_SAMPLER)(scores, alpha=sampling.alpha)
        elif sampling.dropout:
            self._sampler = on_demand(BPE_SAMPLER)(scores, dropout=sampling.dropout)

    @classmethod
    def load(cls, path: Path, *, sampling: Sampling = OFF) -> Tokenizer:
        """Read a model file; UserError if it is missing or no SentencePiece model."""
        try:
            return cls(read_plain(path, largest=LARGEST_MODEL), sampling=sampling)
        except OSError as error:
            raise UserError(f"tokenizer {path} cannot be read ({error.strerror})") from None
        except UserError as error:
            raise UserError(f"tokenizer {path}: {error}") from None

    def to_bytes(self) -> bytes:
        return self._model

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self._model).hexdigest()

    def __len__(self) -> int:
        return int(self._processor.vocab_size())

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Tokenizer, sampling=self.sampling, tag=self.tag), (self._model,)

    @property
    def front(self) -> int:
        """The number of pieces before the text: 1 for a tag."""
        return len(self.prefix)

    def tagged(self, tag: str | None) -> Tokenizer:
        """The same tokenizer with another tag, or none."""
        other = Tokenizer.__new__(Tokenizer)  # all else is shared, what is remembered of words too
        vars(other).update(vars(self), tag=tag, prefix=self._tag_ids(tag))
        return other

    def encode(self, text: str) -> list[int]:
        """The ids of the best segmentation, without `<s>` and `</s>`; [] for white space."""
        return self._after_tag(self._processor.encode(_readable(text), out_type=int))

    def encode_words(self, text: str) -> Words:
        """The ids of each word, words being what stands between white space.

        Behind a tag, which is no word, they are `encode(text)` together, but that a run of unknown
        words stays apart. A word of invisible characters alone may have none.
        """
        words = _readable(text).split()
        return [list(ids) for ids in self._processor.encode(words, out_type=int, num_threads=1)]

    def encode_all(self, texts: Sequence[str], *, threads: int) -> list[list[int]]:
        """`encode` of many texts at once, in their order."""
        clean = [_readable(text) for text in texts]
        segmented = self._processor.encode(clean, out_type=int, num_threads=threads)
        return [self._after_tag(ids) for ids in segmented]

    def sample(self, text: str, seed: int, most: int | None = None) -> list[int]:
        """One random segmentation: the same for the same text and seed, in any process.

        A draw of more than `most` pieces is drawn again, and after `DRAWS` gives way to the best
        segmentation, so that batches can be planned by length. Without sampling this is `encode`.
        """
        best = self.encode(text)
        if self._sampler is None:
            return best
        random = Random(seed)
        words = WORD.findall(self._processor.normalize(_readable(text)))
        for _ in range(DRAWS):
            ids = best[: len(self.prefix)]
            for word in words:
                for piece in self._sampler(word, random):
                    ids += self._ids.get(piece) or self._spell(piece, ids)
            if most is None or len(ids) <= most:
                return ids
        return best

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`: one line, valid Unicode whatever they are, without special tokens."""
        return one_line(self._processor.decode(list(map(int, ids))))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The name of each id: `▁the`, `</s>`, `<0x0A>`, `<unk>`; `▁<unk>` among whole words."""
        return [self._names[i] for i in ids]

    def spelled(self, text: str) -> list[str]:
        """The pieces of `encode`, but an unknown one as the text has it and not as `<unk>`."""
        pieces = list(self._processor.encode(_readable(text), out_type=str))
        return [*self.pieces(self.prefix), *pieces] if pieces else []

    def surfaces(self, text: str) -> list[str]:
        """Return the part of the text that each piece of `encode` stands for, a tag aside."""
        pieces = self._processor.encode(_readable(text), return_type="proto").pieces
        return [piece.surface for piece in pieces]

    @cached_property
    def _letters(self) -> set[str]:
        return set("".join(self._ids))

    def lacks(self, character: str) -> bool:
        """Tell whether no piece has a character, or one reads a symbol (m²) as another (m2)."""
        if self.whole_words or character.isspace():
            return False
        read = str(self._processor.normalize(character)).replace(WORD_START, "")
        changed = read != character and unicodedata.category(character) in SYMBOLS
        return changed or not self._letters.issuperset(read)

    def is_rare(self, word: str) -> bool:
        """Tell whether a word is spelled in short pieces: training then had it hardly ever."""
        pieces = len(self._processor.encode(word))
        return pieces >= RARE and pieces * RARE >= len(word)

    def normalised(self, text: str) -> str:
        """The text as it is read: composed, perhaps in lower case, without spaces around it."""
        return str(self._processor.normalize(_readable(text))).replace(WORD_START, " ").strip()

    @cached_property
    def whole_words(self) -> bool:
        """True if every piece is a word with the space before it (kind `word`), `<unk>` too."""
        return all(name.startswith(WORD_START) for name in self._ids)

    @cached_property
    def kind(self) -> Kind:
        """The kind of its pieces: byte-pair encoding counts them, where others have weights."""
        if self.whole_words:
            return "word"
        if all(len(name) == 1 for name in self._ids):
            return "char"
        scores = (self._processor.get_score(i) for (i,) in self._ids.values())
        return "bpe" if all(score.is_integer() for score in scores) else "unigram"

    def is_unknown(self, token: int) -> bool:
        """Tell whether `token` stands for a character without a piece: `<unk>` or one byte."""
        return token == UNK or bool(self._processor.is_byte(int(token)))

    def _after_tag(self, ids: Sequence[int]) -> list[int]:
        return [*self.prefix, *ids] if ids else []

    def _tag_ids(self, tag: str | None) -> list[int]:
        if tag is None:
            return []
        if tag not in self.tags:
            there = ", ".join(self.tags) or "none"
            raise UserError(f"this tokenizer knows no tag {tag}; it has {there}")
        return [self._processor.piece_to_id(f"<{tag}>")]

    def _spell(self, character: str, before: list[int]) -> list[int]:
        """A character without a piece: its bytes, or one `<unk>` for a run of such characters."""
        if self._bytes:
            return [self._bytes[byte] for byte in character.encode()]
        return [] if before[-1:] == [UNK] else [UNK]


def _readable(text: str) -> str:
    """Tidy a text like training text: one line of words with one space between them."""
    return " ".join(without_surrogates(text).split())


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both languages; equal, except for a tag, when the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source.sha256 == self.target.sha256

    def tagged(self, tag: str | None) -> Tokenizers:
        """The same with another tag before every source, or none."""
        return Tokenizers(self.source.tagged(tag), self.target)

    def save(self, folder: Path) -> None:
        """Write source.spm and target.spm."""
        for name, tokenizer in (("source", self.source), ("target", self.target)):
            (folder / f"{name}.spm").write_bytes(tokenizer.to_bytes())

    @classmethod
    def load(cls, folder: Path, *, sampling: Sampling = OFF) -> Tokenizers:
        """Read source.spm and target.spm; two equal files are one joint vocabulary, held once."""
        source, target = (
            Tokenizer.load(folder / f"{name}.spm", sampling=sampling)
            for name in ("source", "target")
        )
        both = cls(source, target)
        return cls(source, source) if both.joint else both

    @classmethod
    def find(cls, place: Path) -> Tokenizers:
        """Load those of a run, a bundle, or a folder with source.spm and target.spm."""
        for folder in (place, place / "bundle"):
            if (folder / "source.spm").is_file():
                return cls.load(folder)
        raise UserError(
            f"tokenizer.pretrained = {place}: there is no source.spm; name a run, a bundle, or "
            "another folder with source.spm and target.spm"
        )


def own_vocabulary(config: TokenizerConfig, run: Path) -> TokenizerConfig:
    """Name the run itself for a pretrained vocabulary, if it has it: the place of old may be gone.

    A configuration without `pretrained` stays as it is.
    """
    if config.pretrained and (run / "bundle" / "source.spm").is_file():
        return config.model_copy(update={"pretrained": str(run)})
    return config


def check_tokenizer(config: Mapping[str, Any]) -> list[str]:
    """Return every problem of the node `tokenizer`, one line each."""
    return schema.problems(TokenizerConfig, config, "tokenizer")


class Sentences(Protocol):
    """Texts to learn a vocabulary from: a list, or what reads them from a disk."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...


def train_tokenizer(
    sentences: Sentences,
    *,
    kind: Kind,
    vocab_size: int,
    hard_vocab_limit: bool,
    character_coverage: float,
    byte_fallback: bool,
    normalization: Normalization,
    train_sentences: int,
    seed: int,
    what: str = "the text",
    tags: Sequence[str] = (),
) -> Tokenizer:
    """Train on at most `train_sentences` sentences, drawn by `seed`: same input, same model.

    `vocab_size` counts all pieces, specials and bytes included; it is exact for unigram and bpe
    with `hard_vocab_limit`, else the most there may be. `what` names the sentences in messages.
    `tags` get a piece each, which counts.

    Raises:
        UserError: if the text cannot give that many pieces (with the largest possible number), or
        needs more.
    """
    sample: Iterable[str] = sentences
    if len(sentences) > train_sentences:
        # drawn here: SentencePiece's own reservoir depends on the state of its generator
        chosen = set(Random(seed).sample(range(len(sentences)), train_sentences))
        sample = (sentence for i, sentence in enumerate(sentences) if i in chosen)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=map(without_surrogates, sample),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            # the inventory of characters or words is what the text has: a size can only cap it
            hard_vocab_limit=hard_vocab_limit and kind in ("unigram", "bpe"),
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            normalization_rule_name=normalization,
            control_symbols=[f"<{tag}>" for tag in tags],
            max_sentence_length=LONGEST_LINE,
            num_threads=THREADS,
            minloglevel=ERRORS_ONLY,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
        )
    except RuntimeError as error:
        raise UserError(_training_problem(str(error), vocab_size, what)) from None
    return Tokenizer(model.getvalue())


def _training_problem(message: str, vocab_size: int, what: str) -> str:
    asked = f"tokenizer.vocab_size = {vocab_size}"
    if largest := re.search(r"Please set it to a value <= (\d+)", message):
        return (
            f"{asked} is more than {what} can provide: set tokenizer.vocab_size={largest[1]} or "
            "less, or tokenizer.hard_vocab_limit=false to accept a smaller vocabulary"
        )
    return (
        f"SentencePiece could not learn a vocabulary with {asked} from {what}: {message}; if it is "
        "too small for the characters (and the 256 bytes of tokenizer.byte_fallback), raise it or "
        "lower tokenizer.character_coverage"
    )

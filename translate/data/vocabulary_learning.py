"""A vocabulary from text: SentencePiece's training, its limits told in our words."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Protocol

import sentencepiece

from translate.data.text import without_surrogates
from translate.data.tokenizer import ERRORS_ONLY, Kind, Normalization, Tokenizer
from translate.errors import UserError
from translate.vocabulary import BOS, EOS, PAD, UNK

THREADS = 2  # fixed: sums over another number of threads round otherwise, into another model
# bytes; SentencePiece skips longer ones silently, cleaning has decided before
LONGEST_LINE = 1 << 20


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
    if needed := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return (
            f"{asked} is too small: the characters of {what} and the special tokens alone need "
            f"{needed[2]}; raise it or lower tokenizer.character_coverage"
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return (
            f"{what} has no visible character to learn a vocabulary from; check the files of data"
        )
    if "(vocab_size) >= (0)" in message:
        return f"{asked} leaves no room for the 256 bytes of tokenizer.byte_fallback; raise it"
    return f"SentencePiece could not learn a vocabulary with {asked} from {what}: {message}"

"""Which tokeniser BLEU takes: 13a parts words at spaces, which not all languages have."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from itertools import chain

from translate.errors import UserError
from translate.evaluation.metrics import DEFAULT, build_metrics
from translate.evaluation.words import mostly_alone

log = logging.getLogger(__name__)

TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # as sacreBLEU chooses
CODES = {
    **dict.fromkeys(["zho", "chi", "cmn", "cn", "chinese"], "zh"),
    **dict.fromkeys(["jpn", "jp", "japanese"], "ja"),
    **dict.fromkeys(["kor", "korean"], "ko"),
}


def settle(tokenize: str | None, language: str, references: Iterable[Sequence[str]]) -> str:
    """BLEU's tokeniser: the one that is named, else that of the target language.

    The language is free text; what is known of it is read from `zh-TW`, `zho_Hans` or `Chinese`.

    Raises:
        UserError: the one that is named is unknown or not installed.
    """
    if tokenize is None:
        code = re.split(r"[\W_]", language.strip().lower())[0]
        tokenize = _installed(TOKENIZERS.get(CODES.get(code, code), DEFAULT))
    build_metrics(tokenize)
    if tokenize == DEFAULT and mostly_alone("".join(chain.from_iterable(references))):
        log.warning(
            "BLEU's tokenizer 13a and TER part words at spaces, and the references are in a script "
            "without: evaluate with tokenize=char, or train with the language as data.target "
            "(%r says nothing of it)", language,
        )  # fmt: skip
    return tokenize


def _installed(tokenize: str) -> str:
    try:
        build_metrics(tokenize)
    except UserError as error:
        log.warning("BLEU counts characters (tokenize=char): %s", error)
        return "char"
    return tokenize

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
    Where that is nothing and the references have no spaces, BLEU counts characters: by 13a a
    sentence is one word, and nearly right translations score 0.

    Raises:
        UserError: the one that is named is unknown or not installed.
    """
    if tokenize is not None:
        build_metrics(tokenize)
        return tokenize
    code = re.split(r"[\W_]", language.strip().lower())[0]
    known = TOKENIZERS.get(CODES.get(code, code))
    if known is not None:
        return _installed(known)
    if mostly_alone("".join(chain.from_iterable(references))):
        log.warning(
            "BLEU counts characters (tokenize=char): the references are in a script "
            "without spaces, and the language %r has no tokenizer of its own, unlike "
            "zh, ja and ko", language,
        )  # fmt: skip
        return "char"
    return DEFAULT


def _installed(tokenize: str) -> str:
    try:
        build_metrics(tokenize)
    except UserError as error:
        log.warning("BLEU counts characters (tokenize=char): %s", error)
        return "char"
    return tokenize

"""Unknown words are replaced by the source words they attend to, in every kind of vocabulary."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from small_translators import learned

from translate.data.tokenizer import Tokenizer, Tokenizers
from translate.errors import UserError
from translate.inference.text_constraints import TextConstraint
from translate.inference.translator import Translator
from translate.inference.unknown_words import UnknownWords, spelling_spans
from translate.search import Hypothesis, build
from translate.search.constraints import NO_RULES
from translate.vocabulary import UNK

SENTENCES = [
    f"{a} {b} {c}."
    for a, b, c in itertools.product(
        ["the", "a", "el"], ["dog", "cat", "Schrodinger"], ["eats", "sleeps", "come"]
    )
]


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    kinds = ("word", "char", "unigram", "bpe")
    return {kind: learned(SENTENCES, kind=kind, vocab_size=60) for kind in kinds}


def diagonal(tokenizer: Tokenizer, source: str, target: str) -> np.ndarray:
    """Each character of the target looks at the character of the source at the same place."""

    def middles(pieces: list[str]) -> np.ndarray:
        ends = np.cumsum([len(piece) for piece in pieces])
        return (ends - np.array([len(piece) / 2 for piece in pieces])) / ends[-1]

    rows, columns = middles(tokenizer.spelled(target)), middles(tokenizer.spelled(source))
    weights = np.exp(-300 * (rows[:, None] - columns) ** 2)
    weights = np.pad(weights, ((0, 1), (0, 1)), constant_values=1.0)  # </s> looks everywhere
    return (weights / weights.sum(1, keepdims=True))[None, None]


def replaced(tokenizer: Tokenizer, source: str, target: str, **dictionary: str) -> str:
    return UnknownWords(dictionary).replace(
        tokenizer.spelled(source), tokenizer.encode(target),
        diagonal(tokenizer, source, target), tokenizer,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["word", "char", "unigram", "bpe"])
@pytest.mark.parametrize(
    "target", ["the Xyrodinxer eats.", "Xyrodinxer eats.", "the dog Xyrodinxer", "XX the XX."]
)
def test_the_text_is_the_target_with_the_source_word_in_place(tokenizers, kind, target) -> None:
    """The source is the target but for the unknown word, so every <unk> looks at its like."""
    tokenizer = tokenizers[kind]
    assert UNK in tokenizer.encode(target)
    source = target.replace("Xyrodinxer", "Żółwiowaty").replace("XX", "Ąą")
    assert replaced(tokenizer, source, target) == source


@pytest.mark.parametrize("kind", ["char", "unigram", "bpe"])
def test_the_whole_source_word_stands_for_the_whole_target_word(tokenizers, kind) -> None:
    tokenizer = tokenizers[kind]
    pieces = tokenizer.spelled("el perro Schrödinger come.")
    tokens = tokenizer.encode("the dog Schrxdinger, eats.")
    assert tokens.count(UNK) >= 1  # x, and the comma where it is no piece
    weights = np.zeros((1, 1, len(tokens) + 1, len(pieces) + 1))
    weights[..., pieces.index("ö")] = 0.3  # one character of the word
    weights[..., -1] = 0.7  # </s> never counts
    text = UnknownWords({}).replace(pieces, tokens[: tokens.index(UNK) + 1], weights, tokenizer)
    assert text == "the dog Schrödinger"


def test_weights_are_the_mean_of_layers_and_heads(tokenizers) -> None:
    tokenizer = tokenizers["word"]
    pieces, tokens = tokenizer.spelled("uno dos"), [UNK]
    weights = np.zeros((2, 2, 2, 3))
    weights[:, :, 0] = [0.6, 0.4, 0.0]
    weights[1, 1, 0] = [0.0, 1.0, 0.0]
    assert UnknownWords({}).replace(["▁uno", "▁dos"], tokens, weights, tokenizer) == "dos"
    assert pieces == ["▁uno▁dos"]  # neighbours without a piece are one word to SentencePiece


def test_a_tag_is_no_word(tokenizers) -> None:
    weights = np.array([[[[0.9, 0.1, 0.0], [0.0, 0.0, 1.0]]]])
    found = UnknownWords({}).replace(["<fr>", "▁Zxqv"], [UNK], weights, tokenizers["word"], front=1)
    assert found == "Zxqv"


def test_a_dictionary_translates_what_would_be_copied(tokenizers) -> None:
    for kind in ("word", "char"):
        tokenizer = tokenizers[kind]
        assert replaced(tokenizer, "el Perro come.", "the Xxxxx come.", Perro="Dog") == (
            "the Dog come."
        )
        assert replaced(tokenizer, "el Perro come.", "the Xxxxx come.", perro="dog") == (
            "the dog come."
        )


@pytest.mark.parametrize("kind", ["char", "unigram", "bpe"])
def test_a_prefix_stays_where_the_next_piece_went_on_with_its_word(tokenizers, kind) -> None:
    """The whole source word that takes the place of <unk> begins a word of its own."""
    tokenizer = tokenizers[kind]
    prefix = tokenizer.encode("the dog")
    tokens, pieces = [*prefix, UNK, *tokenizer.encode("eats")], tokenizer.spelled("el Żółw come")
    weights = np.zeros((1, 1, len(tokens) + 1, len(pieces) + 1))
    weights[..., next(i for i, piece in enumerate(pieces) if "ł" in piece)] = 1.0
    words = UnknownWords({})
    assert words.replace(pieces, tokens, weights, tokenizer) == "the Żółw eats"
    found = words.replace(pieces, tokens, weights, tokenizer, prefix=len(prefix))
    assert found == "the dog Żółw eats"


@pytest.mark.parametrize(
    ("word", "banned", "stays"),
    [
        ("Żółw", "Żółw", True), ("Żółw", "the Żółw", True), ("Żółw", "Żół", False),
        ("Żółw", "Żółwe", False), ("Ż-ółw", "-", True), ("他在北京", "北", True),
    ],
)  # fmt: skip
def test_a_banned_word_is_not_copied(tokenizers, word: str, banned: str, stays: bool) -> None:
    """Nor a word that holds a banned sign, as a search writes none either."""
    tokenizer = tokenizers["word"]
    pieces, tokens = [f"▁{word}"], tokenizer.encode("the Xxxx eats.")
    weights = np.ones((1, 1, len(tokens) + 1, 2))
    found = UnknownWords({}).replace(pieces, tokens, weights, tokenizer, banned=[banned])
    assert found == (tokenizer.decode(tokens) if stays else f"the {word} eats.")


def test_constraints_hold_where_unknown_words_are_replaced(joint, make_model) -> None:
    """<unk> behind a phrase goes on with its last word, and would take it along."""
    search = {
        "kind": "beam", "beam_size": 4, "length_penalty": "gnmt", "alpha": 0.6, "n_best": 1,
        "coverage_penalty": 0.0, "max_length_ratio": 1.0, "max_length_offset": 6,
        "rules": {"min_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
                  "banned": ["azul"]},
    }  # fmt: skip
    lines, copied = ["el tren come azul.", "la casa rojo", "azul"], 0
    for factor in (-2, 1.5, 2, 4):
        model = make_model("transformer")
        with torch.no_grad():
            model.output.weight[UNK] *= factor
        copying = Translator(model, joint, build(search), unknown_words=UnknownWords({}))
        for asked in (TextConstraint(phrases=("gato",)), TextConstraint("el gato")):
            for (found,) in copying.stream(lines, constraints=asked):
                assert found.text.startswith(asked.prefix)
                assert asked.prefix or re.search(r"\bgato\b", found.text)
                written = "".join(found.tokens).replace("▁", " ").split()  # perhaps in other pieces
                assert found.text.split().count("azul") <= written.count("azul")
                copied += "<unk>" in found.tokens
    assert copied


def test_unknown_neighbours_of_a_word_vocabulary_are_translated_one_by_one(tokenizers) -> None:
    tokenizer = tokenizers["word"]
    source, target = "the perro Schrödinger eats.", "the Xxxxx Xxxxxxxxxxx eats."
    assert tokenizer.spelled(source)[1] == "▁perro▁Schrödinger"
    assert replaced(tokenizer, source, target, perro="dog") == "the dog Schrödinger eats."


def test_entries_are_found_between_punctuation() -> None:
    words = UnknownWords({"perro": "dog", "gato,": "cat;"})
    assert words.translation("«Perro»,") == "«dog»,"
    assert words.translation("gato,") == "cat;"
    assert words.translation("«?»") == "«?»"
    assert words.translation("(Ödön)") == "(Ödön)"


def test_entries_are_read_as_the_model_reads_its_source(caplog) -> None:
    text = ["zürich ist schön"] * 9
    lower = learned(text, kind="char", vocab_size=30, normalization="nmt_nfkc_cf")
    given = {"ZÜRICH": "Zurich", "Zu\u0308rich": "Zurich", "ﬁnch": "pinzón", "Finch": "Fink"}
    words = UnknownWords(given).read_by(lower)
    assert words.dictionary == {"zürich": "Zurich", "finch": "pinzón"}
    assert caplog.messages == [
        "the model reads 'Finch' as 'finch', which the dictionary translates by 'pinzón': it never "
        "writes 'Fink'"
    ]


def test_words_are_letters_together_and_anything_else_alone() -> None:
    pieces = ["▁", "<unk>", "er", ",", "▁«", "wa", "s", "»", "▁12", "3", "世", "界", "▁", "🚂"]
    words = ["".join(pieces[first:last]) for first, last in spelling_spans(pieces)]
    assert words == ["▁<unk>er", ",", "▁«", "was", "»", "▁123", "世", "界", "▁🚂"]
    assert spelling_spans([]) == []
    together = ["▁", "„Zü", "ri", "ch", "“"]  # unknown neighbours are one piece
    assert spelling_spans(together) == [(0, 4), (4, 5)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hola", "line 3: 'hola' must be a source word"),
        ("a\tb\tc", r"line 3: 'a\\tb\\tc' must be a source word"),
        ("\tb", "line 3: .* must be a source word"),
        ("a\t ", "line 3: .* must be a source word"),
        ("perro\thound", "line 3: 'perro' is 'hound' here but 'dog' before"),
    ],
)
def test_a_dictionary_names_its_faulty_line(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "a dictionary, =.tsv"
    path.write_text(f"perro\tdog\n\n{line}\nx\ty\n", encoding="utf-8")
    with pytest.raises(UserError, match=problem) as error:
        UnknownWords.read(path)
    assert str(error.value).startswith(f"{path}, line 3: ")


def test_a_dictionary_is_read_as_words_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_bytes("\ufeffperro\tdog\r\n\nÑandú \t Rhea\u2028x\x0by\nperro\tdog".encode())
    assert UnknownWords.read(path).dictionary == {"perro": "dog", "Ñandú": "Rhea x y"}
    with pytest.raises(UserError, match="nowhere"):
        UnknownWords.read(tmp_path / "nowhere")


class Unknowing:
    """A search that finds <unk> for every source position, each looking at its own."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    rules = NO_RULES

    def __call__(self, model, source, source_mask, *, constraints=None, need_alignment=False):
        self.asked.append(need_alignment)
        found = []
        for length in source_mask.sum(1).tolist():
            alignment = torch.eye(length)[None, None] if need_alignment else None
            tokens = (UNK,) * (length - 1)
            found.append([Hypothesis(tokens, 0.0, 0.0, (0.0,) * length, alignment, True)])
        return found


def translator(tokenizer: Tokenizer, model, **options) -> Translator:
    return Translator(model, Tokenizers(tokenizer, tokenizer), Unknowing(), **options)


def test_the_translator_replaces_in_every_line_and_segment(tokenizers, make_model) -> None:
    tokenizer, lines = tokenizers["word"], ["the Ąą dog", "", "Ąą", "dog a the a dog Ąą cat a"]
    plain = translator(tokenizer, make_model("transformer"))
    assert plain.translate(lines)[0].split() == ["⁇"] * 3
    assert plain.search.asked == [False]
    copying = translator(
        tokenizer, make_model("transformer"), unknown_words=UnknownWords({"dog": "perro"}),
        max_source_length=3,
    )  # fmt: skip
    assert copying.translate(lines) == [line.replace("dog", "perro") for line in lines]
    assert copying.search.asked[0]
    ((found,),) = copying.stream(["the Ąą"])
    assert found.tokens == ("▁<unk>", "▁<unk>")  # as produced; only the text is mended
    assert found.alignment is None
    ((found,),) = copying.stream(["the Ąą"], need_alignment=True)
    assert found.alignment.shape == (1, 1, 3, 3)


def test_a_model_without_attention_is_refused(make_translator) -> None:
    without = make_translator("rnn_none", unknown_words=UnknownWords({}))
    with pytest.raises(UserError, match=r"replace_unknown=true .*this model has no attention"):
        without.translate(["el perro"])
    assert make_translator("rnn_general", unknown_words=UnknownWords({})).translate(["el perro"])

"""Text to ids and back, sampling that is a function of the seed, and refusals with their reason."""

from __future__ import annotations

import io
import json
import math
import pickle
import subprocess
import sys
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, pairwise
from random import Random

import pytest
import sentencepiece
from conf_nodes import node
from hypothesis import given
from hypothesis import strategies as st

from translate.data.plain_text import sameness
from translate.data.tokenizer import (
    Sampling,
    Tokenizer,
    Tokenizers,
    check_tokenizer,
    train_tokenizer,
)
from translate.errors import UserError
from translate.extras.subword_sampling import LONGEST, BPESampler, UnigramSampler
from translate.vocabulary import BOS, EOS, PAD, UNK

NOUNS = ["cat", "dog", "house", "mouse", "garden", "gardener", "cathouse", "doghouse"]
SENTENCES = [f"the {a} sees {n} {b}s." for n, a in enumerate(NOUNS * 3) for b in NOUNS]
OPTIONS = {
    "hard_vocab_limit": False,
    "character_coverage": 1.0,
    "normalization": "nmt_nfkc",
    "train_sentences": 1000,
    "seed": 1,
}
KINDS = ["unigram", "bpe", "char", "word"]


@cache
def trained(kind, vocab_size=400, byte_fallback=False, tags=(), **options):
    options = OPTIONS | options
    return train_tokenizer(
        SENTENCES, kind=kind, vocab_size=vocab_size, byte_fallback=byte_fallback, tags=tags,
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return trained(request.param)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def with_bytes(request):
    return trained(request.param, byte_fallback=True)


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nfkc"])
def test_what_is_read_alike_counts_as_the_same_sentence(normalization):
    """Whether a sign is read as a space, as nothing or as other signs, and beside an accent."""
    read = trained("char", normalization=normalization).normalised
    signs = (chr(code) for code in range(0x20000) if unicodedata.category(chr(code))[1] not in "ns")
    texts = (f"a{sign}{accent}b" for sign in signs for accent in ("", "\u0308"))
    assert not [text for text in texts if sameness(text) != sameness(read(text))]


def test_white_space_is_the_one_space_that_training_text_has(tokenizer):
    text, tidy = "\ufffdthe\tcat\u00a0 sees\u2028 2\x1f", "\ufffdthe cat sees 2"
    assert tokenizer.encode_all([text], threads=1) == [tokenizer.encode(tidy)]
    for read in ("encode", "encode_words", "spelled", "normalised"):
        assert getattr(tokenizer, read)(text) == getattr(tokenizer, read)(tidy)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_tells_its_kind(kind):
    assert trained(kind).kind == kind
    assert trained(kind).whole_words == (kind == "word")
    if kind != "word":
        assert trained(kind, byte_fallback=True).kind == kind


def test_known_text_comes_back(tokenizer):
    for sentence in SENTENCES[:20]:
        ids = tokenizer.encode(sentence)
        assert tokenizer.decode(ids) == sentence
        assert not {PAD, UNK, BOS, EOS} & set(ids)
        assert "".join(tokenizer.pieces(ids)).replace("▁", " ").strip() == sentence


def test_special_tokens_have_the_ids_of_the_vocabulary_and_leave_no_trace(tokenizer):
    unknown = "▁<unk>" if tokenizer.whole_words else "<unk>"
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", unknown, "<s>", "</s>"]
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "the cat"


def test_pieces_as_the_text_spells_them(tokenizer):
    for text in ["the cat", "the Ωψ cat", "", "日本 Ω\ud800"]:
        spelled, ids = tokenizer.spelled(text), tokenizer.encode(text)
        names = tokenizer.pieces(ids)
        for piece, i, name in zip(spelled, ids, names, strict=True):
            assert (piece == name) == (i != UNK)
    assert "".join(tokenizer.spelled("the Ωψ cat")).replace("▁", " ").strip() == "the Ωψ cat"


def test_special_tokens_cannot_be_written(tokenizer):
    assert not {PAD, BOS, EOS} & set(tokenizer.encode("<s> <pad> </s> the cat"))


def test_nothing_visible_is_no_pieces(tokenizer):
    assert [tokenizer.encode(text) for text in ("", " ", "\t \u00a0", "\u200b")] == [[]] * 4
    assert tokenizer.decode([]) == ""


# Cs, too: what `json.loads` or `os.fsdecode` hand over may hold lone surrogates
any_text = st.text(st.characters(), max_size=30)


@given(text=any_text)
def test_any_text_is_encoded_in_one_line_of_valid_unicode(tokenizer, text):
    ids = tokenizer.encode(text)
    assert all(0 <= i < len(tokenizer) for i in ids)
    assert tokenizer.encode_all([text, text], threads=2) == [ids, ids]
    decoded = tokenizer.decode(ids)
    assert len(decoded.splitlines()) <= 1
    decoded.encode()


@given(ids=st.lists(st.integers(0, 299), max_size=20))
def test_any_ids_decode_to_one_line_of_valid_unicode(with_bytes, ids):
    decoded = with_bytes.decode([i % len(with_bytes) for i in ids])
    assert len(decoded.splitlines()) <= 1
    decoded.encode()


def test_bytes_cannot_smuggle_a_newline_into_the_output(with_bytes):
    names = with_bytes.pieces(range(len(with_bytes)))
    assert with_bytes.decode([names.index("<0x0A>"), names.index("<0xFF>")]) == " \ufffd"


@given(text=st.text(st.characters(codec="utf-8", categories=["L", "N", "S", "M"]), max_size=20))
def test_byte_fallback_loses_nothing_under_identity(text):
    tokenizer = trained("unigram", byte_fallback=True, normalization="identity")
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " ").strip()
    assert UNK not in tokenizer.encode(text)


def test_normalization_is_a_choice():
    folded = trained("unigram", normalization="nmt_nfkc_cf")
    assert folded.encode("THE CAT") == folded.encode("the cat")
    assert trained("unigram").encode("THE") != trained("unigram").encode("the")


def test_unknown_pieces_are_told_apart(with_bytes):
    assert all(map(with_bytes.is_unknown, with_bytes.encode("ß")[1:]))
    assert not any(map(with_bytes.is_unknown, with_bytes.encode("the cat")))
    assert trained("char").is_unknown(UNK)


# --- training


def test_training_is_deterministic_even_from_a_sample():
    first = trained("unigram", train_sentences=100)
    trained.cache_clear()
    assert trained("unigram", train_sentences=100).sha256 == first.sha256
    assert trained("unigram", train_sentences=100, seed=2).sha256 != first.sha256


def test_training_is_silent(capfd):
    trained.cache_clear()
    trained("unigram")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_the_text_cannot_fill_names_the_largest(kind):
    with pytest.raises(UserError, match=r"set tokenizer.vocab_size=(\d+) or less") as refusal:
        trained(kind, vocab_size=5000, hard_vocab_limit=True)
    largest = int(str(refusal.value).split("vocab_size=")[1].split()[0])
    assert len(trained(kind, vocab_size=largest, hard_vocab_limit=True)) == largest
    assert len(trained(kind, vocab_size=5000)) == largest


@pytest.mark.parametrize(
    ("sentences", "options"),
    [
        (SENTENCES, {"vocab_size": 10}),
        (SENTENCES, {"kind": "char", "byte_fallback": True}),
        ([], {}),
    ],
    ids=["few", "bytes", "no text"],
)
def test_what_gives_no_vocabulary_is_an_error_with_the_remedy(sentences, options):
    few = {"kind": "unigram", "vocab_size": 100, "byte_fallback": False} | OPTIONS | options
    message = f"could not learn a vocabulary with tokenizer.vocab_size = {few['vocab_size']} from"
    with pytest.raises(UserError, match=message) as refused:
        train_tokenizer(sentences, **few)
    assert "\n" not in str(refused.value)


# --- storage


def test_bytes_files_and_pickles_hold_the_same_model(tokenizer, tmp_path):
    path = tmp_path / "model.spm"
    path.write_bytes(tokenizer.to_bytes())
    for copy in (
        Tokenizer(tokenizer.to_bytes()),
        Tokenizer.load(path),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert copy.sha256 == tokenizer.sha256
        assert copy.encode(SENTENCES[0]) == tokenizer.encode(SENTENCES[0])


def test_another_tag_is_the_same_tokenizer_with_what_it_remembers():
    plain = Tokenizer(
        trained("unigram", tags=("bt", "fr")).to_bytes(), sampling=Sampling(alpha=0.5, dropout=0.0)
    )
    back, french = plain.tagged("bt"), plain.tagged("bt").tagged("fr")
    assert back._sampler is french._sampler is plain._sampler
    for tokenizer, tag in ((plain, None), (back, "bt"), (french, "fr"), (back.tagged(None), None)):
        copy = pickle.loads(pickle.dumps(tokenizer))
        for one in (tokenizer, copy):
            assert one.tag == tag
            assert one.encode(SENTENCES[0]) == [*one.prefix, *plain.encode(SENTENCES[0])]
            assert one.pieces(one.prefix) == ([f"<{tag}>"] if tag else [])
    with pytest.raises(UserError, match="knows no tag de"):
        plain.tagged("de")


def test_a_folder_of_two_equal_files_is_one_joint_vocabulary(tmp_path):
    one, other = trained("char"), trained("word")
    Tokenizers(one, one).save(tmp_path)
    joint = Tokenizers.load(tmp_path)
    assert joint.joint
    assert joint.source is joint.target, "what sampling remembers is held once"
    Tokenizers(one, other).save(tmp_path)
    sampling = Sampling(alpha=0.5, dropout=0.0)
    loaded = Tokenizers.load(tmp_path, sampling=sampling)
    assert not loaded.joint
    assert (loaded.source.sha256, loaded.target.sha256) == (one.sha256, other.sha256)
    assert (loaded.source.sampling, loaded.target.sampling) == (sampling, sampling)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"missing.spm cannot be read"):
        Tokenizer.load(tmp_path / "missing.spm")
    (tmp_path / "text.spm").write_text("not a model")
    with pytest.raises(UserError, match=r"text.spm: .* not a SentencePiece model"):
        Tokenizer.load(tmp_path / "text.spm")


def test_a_model_with_other_special_ids_is_refused():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=model, vocab_size=30, minloglevel=2
    )
    with pytest.raises(UserError, match="special ids"):
        Tokenizer(model.getvalue())


# --- subword sampling


STRENGTHS = {
    "unigram": Sampling(alpha=0.2, dropout=0.0),
    "bpe": Sampling(alpha=0.0, dropout=0.3),
}


@pytest.fixture(scope="module", params=STRENGTHS)
def sampler(request):
    model = trained(request.param, vocab_size=120)
    return Tokenizer(model.to_bytes(), sampling=STRENGTHS[request.param])


SENTENCE = "the gardener sees 7 doghouses."


def test_a_sample_depends_on_text_and_seed_alone(sampler):
    seeds = range(200)
    drawn = [sampler.sample(SENTENCE, seed) for seed in seeds]
    assert drawn == [sampler.sample(SENTENCE, seed) for seed in reversed(seeds)][::-1]
    copy = pickle.loads(pickle.dumps(sampler))  # for the loader's workers
    assert [copy.sample(SENTENCE, seed) for seed in seeds] == drawn
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: sampler.sample(SENTENCE, seed), seeds)) == drawn
    assert len(set(map(tuple, drawn))) > 5
    assert {sampler.decode(ids) for ids in drawn} == {SENTENCE}


def test_a_sample_is_the_same_in_another_process(sampler, tmp_path):
    path = tmp_path / "model.spm"
    path.write_bytes(sampler.to_bytes())
    code = (
        "from pathlib import Path; from translate.data.tokenizer import Sampling, Tokenizer\n"
        f"t = Tokenizer.load(Path({str(path)!r}), sampling={sampler.sampling!r})\n"
        f"t.sample('the cat', 1); print([t.sample({SENTENCE!r}, seed) for seed in range(20)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [sampler.sample(SENTENCE, seed) for seed in range(20)]


def test_sampling_keeps_unknown_characters_as_encoding_does(sampler, with_bytes):
    text = "the ßüß cat"
    best = sampler.encode(text)
    assert {sampler.sample(text, seed).count(UNK) for seed in range(20)} == {best.count(UNK)} == {1}
    kind = "unigram" if sampler.sampling.alpha else "bpe"
    spelling = Tokenizer(trained(kind, byte_fallback=True).to_bytes(), sampling=sampler.sampling)
    drawn = {tuple(spelling.sample(text, seed)) for seed in range(20)}
    assert {spelling.decode(ids) for ids in drawn} == {text}


@given(text=any_text, seed=st.integers())
def test_a_sample_decodes_to_what_encoding_decodes_to(sampler, text, seed):
    assert sampler.decode(sampler.sample(text, seed)) == sampler.decode(sampler.encode(text))


def test_a_word_of_any_length_is_sampled():
    """Probabilities of its segmentations are far below the smallest float."""
    scores = {"a": -2.0, "aa": -3.0, "b": -4.0}
    draw = UnigramSampler(scores, alpha=1.0)
    unknown = "字" * 1000
    assert draw(unknown, Random(1)) == list(unknown)
    pieces = [piece for seed in range(20) for piece in draw("a" * 1000, Random(seed))]
    assert len("".join(pieces)) == 20 * 1000
    # each further letter multiplies the weight of a word by x, where x² = e⁻² x + e⁻³
    x = (math.exp(-2) + math.sqrt(math.exp(-4) + 4 * math.exp(-3))) / 2
    assert pieces.count("a") / len(pieces) == pytest.approx(math.exp(-2) / x, abs=0.02)


def test_words_are_remembered_and_sentences_without_spaces_are_not():
    draw = UnigramSampler({"字": -2.0, "典": -2.5, "字典": -3.0}, alpha=0.5)
    for word in ("字典", "字" * LONGEST, "字典" * LONGEST):
        for seed in range(3):
            assert "".join(draw(word, Random(seed))) == word
    assert draw._remembered.cache_info().currsize == 2


def test_without_dropout_the_best_merge_comes_first():
    scores = {"▁": -1.0, "▁c": -2.0, "c": -2.5, "a": -2.0, "at": -2.2, "t": -3.0, "cat": -4.0}
    assert BPESampler(scores, dropout=0.0)("▁cat", Random(0)) == ["▁c", "at"]


def test_no_sample_is_longer_than_it_may_be():
    wild = Tokenizer(
        trained("bpe", vocab_size=400).to_bytes(), sampling=Sampling(alpha=0.0, dropout=0.99)
    )
    text = "the gardener sees the doghouses and the cathouses"
    free = {len(wild.sample(text, seed)) for seed in range(50)}
    most = sorted(free)[len(free) // 2]
    lengths = [len(wild.sample(text, seed, most)) for seed in range(50)]
    best = wild.encode(text)
    assert max(lengths) == most < max(free)  # what was too long was drawn again
    assert wild.sample(text, 1, len(best)) == best  # which four draws do not reach
    assert len(wild.sample(text, 1, 1000)) == len(wild.sample(text, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_tags_are_pieces_that_no_text_can_spell(kind):
    plain = trained(kind, tags=("bt", "fr-CA"))
    assert plain.tags == ("bt", "fr-CA")
    tagged = plain.tagged("fr-CA")
    (tag,) = set(tagged.encode(SENTENCE)) - set(plain.encode(SENTENCE))
    assert tagged.encode(SENTENCE) == [tag, *plain.encode(SENTENCE)]
    assert tagged.encode_all([SENTENCE, " "], threads=1) == [tagged.encode(SENTENCE), []]
    assert tag not in plain.encode(f"<fr-CA> {SENTENCE} <fr-CA>")
    assert tagged.decode([tag, *plain.encode(SENTENCE)]) == plain.decode(plain.encode(SENTENCE))
    assert plain.whole_words == trained(kind).whole_words
    copy = pickle.loads(pickle.dumps(tagged))
    assert (copy.tag, copy.encode(SENTENCE)) == ("fr-CA", tagged.encode(SENTENCE))
    assert tagged.tagged(None).encode(SENTENCE) == plain.encode(SENTENCE)
    with pytest.raises(UserError, match="knows no tag it; it has bt, fr-CA"):
        plain.tagged("it")


def test_without_sampling_a_sample_is_the_best_segmentation(tokenizer):
    assert tokenizer.sample(SENTENCE, 3) == tokenizer.encode(SENTENCE)


def segmentations(text, scores):
    """Every way to write `text` as pieces, with its log-probability."""
    if not text:
        return {(): 0.0}
    return {
        (piece, *rest): score + tail
        for piece, score in scores.items()
        if text.startswith(piece)
        for rest, tail in segmentations(text.removeprefix(piece), scores).items()
    }


def distance(expected, counts):
    """Total variation between a distribution and counts."""
    total = counts.total()
    keys = set(expected) | set(counts)
    return sum(abs(expected.get(k, 0.0) - counts[k] / total) for k in keys) / 2


def test_unigram_sampling_follows_the_model_to_the_power_alpha():
    alpha, draws = 0.4, 4000
    tokenizer = Tokenizer(
        trained("unigram", vocab_size=60).to_bytes(), sampling=Sampling(alpha=alpha, dropout=0.0)
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())
    scores = {processor.id_to_piece(i): processor.get_score(i) for i in range(4, len(tokenizer))}
    every = segmentations("▁cathouse", scores)
    assert len(every) > 3
    total = math.fsum(math.exp(alpha * score) for score in every.values())
    expected = {pieces: math.exp(alpha * score) / total for pieces, score in every.items()}
    drawn = Counter(
        tuple(tokenizer.pieces(tokenizer.sample("cathouse", seed))) for seed in range(draws)
    )
    # the mean of the distance is about sqrt(outcomes / (2 pi draws))
    assert distance(expected, drawn) < 3 * math.sqrt(len(every) / (2 * math.pi * draws))


def merges_with_dropout(text, scores, dropout):
    """The exact distribution of BPE-dropout (Provilkov et al. 2020, algorithm 1) by enumeration.

    In every round each possible merge is struck out with probability `dropout` and the best of
    the others is made; it ends when none is left.
    """
    done: Counter[tuple[str, ...]] = Counter()

    def go(pieces, probability):
        merges = [
            (-scores[a + b], i) for i, (a, b) in enumerate(pairwise(pieces)) if a + b in scores
        ]
        for rank, (_, i) in enumerate(sorted(merges)):
            merged = (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
            go(merged, probability * (1 - dropout) * dropout**rank)
        done[pieces] += probability * dropout ** len(merges)

    go(tuple(text), 1.0)
    return done


def test_bpe_sampling_drops_merges_with_the_given_probability():
    dropout, draws = 0.3, 4000
    tokenizer = Tokenizer(
        trained("bpe", vocab_size=60).to_bytes(), sampling=Sampling(alpha=0.0, dropout=dropout)
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())
    scores = {processor.id_to_piece(i): processor.get_score(i) for i in range(4, len(tokenizer))}
    drawn = Counter(tuple(tokenizer.pieces(tokenizer.sample("cat", seed))) for seed in range(draws))
    expected = merges_with_dropout("▁cat", scores, dropout)
    assert distance(expected, drawn) < 3 * math.sqrt(len(expected) / (2 * math.pi * draws))


# --- configuration


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "char", "sampling": {"alpha": 0.2, "dropout": 0.0}}, "one way to split"),
        ({"kind": "word", "sampling": {"alpha": 0.0, "dropout": 0.1}}, "one way to split"),
        ({"kind": "bpe", "sampling": {"alpha": 0.2, "dropout": 0.0}}, "sampling.dropout instead"),
        ({"sampling": {"alpha": 0.0, "dropout": 0.1}}, "sampling.alpha instead"),
        ({"kind": "word", "byte_fallback": True}, "word in bytes"),
        ({"kind": "unigramm"}, "tokenizer.kind"),
        ({"normalization": "nfc"}, "tokenizer.normalization"),
        ({"vocab_size": 0}, "tokenizer.vocab_size"),
        ({"vocabsize": 100}, "did you mean tokenizer.vocab_size?"),
    ],
)
def test_impossible_combinations_are_refused_with_the_reason(changes, reason):
    (problem,) = check_tokenizer(node("tokenizer", "unigram", byte_fallback=False) | changes)
    assert reason in problem
    assert "\n" not in problem


@given(st.lists(st.sampled_from([*NOUNS, "the", "sees", "catdog", "dogs.", "x", "日本"])))
def test_words_together_are_the_sentence(words):
    """But for runs of unknown words, which only their own pieces can tell apart."""
    for kind in ("unigram", "bpe", "char"):
        tokenizer = trained(kind)
        found = tokenizer.encode_words("  ".join(words))
        assert len(found) == len(words)
        assert list(chain.from_iterable(found)) == tokenizer.encode(" ".join(words))
    word = trained("word")
    assert word.encode_words(" ".join(words)) == [word.encode(each) for each in words]


def test_a_word_of_nothing_visible_has_no_pieces(tokenizer):
    the, nothing, cat = tokenizer.encode_words(" the \u200b\u00a0cat\u3000")
    assert (the, nothing, cat) == (tokenizer.encode("the"), [], tokenizer.encode("cat"))
    assert tokenizer.encode_words(" \t") == []

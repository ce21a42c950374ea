"""CTranslate2 with our weights is our model: every option it carries, and none that it does not."""

from __future__ import annotations

import json
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from translate.errors import UserError
from translate.extras import ctranslate2_export
from translate.extras.ctranslate2_engine import CTranslate2Search, check_origin, search_problems
from translate.extras.model_export import export_ctranslate2, random_sentences
from translate.extras.parity import MANIFEST, Parity
from translate.inference.batches import padded
from translate.inference.forcing import TeacherForcing
from translate.inference.translator import Translator
from translate.machine import threads_restored
from translate.search import build
from translate.search.scoring import PENALTIES
from translate.vocabulary import BOS, EOS, PAD

pytest.importorskip("ctranslate2")

GREEDY = {"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 40}
BEAM = GREEDY | {
    "kind": "beam", "beam_size": 3, "length_penalty": "gnmt", "alpha": 0.6, "n_best": 2,
    "coverage_penalty": 0.0,
}  # fmt: skip


@pytest.fixture
def make_bundle(make_bundle):
    """Of four heads, which can be grouped."""
    return partial(make_bundle, num_heads=4, num_kv_heads=4, d_model=16)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "activation": "gelu"},
        {"normalization": "rms", "activation": "swiglu"},
        {"positions": "learned", "tied_embeddings": "none"},
        {"positions": "none", "tied_embeddings": "decoder"},
        {"positions": "rotary", "num_kv_heads": 2},
        {"positions": "relative", "max_distance": 3, "num_kv_heads": 1},
        {"d_v": 4},
    ],
    ids=str,
)
def test_the_export_computes_what_the_model_does(make_bundle, tmp_path, changes) -> None:
    bundle, folder = make_bundle(**changes), tmp_path / "export"
    sentences = random_sentences(12, vocab_size=len(bundle.tokenizers.source))
    parities = export_ctranslate2(bundle, folder, quantization="float32", sentences=sentences)
    ((name, parity),) = parities
    assert name == "float32"
    assert parity.sentences == 12
    assert parity.gap < 1e-4
    assert parity.margin < 1e-4


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("transformer", {"positions": "alibi"}, "positions = alibi: .* only supports it in"),
        ("transformer", {"self_attention": "sliding_window"}, "self_attention = sliding_window"),
        ("transformer", {"d_v": 5}, "model.d_v = 5: in CTranslate2, values must have the size of"),
        ("rnn_general", {}, "model.family = rnn: CTranslate2 only supports Transformers"),
    ],
)
def test_what_it_cannot_carry_is_refused(make_bundle, tmp_path, family, changes, reason) -> None:
    options = changes if family == "transformer" else {}
    bundle = make_bundle(**options)
    if family != "transformer":
        bundle.config.family = "rnn"
    with pytest.raises(UserError, match=reason):
        list(export_ctranslate2(bundle, tmp_path / "x", quantization="int8", sentences=[[5]]))
    assert not (tmp_path / "x").exists()


def test_another_model_is_noticed_and_nothing_is_written(make_bundle, tmp_path, monkeypatch):
    convert = ctranslate2_export.convert

    def wrong(model, *args, **kwargs):
        with torch.no_grad():
            norm = model.decoder_norm.weight
            norm.mul_(1.1)
            convert(model, *args, **kwargs)
            norm.div_(1.1)

    monkeypatch.setattr(ctranslate2_export, "convert", wrong)
    exporting = export_ctranslate2(
        make_bundle(), tmp_path / "x", quantization="float32", sentences=[[5, 6, 7]]
    )
    with pytest.raises(UserError, match="the export does not match the model"):
        list(exporting)
    nothing = export_ctranslate2(
        make_bundle(), tmp_path / "x", quantization="float32", sentences=[]
    )
    with pytest.raises(UserError, match="no sentence to compare"):
        list(nothing)
    assert not (tmp_path / "x").exists()


def test_a_model_that_would_begin_again_is_told(make_bundle, tmp_path) -> None:
    """Ours never writes <s>; CTranslate2 does where it is likeliest, as to random weights."""
    bundle = make_bundle()
    sentences = random_sentences(12, vocab_size=len(bundle.tokenizers.source))
    ((_, parity),) = export_ctranslate2(
        bundle, tmp_path / "x", quantization="float32", sentences=sentences
    )
    assert 0 < parity.barred <= parity.different
    told = f"{parity.barred} of the export's translations contain <s> or <pad>"
    assert told in parity.summary()
    assert "<s>" not in Parity(10, 3, gap=0.0, margin=0.0).summary()


@pytest.mark.parametrize("unequal", ["gap", "margin"])
def test_what_is_no_number_is_no_parity(unequal: str) -> None:
    parity = {"gap": 0.0, "margin": 0.0} | {unequal: float("nan")}
    with pytest.raises(UserError, match="the export does not match the model"):
        Parity(10, 0, **parity).check()


@pytest.fixture
def exported(make_bundle, tmp_path):
    """A bundle and the folder of its export, tokenizers and origin beside the weights."""
    bundle, folder = make_bundle(tied_embeddings="none"), tmp_path / "export"
    with torch.no_grad():  # translations end, and in nothing that is never chosen
        output, usual = bundle.model.output.weight, bundle.model.decoder_norm.bias
        output[EOS], output[PAD], output[BOS] = 6 * usual, -6 * usual, -6 * usual
    exported_anew((bundle, folder))
    return bundle, folder


def engine_of(exported, search=GREEDY, *, tokens_per_batch=1000, workers=1) -> CTranslate2Search:
    bundle, folder = exported
    return CTranslate2Search(
        folder, bundle.tokenizers, search,
        tokens_per_batch=tokens_per_batch, workers=workers, device="cpu",
    )  # fmt: skip


def exported_anew(exported) -> None:
    """Its export follows the weights."""
    bundle, folder = exported
    sentences = random_sentences(3, vocab_size=len(bundle.tokenizers.source))
    list(export_ctranslate2(bundle, folder, quantization="float32", sentences=sentences))


def rows_of(sources: list[list[int]]):
    return padded([[*ids, EOS] for ids in sources], torch.device("cpu"))


def assert_scored_as_ours(exported, length_penalty: str, sources, found) -> None:
    """Probabilities and scores are those of teacher forcing, best first."""
    forcing = TeacherForcing(exported[0].model, torch.device("cpu"))
    for ids, n_best in zip(sources, found, strict=True):
        assert len(n_best) == 2
        assert n_best[0].score >= n_best[1].score
        for hypothesis in n_best:
            (log_probs,) = forcing.log_probs([ids], [list(hypothesis.tokens)])
            assert hypothesis.log_prob == pytest.approx(sum(log_probs), abs=1e-4)
            divisor = PENALTIES[length_penalty](len(log_probs), 0.6)
            assert hypothesis.score == pytest.approx(sum(log_probs) / divisor, abs=1e-4)


def test_what_it_is_measured_as_is_told(make_bundle, tmp_path, monkeypatch) -> None:
    """A processor that lacks a quantization computes in another, without an error."""
    bundle = make_bundle()
    exporting = export_ctranslate2(bundle, tmp_path / "8", quantization="int8", sentences=[[5, 6]])
    assert [name for name, _ in exporting] == ["float32", "int8"]
    monkeypatch.setattr(CTranslate2Search, "compute_type", "float32")
    exporting = export_ctranslate2(
        bundle, tmp_path / "x", quantization="bfloat16", sentences=[[5, 6]]
    )
    names = [name for name, _ in exporting]
    assert names == ["float32", "bfloat16, measured as float32 on this processor"]
    origin = json.loads((tmp_path / "x" / MANIFEST).read_bytes())
    assert (origin["quantization"], origin["measured_as"]) == ("bfloat16", "float32")


def test_the_weights_of_the_bundle_stay_as_they_are(make_bundle, tmp_path) -> None:
    """Later jobs of a sweep read the same object."""
    bundle = make_bundle()
    bundle.model.double()
    list(export_ctranslate2(bundle, tmp_path / "x", quantization="float32", sentences=[[5, 6]]))
    assert next(bundle.model.parameters()).dtype == torch.float64


LINES = ["el perro come.", "la casa azul", "", "el gato duerme la casa corre azul rojo grande."]


def test_greedy_search_is_ours(exported) -> None:
    bundle, _ = exported
    engine = engine_of(exported, tokens_per_batch=20, workers=2)
    native = Translator(bundle.model, bundle.tokenizers, build(GREEDY)).stream(LINES)
    served = Translator(bundle.model, bundle.tokenizers, engine)
    for (mine,), (theirs,) in zip(native, served.stream(LINES), strict=True):
        assert theirs.tokens == mine.tokens
        assert theirs.log_prob == pytest.approx(mine.log_prob, abs=1e-4)


@pytest.mark.parametrize(
    ("workers", "threads"), [(None, (3, 1)), (2, (2, 1)), (1, (1, 3))], ids=str
)
def test_a_single_batch_has_all_threads_and_pytorch_keeps_its_own(
    exported, monkeypatch, workers, threads
) -> None:
    asked, made = [], ctranslate2_export.imported().Translator

    def translator(*arguments, **settings):
        asked.append((settings["inter_threads"], settings["intra_threads"]))
        return made(*arguments, **settings)

    monkeypatch.setattr(
        "translate.extras.ctranslate2_engine.imported",
        lambda: SimpleNamespace(Translator=translator),
    )
    with threads_restored():
        torch.set_num_threads(3)
        engine_of(exported, workers=workers)
        assert torch.get_num_threads() == 3  # CTranslate2 sets those too
    assert asked == [threads]


@pytest.mark.parametrize("length_penalty", ["none", "average", "gnmt"])
def test_a_beam_is_scored_and_ranked_as_ours(exported, length_penalty) -> None:
    """Of a translation that is cut at its limit, </s> counts too."""
    bundle, _ = exported
    search = BEAM | {"length_penalty": length_penalty}
    sources = [bundle.tokenizers.source.encode(line) for line in LINES if line]
    found = engine_of(exported, search, tokens_per_batch=20, workers=2)(
        bundle.model, *rows_of(sources)
    )
    assert_scored_as_ours(exported, length_penalty, sources, found)
    assert all(hypothesis.finished for n_best in found for hypothesis in n_best)
    sources = [[5], [5, 6, 7, 8], [9, 10], list(range(5, 17))]
    short = search | {"max_length_ratio": 0.0, "max_length_offset": 2}
    found = engine_of(exported, short)(bundle.model, *rows_of(sources))
    assert_scored_as_ours(exported, length_penalty, sources, found)
    assert not all(hypothesis.finished for n_best in found for hypothesis in n_best)


@pytest.mark.parametrize("search", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_translation_that_meets_its_limit_is_what_it_is_alone(exported, search) -> None:
    """The engine knows one limit a batch, the longest of its sentences."""
    bundle, _ = exported
    with torch.no_grad():
        bundle.model.output.weight[EOS] = 0  # hardly any translation ends
    exported_anew(exported)
    engine = engine_of(exported, search | {"max_length_ratio": 1.0, "max_length_offset": 2})
    sources = [[5], [5, 6, 7, 8], [9, 10], list(range(5, 17))]
    together = engine(bundle.model, *rows_of(sources))
    for ids, n_best in zip(sources, together, strict=True):
        (alone,) = engine(bundle.model, *rows_of([ids]))
        assert [one.tokens for one in n_best] == [one.tokens for one in alone]
        assert any(len(one.tokens) == len(ids) + 2 for one in n_best)  # the limit
        for one, other in zip(n_best, alone, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


def test_no_limit_is_beyond_the_table_of_positions(exported) -> None:
    """The engine itself would end in an error that names no line."""
    bundle, _ = exported
    with torch.no_grad():  # never an end
        bundle.model.output.weight[EOS] = -6 * bundle.model.decoder_norm.bias
    exported_anew(exported)
    endless = GREEDY | {"max_length_ratio": 4096.0, "max_length_offset": 4096}
    ((found,),) = engine_of(exported, endless)(bundle.model, *rows_of([[5, 6]]))
    assert len(found.tokens) == ctranslate2_export.POSITIONS - 1  # and <s>


def test_the_device_asked_for_is_the_one_taken(exported, monkeypatch) -> None:
    bundle, folder = exported
    taken = {}
    fake = SimpleNamespace(Translator=lambda folder, **options: taken.update(options))
    monkeypatch.setattr("translate.extras.ctranslate2_engine.imported", lambda: fake)
    make = partial(
        CTranslate2Search, folder, bundle.tokenizers, GREEDY, tokens_per_batch=20, workers=None
    )
    make(device="cuda:1")
    assert (taken["device"], taken["device_index"], taken["inter_threads"]) == ("cuda", 1, 1)
    make(device="cpu")
    assert (taken["device"], taken["device_index"]) == ("cpu", 0)
    with pytest.raises(UserError, match="device=mps: engine=ctranslate2 does not support it"):
        make(device="mps")


def test_what_it_has_no_option_for_is_told() -> None:
    assert search_problems(BEAM) == search_problems(GREEDY) == []
    assert search_problems(BEAM | {"coverage_penalty": 0.2}) == [
        "search.coverage_penalty = 0.2: engine=ctranslate2 has no such option; use engine=native"
    ]
    assert "must be greedy or beam" in search_problems({"kind": "sampling"})[0]


def test_an_export_knows_its_origin(exported, tmp_path) -> None:
    _, folder = exported
    assert {"source.spm", "target.spm", "model.bin"} < {file.name for file in folder.iterdir()}
    check_origin(folder, "of these weights", "runs/x")
    told = (
        r"other weights .* give the run= that it was made from, or .* translate export run=runs/x"
    )
    with pytest.raises(UserError, match=rf"{told} .* quantization=float32 output="):
        check_origin(folder, "of others", "runs/x")
    (folder / MANIFEST).write_text(json.dumps([]))
    with pytest.raises(UserError, match=r"export.json is damaged"):
        check_origin(folder, "of these weights", "runs/x")
    with pytest.raises(UserError, match=r"cannot be read .* translate export run=runs/x"):
        check_origin(tmp_path / "nowhere", "of these weights", "runs/x")


def test_a_missing_library_is_told(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match="-m pip install 'ctranslate2>="):
        ctranslate2_export.imported()


@pytest.mark.parametrize("name", ["model.bin", "shared_vocabulary.json", "source.spm"])
def test_a_damaged_export_is_not_loaded(exported, name: str) -> None:
    _, folder = exported
    file = folder / name
    whole = file.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-1]):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{name} is damaged: .* translate export run=runs/x"):
            check_origin(folder, "of these weights", "runs/x")


def test_an_export_of_before_it_had_sums_is_loaded(exported) -> None:
    _, folder = exported
    origin = json.loads((folder / MANIFEST).read_bytes())
    assert set(origin.pop("sha256")) == {file.name for file in folder.iterdir()} - {MANIFEST}
    (folder / MANIFEST).write_text(json.dumps(origin))
    check_origin(folder, "of these weights", "runs/x")

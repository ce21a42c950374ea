from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

import translate
from translate.errors import UserError
from translate.extras.ensemble import together
from translate.inference import bundle
from translate.inference.translator import load
from translate.models.seq2seq import Seq2Seq
from translate.models.transformer import TransformerConfig

SEARCH = {"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 5}
CHECKED = ["config.json", "model.safetensors", "source.spm", "target.spm"]

BEAM = {
    "kind": "beam", "beam_size": 2, "n_best": 2, "length_penalty": "none", "alpha": 0.0,
    "coverage_penalty": 0.0, "max_length_ratio": 1.0, "max_length_offset": 5,
}  # fmt: skip


def write(folder: Path, model, tokenizers, options, **changes) -> None:
    arguments = {
        "node": options,
        "model": model,
        "tokenizers": tokenizers,
        "languages": ("es", "en"),
        "search": SEARCH,
        "extra": {"dev_bleu": 41.5, "corpus": {"kind": "toy", "pairs": 3}},
        **changes,
    }
    bundle.save(folder, **arguments)


@pytest.fixture
def saved(tmp_path, make_model, joint, options) -> Path:
    """A bundle in a run's folder."""
    write(tmp_path / "run" / "bundle", make_model("transformer"), joint, options["transformer"])
    return tmp_path / "run" / "bundle"


def forge(folder: Path, name: str, content: bytes) -> None:
    """Change a file and its checksum: damage is not all that can be wrong."""
    (folder / name).write_bytes(content)
    checksums = json.loads((folder / "checksums.json").read_text())
    checksums[name] = hashlib.sha256(content).hexdigest()
    (folder / "checksums.json").write_text(json.dumps(checksums))


def reconfigure(folder: Path, **changes) -> None:
    """Change the configuration and its checksum."""
    config = json.loads((folder / "config.json").read_text()) | changes
    forge(folder, "config.json", json.dumps(config).encode())


LOADING = """
import os, sys, torch
from translate.inference import bundle
torch.set_num_threads(2)
before = len(os.listdir("/proc/self/task"))
bundle.load(sys.argv[1])
print(torch.get_num_threads(), len(os.listdir("/proc/self/task")) - before)
torch.ones(2**20).sum()
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_loading_starts_no_threads(tmp_path, make_model, joint, options) -> None:
    """PyTorch's would wait until the process ends, in the way of another engine's."""
    wide = options["transformer"] | {"d_model": 256}
    write(tmp_path / "b", make_model("transformer", **wide), joint, wide)
    done = subprocess.run(
        [sys.executable, "-c", LOADING, str(tmp_path / "b")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["2", "0", "1"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_is_loaded_is_bit_for_bit_what_was_saved(
    tmp_path, make_model, joint, options, name, dtype
) -> None:
    model = make_model(name).to(dtype)
    write(tmp_path / "b", model, joint, options[name])
    loaded = bundle.load(tmp_path / "b")
    assert loaded.model.state_dict().keys() == model.state_dict().keys()
    for key, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[key], tensor)
        assert loaded.model.state_dict()[key].dtype == tensor.dtype
    assert not loaded.model.training
    assert loaded.tokenizers.joint
    assert loaded.config.search == SEARCH
    assert (loaded.config.source_language, loaded.config.target_language) == ("es", "en")


@pytest.mark.parametrize("tied", ["all", "decoder", "none"])
def test_tied_weights_are_stored_once_and_tied_again(
    tmp_path, make_model, joint, options, tied
) -> None:
    model = make_model("transformer", tied_embeddings=tied)
    options = {**options["transformer"], "tied_embeddings": tied}
    write(tmp_path / "b", model, joint, options)
    stored = safetensors.torch.load_file(tmp_path / "b" / "model.safetensors")
    names = {"source_embedding.weight", "target_embedding.weight", "output.weight"}
    assert len(names & stored.keys()) == {"all": 1, "decoder": 2, "none": 3}[tied]
    loaded = bundle.load(tmp_path / "b").model
    assert (loaded.output.weight is loaded.target_embedding.weight) == (tied != "none")
    assert (loaded.source_embedding.weight is loaded.target_embedding.weight) == (tied == "all")


def test_separate_tokenizers_come_back_separate(tmp_path, make_model, separate, options) -> None:
    options = {**options["transformer"], "tied_embeddings": "decoder"}
    model = make_model("transformer", separate, tied_embeddings="decoder")
    write(tmp_path / "b", model, separate, options)
    found = bundle.load(tmp_path / "b").tokenizers
    assert found.source.sha256 == separate.source.sha256
    assert found.target.sha256 == separate.target.sha256


def test_the_same_model_makes_the_same_bytes(tmp_path, make_model, joint, options) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder, make_model("transformer"), joint, options["transformer"])
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_a_run_translates_after_loading(saved, make_model) -> None:
    for path in (saved, saved.parent):
        assert len(translate.load(path, device="cpu").translate(["el perro", ""])) == 2
    greedy = translate.load(saved)
    beam = translate.load(saved, search=BEAM)
    assert len(next(greedy.stream(["el perro"]))) == 1
    assert len(next(beam.stream(["el perro"]))) == 2


FORKED = """
import os, sys, threading, torch, translate
torch.set_num_threads(2)
translator = translate.load(sys.argv[1], device="cpu")
torch.randn(500, 500) @ torch.randn(500, 500)  # by threads that a child does not have
child = os.fork()
if child == 0:
    threading.Timer(60, os._exit, [1]).start()
    torch.randn(500, 500) @ torch.randn(500, 500)
    os._exit(0 if len(translator.translate(["el perro"])) == 1 else 2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_program_that_loads_and_then_forks_translates_in_the_child(saved) -> None:
    variables = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", FORKED, saved], env=variables, timeout=120)
    assert done.returncode == 0


def test_a_translator_can_be_sent_to_another_process(saved) -> None:
    translator = translate.load(saved, device="cpu", search=BEAM)
    there = pickle.loads(pickle.dumps(translator))
    assert there.translate(["el perro"]) == translator.translate(["el perro"])


def test_every_translator_is_loaded_the_same_way(saved, monkeypatch) -> None:
    kept: list[bool] = []
    prepacked: list[Seq2Seq] = []
    monkeypatch.setattr("translate.inference.translator.keep_memory", lambda: kept.append(True))
    monkeypatch.setattr("translate.inference.translator.prepack", prepacked.append)
    folder, there = translate.load(saved), load(bundle.load(saved), device="cpu")
    assert kept == [True, True]
    assert prepacked == [folder.model, there.model]
    assert folder.translate(["el perro"]) == there.translate(["el perro"])


def test_keys_of_a_search_are_laid_over_the_run_s_own(saved) -> None:
    own = translate.load(saved).search.config
    longer = {"max_length_offset": own.max_length_offset + 1}
    other = translate.load(saved, search=longer).search.config
    assert other.max_length_offset == own.max_length_offset + 1
    assert other.max_length_ratio == own.max_length_ratio
    assert translate.load(saved, search={"kind": "beam"}).search.config.beam_size == 5
    assert translate.load(saved, search="beam").search.config.max_length_offset == 20
    with pytest.raises(UserError, match=r"beam_size .* but one of search=beam or diverse"):
        translate.load(saved, search={"beam_size": 3})
    with pytest.raises(UserError, match=r"search\.rules"):
        translate.load(saved, search={"rules": None})
    with pytest.raises(
        UserError, match=r"search\.max_length_offset = 5000: must be less than or equal to 4096"
    ):
        translate.load(saved, search={"max_length_offset": 5000})


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"device": None}, "device=None is not available here: try device=auto"),
        ({"device": "meta"}, "device=meta has shapes, and no numbers: try device=auto"),
        (
            {"run": "a\0b"},  # in the words of Python 3.11, and of 3.13
            "cannot be read .*embedded null (byte|character in path).: check the path",
        ),
        ({"run": "a" * 5000}, "cannot be read .File name too long.: check the path"),
        ({"run": None}, "None is no path: give the folder of a run"),
        ({"workers": 0}, "workers=0: must be a whole number of at least 1"),
        ({"tokens_per_batch": "8"}, "tokens_per_batch='8': must be a whole number"),
        ({"split_sentences": "no"}, "split_sentences='no': must be True or False"),
        ({"precision": "int4"}, "precision='int4': must be one of float32, bf16, int8"),
        ({"search": {1: 2}}, r"search = \{1: 2\}: give a search, the name of an option"),
    ],
)
def test_an_argument_of_the_wrong_type_is_told(saved, arguments, line) -> None:
    with pytest.raises(UserError, match=line):
        load(**({"run": saved} | arguments))


@pytest.mark.parametrize("name", [*CHECKED, "checksums.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "flipped"])
def test_a_damaged_file_is_named(saved, name, damage) -> None:
    path = saved / name
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        content[len(content) // 2] ^= 0x10
        path.write_bytes({"empty": b"", "half": content[: len(content) // 2]}.get(damage, content))
    with pytest.raises(UserError) as error:
        bundle.load(saved)
    if (name, damage) != ("checksums.json", "flipped"):  # which of the others it belies, is open
        assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_the_model_card_may_be_edited(saved) -> None:
    card = saved / "README.md"
    assert "# es → en" in card.read_text(encoding="utf-8")
    assert "- **dev bleu**: 41.5" in card.read_text(encoding="utf-8")
    assert "kind toy, pairs 3" in card.read_text(encoding="utf-8")
    card.write_text("mine")
    bundle.load(saved)


def test_another_tokenizer_is_refused_even_with_a_right_checksum(saved, separate) -> None:
    forge(saved, "target.spm", separate.target.to_bytes())
    with pytest.raises(UserError, match=r"target.spm is not the tokenizer .* trained with"):
        bundle.load(saved)


def test_a_newer_format_is_refused(saved) -> None:
    reconfigure(saved, format=bundle.FORMAT + 1, version="9.9", unheard_of=1)
    with pytest.raises(UserError, match=r"format 2 comes from a newer version \('9.9'\)"):
        bundle.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "transfomer"}, "did you mean transformer"),
        ({"family": "os"}, r"config.json.family = 'os': no such family; choose from"),
        ({"source_vocab_size": "many"}, "source_vocab_size = 'many'"),
        ({"options": {"d_model": 8}}, "num_heads is missing"),
        ({"taught": {"layer": 0, "head": 1}}, "layer = 0: must be greater than 0"),
    ],
)
def test_a_configuration_that_builds_nothing_is_told(saved, change, message) -> None:
    reconfigure(saved, **change)
    with pytest.raises(UserError, match=message):
        bundle.load(saved)


@pytest.mark.parametrize("key", bundle.BundleConfig.model_fields)
def test_a_key_that_is_not_there_is_told(saved, key) -> None:
    config = json.loads((saved / "config.json").read_text())
    del config[key]
    forge(saved, "config.json", json.dumps(config).encode())
    with pytest.raises(UserError, match=rf"config\.json\.{key} is missing"):
        bundle.load(saved)


def test_an_option_that_came_later_is_what_it_was_before(saved) -> None:
    expected = bundle.load(saved).config.options
    since = TransformerConfig.since
    reconfigure(saved, options={k: v for k, v in expected.items() if k not in since})
    assert bundle.load(saved).config.options == expected


def test_weights_of_another_model_are_refused(saved) -> None:
    reconfigure(saved, options=bundle.load(saved).config.options | {"d_ff": 24})
    with pytest.raises(UserError, match=r"feed_forward.* do not belong together"):
        bundle.load(saved)


class Payload:
    """Unpickling it leaves a file behind."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_nothing_in_a_bundle_is_executed(saved, tmp_path) -> None:
    marker = tmp_path / "executed"
    attack = {"_target_": "os.system", "command": f"touch {marker}"}
    original = {name: (saved / name).read_bytes() for name in CHECKED}
    config = json.loads(original["config.json"])
    payload = pickle.dumps(Payload(marker))
    contents = [("model.safetensors", payload), ("source.spm", payload)] + [
        ("config.json", json.dumps({**config, key: attack}).encode())
        for key in ("options", "search", "extra", "family")
    ]
    for name, content in contents:
        forge(saved, name, content)
        with contextlib.suppress(UserError):
            translate.load(saved, device="cpu")
        assert not marker.exists()
        forge(saved, name, original[name])


def test_a_run_without_a_bundle_says_what_to_do(tmp_path) -> None:
    with pytest.raises(UserError, match="is not a run folder and has no bundle"):
        bundle.find(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match=rf"resume it with translate train run={tmp_path}"):
        bundle.find(tmp_path)
    with pytest.raises(UserError, match="nowhere does not exist: check the path"):
        bundle.find(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is not a bundle"):
        bundle.load(tmp_path)


class Killed(BaseException):
    """What no handler catches."""


@pytest.mark.parametrize("failure", [Killed(), OSError(28, "No space left on device")])
def test_whatever_interrupts_a_save_a_whole_bundle_is_found(
    saved, make_model, joint, options, monkeypatch, failure
) -> None:
    """Die at the n-th call to the system, for every n."""
    calls = {"left": 0}

    def guarded(function):
        def call(*arguments, **keywords):
            calls["left"] -= 1
            if calls["left"] < 0:
                raise failure
            return function(*arguments, **keywords)

        return call

    old, new = make_model("transformer"), make_model("transformer")
    with torch.no_grad():
        new.output.weight.add_(1)
    outcomes, interrupted = set(), True
    for n in range(100):
        write(saved, old, joint, options["transformer"])
        with monkeypatch.context() as patch:
            for owner, function in (
                (os, "fsync"), (Path, "replace"), (Path, "mkdir"), (Path, "open"),
            ):  # fmt: skip
                patch.setattr(owner, function, guarded(getattr(owner, function)))
            calls["left"] = n
            try:
                write(saved, new, joint, options["transformer"])
                interrupted = False
            except (Killed, UserError):
                pass
        found = bundle.load(bundle.find(saved.parent)).model.output.weight
        outcomes.add("new" if torch.equal(found, new.output.weight) else "old")
        assert outcomes <= {"old", "new"}
        if not interrupted:
            break
        assert torch.equal(found, new.output.weight) or torch.equal(found, old.output.weight)
    assert not interrupted
    assert outcomes == {"old", "new"}
    assert sorted(path.name for path in saved.parent.iterdir()) == ["bundle"]


def test_a_bundle_that_is_a_link_is_replaced_where_it_leads(
    saved, tmp_path, make_model, joint, options
) -> None:
    link = tmp_path / "linked" / "bundle"
    link.parent.mkdir()
    link.symlink_to(saved, target_is_directory=True)
    model = make_model("transformer")
    for value in (1.0, 2.0):
        with torch.no_grad():
            model.output.weight.fill_(value)
        write(link, model, joint, options["transformer"])
    assert link.is_symlink()
    assert set(bundle.load(saved).model.output.weight.unique().tolist()) == {2.0}
    saved.rename(saved.with_name(f".{saved.name}.old"))  # as a kill between the renames leaves it
    assert set(bundle.load(bundle.find(link.parent)).model.output.weight.unique().tolist()) == {2.0}


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import sys, translate; translate.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.fixture
def save(tmp_path, make_model, joint, options):
    """`save(kind)`: a bundle of such a model, loaded."""

    def saved(kind: str) -> bundle.Bundle:
        write(tmp_path / kind, make_model(kind), joint, options[kind])
        return bundle.load(tmp_path / kind)

    return saved


def test_an_ensemble_may_be_of_several_families(save, joint) -> None:
    bundles = [(kind, save(kind)) for kind in ("rnn_general", "transformer")]
    ensemble = together(bundles)
    assert list(ensemble.model.models) == [each.model for _, each in bundles]
    assert ensemble.model.target_vocab_size == len(joint.target)
    assert not ensemble.model.training
    assert ensemble.tokenizers == bundles[0][1].tokenizers


@pytest.mark.parametrize(("source", "target"), [("en", "es"), ("es", "fr")])
def test_an_ensemble_is_of_one_pair_of_languages(save, source: str, target: str) -> None:
    """A joint tokenizer may be the same for all, so that nothing else tells them apart."""
    one = save("transformer")
    turned = {"source_language": source, "target_language": target}
    other = replace(one, config=one.config.model_copy(update=turned))
    message = f"other translates {source} to {target}, but one translates es to en"
    with pytest.raises(UserError, match=message):
        together([("one", one), ("other", other)])
    tagged = replace(one, config=one.config.model_copy(update={"tag": "<2en>"}))
    together([("one", tagged), ("other", other)])


def test_an_ensemble_shares_its_tokenizers(save) -> None:
    one = save("rnn_general")
    hashes = {"tokenizers": {"source": "s", "target": "t"}}
    other = replace(one, config=one.config.model_copy(update=hashes))
    with pytest.raises(UserError) as error:
        together([("one", one), ("other", other)])
    assert f"SHA-256 {one.config.tokenizers['source']} and s)" in str(error.value)
    assert "one and other have different source tokenizers" in str(error.value)

"""A model from a stranger: whatever its files say, nothing runs and nothing is written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import translate
from translate import search as searches
from translate.cli.main import COMMANDS, main
from translate.data.corpus import check_data
from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.evaluation import report
from translate.extras.checkpoint_average import mean_weights
from translate.files import refuse_links
from translate.inference import bundle
from translate.run_folder import configuration, read_curves, read_record
from translate.search.constraints import NO_RULES
from translate.training.checkpoints import AtomicCheckpointIO, _seal


class Payload:
    """Unpickling it leaves a file behind."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def forge(folder: Path, name: str, content: bytes) -> None:
    """Put content of one's own into a bundle, and its right checksum."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_bytes(content)
    vouch(folder, name, hashlib.sha256(content).hexdigest())


def vouch(folder: Path, name: str, digest: str) -> None:
    sums = json.loads((folder / "checksums.json").read_text())
    (folder / "checksums.json").write_text(json.dumps({**sums, name: digest}))


def configure(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    options = {**config["options"], **changes.pop("options", {})}
    content = json.dumps({**config, "options": options, **changes})
    forge(folder, "config.json", content.encode())


def search(folder: Path, **changes: Any) -> None:
    """A search that is whole, but for these keys."""
    beam = {
        "kind": "beam", "max_length_ratio": 2.0, "max_length_offset": 20, "beam_size": 5,
        "n_best": 1, "length_penalty": "none", "alpha": 0.0, "coverage_penalty": 0.0,
    }  # fmt: skip
    configure(folder, search={**beam, **changes})


def safetensors(
    header: dict[str, Any] | bytes, body: bytes = b"", size: int | None = None
) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    from safetensors.torch import load_file, save

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    forge(folder, "model.safetensors", save(tensors))


def link(folder: Path, name: str, target: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    outside = folder.parent / "outside"
    outside.write_bytes(content)
    (folder / name).symlink_to(target.format(outside=outside))


def pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


def zipped(marker: Path) -> bytes:
    """A pickle in PyTorch's own clothes, with the name of a file outside."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Payload(marker)))
        archive.writestr("archive/version", "3\n")
        archive.writestr("../../executed", "x")
    return buffer.getvalue()


ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
HUGE = {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 16]}
CALL = {"_target_": "subprocess.call", "_args_": [["touch", "executed"]]}
Attack = Callable[[Path, Path], object]  # the bundle, the file a payload would make

BUNDLES: dict[str, Attack] = {
    "pickle as weights": lambda f, m: forge(f, "model.safetensors", pickle.dumps(Payload(m))),
    "checkpoint as weights": lambda f, m: forge(f, "model.safetensors", zipped(m)),
    "pickle as tokenizer": lambda f, m: forge(f, "source.spm", pickle.dumps(Payload(m))),
    "pickle as checksums": lambda f, m: (f / "checksums.json").write_bytes(
        pickle.dumps(Payload(m))
    ),
    "_target_ as options": lambda f, m: configure(f, options=CALL),
    "_target_ as search": lambda f, m: configure(f, search=CALL),
    "_target_ beside a search": lambda f, m: configure(f, search={"kind": "greedy", **CALL}),
    "an interpolation in the search": lambda f, m: configure(
        f, search={"kind": "${oc.env:HOME}", "max_length_ratio": 1.0, "max_length_offset": 5}
    ),
    "a path as family": lambda f, m: configure(f, family="../../evil"),
    "a class as family": lambda f, m: configure(f, family="subprocess.Popen"),
    "a width for all memory": lambda f, m: configure(f, options={"hidden_size": 1 << 40}),
    "layers for a day": lambda f, m: configure(f, options={"encoder_layers": 1 << 20}),
    "a vocabulary for all memory": lambda f, m: configure(f, source_vocab_size=1 << 40),
    "a beam for all memory": lambda f, m: search(f, beam_size=1 << 50),
    "a search without end": lambda f, m: search(f, max_length_offset=1 << 40),
    "escapes in a version": lambda f, m: configure(f, format=2, version="x\n\x1b[31mred"),
    "escapes in a name": lambda f, m: weights(
        f, lambda t: t.update({"\n\x1b[31mred": torch.zeros(1)})
    ),
    "deep JSON": lambda f, m: forge(f, "config.json", b'{"extra":' + b"[" * 99_999),
    "endless JSON": lambda f, m: forge(f, "config.json", b'{"extra": "' + b"x" * (2 << 20) + b'"}'),
    "an endless number": lambda f, m: forge(f, "config.json", b'{"format": ' + b"9" * 9_999 + b"}"),
    "NaN in JSON": lambda f, m: configure(f, options={"dropout": float("nan")}),
    "a header of 2^60 bytes": lambda f, m: forge(
        f, "model.safetensors", safetensors(b"{}", size=1 << 60)
    ),
    "a declared shape of 2^60": lambda f, m: forge(
        f, "model.safetensors", safetensors({"output.bias": HUGE}, b"\0" * 16)
    ),
    "offsets beyond the file": lambda f, m: forge(
        f, "model.safetensors",
        safetensors({"output.bias": {**ENTRY, "data_offsets": [0, 1 << 50]}}, b"\0" * 16),
    ),
    "tensors on top of each other": lambda f, m: forge(
        f, "model.safetensors", safetensors({"a": ENTRY, "b": ENTRY}, b"\0" * 16)
    ),
    "an unknown type of number": lambda f, m: forge(
        f, "model.safetensors", safetensors({"a": {**ENTRY, "dtype": "OBJECT"}}, b"\0" * 16)
    ),
    "weights that are whole numbers": lambda f, m: weights(
        f, lambda t: t.update({name: v.to(torch.int32) for name, v in t.items()})
    ),
    "weights that are no numbers": lambda f, m: weights(
        f, lambda t: t["output.bias"].fill_(float("nan"))
    ),
    "weights that are infinite": lambda f, m: weights(
        f, lambda t: t["output.bias"].fill_(float("inf"))
    ),
    "a weight too many": lambda f, m: weights(
        f, lambda t: t.update({"../../executed": torch.zeros(1)})
    ),
    "a path among the checksums": lambda f, m: vouch(f, "model.safetensors", "../../etc/passwd"),
    "a list as checksum": lambda f, m: vouch(f, "model.safetensors", ["x"]),  # type: ignore[arg-type]
    "a link to a file outside": lambda f, m: link(f, "model.safetensors", "{outside}"),
    "a link without end": lambda f, m: link(f, "config.json", "/dev/zero"),
    "a link to itself": lambda f, m: link(f, "source.spm", "source.spm"),
    "a pipe that never ends": lambda f, m: pipe(f, "target.spm"),
}  # fmt: skip


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("attack", BUNDLES.values(), ids=BUNDLES)
def test_a_bundle_that_attacks_is_refused_in_a_line(
    saved: Path, tmp_path: Path, attack: Attack
) -> None:
    attack(saved / "bundle", tmp_path / "executed")
    before = everything(tmp_path)
    with pytest.raises(UserError) as refused:
        translate.load(saved, device="cpu")
    assert everything(tmp_path) == before
    first = str(refused.value).splitlines()[0]
    assert str(saved) in first or "problems" in first or "model.family" in first
    assert len(str(refused.value)) < 2_000
    assert "\x1b" not in str(refused.value)


def test_weights_larger_than_their_model_are_not_read(saved: Path) -> None:
    os.truncate(
        saved / "bundle" / "model.safetensors", 1 << 28
    )  # sparse: a few bytes in an archive
    told = r"it has 268,435,456 bytes, but may have at most"
    with pytest.raises(UserError, match=told):
        translate.load(saved, device="cpu")


def sealed(content: bytes) -> bytes:
    """As a stranger would seal it who has read our source."""
    file = io.BytesIO(content)
    _seal(file)
    return file.getvalue()


def legacy(marker: Path) -> bytes:
    return pickle.dumps(Payload(marker)) + b"\0\0"


def module_of_code(marker: Path) -> bytes:
    return saved_as({"state_dict": Payload(marker)})


def packed(marker: Path) -> bytes:
    """A checkpoint of eight megabytes in eight kilobytes."""
    plain, small = io.BytesIO(), io.BytesIO()
    torch.save({"state_dict": torch.zeros(1 << 21)}, plain)
    with zipfile.ZipFile(plain) as whole, zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as out:
        for name in whole.namelist():
            out.writestr(name, whole.read(name))
    return small.getvalue()


def saved_as(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


CHECKPOINTS: dict[str, Callable[[Path], bytes]] = {
    "a pickle": lambda m: pickle.dumps(Payload(m)),
    "a sealed pickle": lambda m: sealed(legacy(m)),
    "a sealed archive with a payload": lambda m: sealed(module_of_code(m)),
    "a sealed archive by hand": lambda m: sealed(zipped(m)),
    "an archive without a seal": lambda m: module_of_code(m),
    "nothing": lambda m: b"",
    "less than a seal": lambda m: b"PK",
    "a packed archive": lambda m: sealed(packed(m)),
    "a list": lambda m: sealed(saved_as([torch.ones(3)])),
}


@pytest.mark.parametrize("attack", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_checkpoint_that_attacks_is_refused_in_a_line(
    tmp_path: Path, attack: Callable[[Path], bytes]
) -> None:
    path, marker = tmp_path / "last.ckpt", tmp_path / "executed"
    path.write_bytes(attack(marker))
    with pytest.raises(UserError, match=r"last\.ckpt is (damaged|not a checkpoint)") as refused:
        AtomicCheckpointIO().load_checkpoint(path, weights_only=False)  # which is not obeyed
    assert "\n" not in str(refused.value)
    assert everything(tmp_path) == {"last.ckpt"}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"state_dict": 3},
        {"state_dict": {"model.x": "text"}},
        {"state_dict": {"model.x": torch.zeros(1).expand(1 << 40)}},
    ],
    ids=["no weights", "a number", "no tensor", "one number for many"],
)
def test_a_checkpoint_without_weights_is_not_averaged(tmp_path: Path, content: object) -> None:
    path = tmp_path / "step-0000001.ckpt"
    path.write_bytes(sealed(saved_as(content)))
    with pytest.raises(UserError, match=r"ckpt is not a checkpoint of this program \(.+\)"):
        mean_weights([path])


def test_a_checkpoint_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "last.ckpt")
    with pytest.raises(UserError, match="it is not a regular file"):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "last.ckpt")


def test_a_sealed_checkpoint_that_is_cut_short_is_refused_in_a_line(tmp_path: Path) -> None:
    path, content = tmp_path / "best.ckpt", io.BytesIO()
    torch.save({"weights": torch.ones(3), "step": 300, "name": ["x", 1.5, None]}, content)
    with zipfile.ZipFile(content) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (pickled,) = (name for name in files if name.endswith("data.pkl"))
    for end in range(len(files[pickled])):
        forged = io.BytesIO()
        with zipfile.ZipFile(forged, "w") as archive:
            for name, part in files.items():
                archive.writestr(name, part[:end] if name == pickled else part)
        path.write_bytes(sealed(forged.getvalue()))
        with pytest.raises(UserError, match=r"^.*best\.ckpt is not a checkpoint of .* \(.+\); .*$"):
            AtomicCheckpointIO().load_checkpoint(path)


CONFIGS: dict[str, tuple[Any, str]] = {
    "callbacks of Hydra": ({"hydra": {"callbacks": {"x": CALL}}}, "hydra"),
    "a launcher of Hydra": ({"hydra": {"launcher": CALL}}, "hydra"),
    "logging with a factory": ({"hydra": {"job_logging": {"()": "os.system"}}}, "hydra"),
    "files beside ours": ({"defaults": ["/../../../tmp/evil@hydra.callbacks"]}, "defaults"),
    "_target_": ({"model": CALL}, "model._target_"),
    "_target_ in a list": ({"data": {"columns": [CALL]}}, "data.columns.0._target_"),
    "a date": ({"data": {"dir": date(2026, 1, 1)}}, "cannot be read"),
    "a list": (["x"], "does not contain a configuration"),
}


@pytest.mark.parametrize(("content", "line"), CONFIGS.values(), ids=CONFIGS)
def test_a_configuration_that_gives_orders_is_refused(
    tmp_path: Path, content: Any, line: str
) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=r"config\.yaml") as refused:
        configuration(tmp_path)
    assert line in str(refused.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data: !!python/object/apply:os.system [touch executed]", "cannot be read"),
        ("a: &a [x]\n" + "\n".join(f"b{n}: [*a, *a]" for n in range(9)), "refers to itself"),
        ("data: {x: '" + "ж" * (3 << 16) + "'}", "may have at most 262,144"),
        ("data: " + "[" * 5_000, "levels deep"),
        ("data: \x00", "cannot be read"),
    ],
    ids=["python object", "billion laughs", "two bytes each", "deep", "NUL"],
)
def test_yaml_that_does_more_than_say_is_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=line):
        configuration(tmp_path)
    assert everything(tmp_path) == {"config.yaml"}


def test_a_configuration_is_read_anew_and_is_each_readers_own(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("{seed: 1, data: {dir: here}}")
    configuration(tmp_path)["data"]["dir"] = "there"
    assert configuration(tmp_path)["data"]["dir"] == "here"
    file.write_text("{seed: 2, data: {dir: here}}")
    assert configuration(tmp_path)["seed"] == 2


@pytest.mark.parametrize(
    "name", ["../words", "words\n--index-url=http://x", "words @ file:///tmp/x", "-r x", ""]
)
def test_a_package_is_a_name_and_no_more(name: str) -> None:
    keys = {"kind": "pypi", "version": "1", "sha256": "0" * 64, "name": name}
    assert any("data.name" in line for line in check_data(keys))


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "${x}", "\\${x}", "\\\\${x} ${", "$x {y}"])
def test_what_a_search_says_is_text_and_no_order(saved: Path, text: str) -> None:
    rules = NO_RULES.model_dump(mode="json") | {"banned": [text]}
    search(saved / "bundle", rules=rules)
    node = COMMANDS["text"].options.stored_nodes(str(saved))["search"]
    assert node["rules"] == rules


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "\\\\${x} ${", "$x {y}"])
def test_what_a_configuration_says_is_text_and_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    configs = []

    def train(config: Any, run: Path, init: str | None) -> float:
        configs.append(config)
        return 0.0

    monkeypatch.setattr("translate.training.run.train", train)
    assert main(["train", "data=toy", f"run={tmp_path}"]) == 0
    (written,) = configs
    written["search"]["rules"]["banned"] = [text]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(written))
    assert main(["train", f"run={tmp_path}"]) == 0
    assert configs[1] == written
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"data": {"dir": text}}))
    assert configuration(tmp_path)["data"] == {"dir": text}


def test_an_honest_bundle_is_loaded(saved: Path, tokenizers: Tokenizers) -> None:
    """Else all of the above would be refused for another reason."""
    loaded = bundle.load(saved / "bundle")
    assert loaded.tokenizers.source.sha256 == tokenizers.source.sha256
    configure(saved / "bundle", extra={"data": {"kind": "toy"}})
    search(saved / "bundle")
    weights(saved / "bundle", lambda t: t["output.bias"].fill_(1.0))
    assert bundle.load(saved / "bundle").model.output.bias.tolist()[0] == 1.0


@pytest.mark.parametrize("key", searches.STORED)
def test_a_stored_search_takes_no_more_than_a_bundle_may_ask_for(
    saved: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    kind = {"kind": "diverse", "diversity_strength": 0.0} if key == "groups" else {}
    beams = {"beam_size": 4096} if key in ("n_best", "groups") else {}
    search(saved / "bundle", **kind, **beams, **{key: 4096})
    loaded = bundle.load(saved / "bundle")
    assert loaded.config.search[key] == searches.STORED[key]
    assert f"search.{key} = 4096 is lowered to {searches.STORED[key]}" in caplog.text


@pytest.mark.parametrize(
    "banned", [["x"] * 1001, ["x" * 201]], ids=["too many phrases", "too long a phrase"]
)
def test_a_stored_search_bans_a_bounded_number_of_phrases(saved: Path, banned: list[str]) -> None:
    rules = NO_RULES.model_dump(mode="json")
    search(saved / "bundle", rules=rules | {"banned": ["x" * 200] * 1000})
    bundle.load(saved / "bundle")
    search(saved / "bundle", rules=rules | {"banned": banned})
    with pytest.raises(UserError, match=r"search\.rules\.banned"):
        bundle.load(saved / "bundle")


def outside_of(run: Path) -> Path:
    """A file of somebody else's."""
    outside = run.parent / "outside"
    outside.write_text("mine")
    return outside


WRITERS: dict[str, tuple[str, list[str]]] = {
    "evaluate": (
        "evaluation/{name}.html",
        ["evaluate", "run={run}", "input={text}", "reference={text}", "resamples=100"],
    ),
    "attend": ("plots", ["attend", "run={run}", "der Hund"]),
    "compare": (
        "evaluation",
        ["compare", "{run}/bundle", "{run}", "input={text}", "reference={text}"],
    ),
    "align": ("evaluation", ["align", "run={run}", "input={text}", "reference={text}"]),
    "export": ("onnx", ["export", "run={run}", "to=onnx"]),
    "shortlist": ("shortlist.safetensors", ["shortlist", "run={run}"]),
    "train": ("checkpoints", ["train", "data=toy", "run={run}"]),
    "a lock": (".lock", ["train", "data=toy", "run={run}"]),
    "a log": ("train.log", ["train", "data=toy", "run={run}"]),
}


@pytest.mark.parametrize("kind", ["file", "folder", "pipe"])
@pytest.mark.parametrize(("place", "command"), WRITERS.values(), ids=WRITERS)
def test_nothing_is_written_through_what_lies_in_a_run(
    saved: Path, capsys: pytest.CaptureFixture[str], place: str, command: list[str], kind: str
) -> None:
    outside, text = outside_of(saved), saved.parent / "text"
    text.write_text("der Hund\n" * 3)
    path = saved / place.format(name=text.name)
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        (saved.parent / "elsewhere").mkdir()
        path.symlink_to("../elsewhere" if path.parent == saved else "../../elsewhere")
    else:
        path.symlink_to(outside)
    before = everything(saved.parent)
    assert main([each.format(run=saved, text=text) for each in command]) == 1
    told = capsys.readouterr().err
    assert str(path) in told
    assert "a link that leads out of" in told or "neither a file nor a folder" in told
    assert outside.read_text() == "mine"
    assert everything(saved.parent) == before


def test_a_run_that_is_a_link_and_links_within_it_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "run" / "disk").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints").symlink_to("disk")
    (tmp_path / "link").symlink_to("run")
    refuse_links(tmp_path / "link")
    refuse_links(tmp_path / "new")


ENDLESS = {
    "shortlist": ["text", "run={run}", "shortlist={file}", "der"],
    "a file of sentences": ["text", "run={run}", "input={file}"],
    "a tokenizer": ["train", "data=toy", "run={run}/new", "tokenizer.pretrained={file}"],
}


@pytest.mark.parametrize("command", ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_not_read(
    saved: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main([each.format(run=saved, file="/dev/zero") for each in command]) == 1
    assert "/dev/zero" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["provenance.json", "metrics.csv", "evaluation/test.json"])
def test_an_endless_file_in_a_run_is_not_read(saved: Path, name: str) -> None:
    path = saved / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to("/dev/zero")
    readers: dict[str, Callable[[], object]] = {
        "provenance.json": lambda: read_record(saved),
        "metrics.csv": lambda: read_curves(path),
        "evaluation/test.json": lambda: report.read(saved / "evaluation", "test"),
    }
    with pytest.raises(UserError, match=re.escape(str(path))):
        readers[name]()

"""The documents say what the source says: code, examples, commands, tests and links."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import os
import re
import shlex
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from translate.cli.arguments import Job, split
from translate.cli.composing import launch
from translate.cli.main import COMMANDS
from translate.compose import node_of
from translate.config import Node, problems
from translate.data.corpus import check_data
from translate.extras.downloads import PyPI
from translate.models.transformer import TransformerConfig
from translate.search.beam import BeamConfig
from translate.training.settings import training_problems

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "attention.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
CHOICES = re.findall(r"^Config: `(.+?)`", TEXT, re.MULTILINE)
CORPORA = (ROOT / "docs" / "corpora.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EVERYTHING = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
NAMED_TESTS = sorted(
    {
        (name, (path.parent / link).resolve())
        for path in DOCUMENTS
        for name, link in re.findall(
            r"\[`(test_\w+)`\]\(([^)]+)\)", path.read_text(encoding="utf-8")
        )
    }
)
HELPS = {name: command.options.usage for name, command in COMMANDS.items()}
TESTS = (ROOT / "docs" / "tests_of_attention.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \|.*$", TESTS, re.MULTILINE)


def loaded(script: str) -> ModuleType:
    """Import a program of scripts/."""
    spec = importlib.util.spec_from_file_location(script, ROOT / "scripts" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def include_code() -> ModuleType:
    return loaded("include_code")


@pytest.mark.parametrize("name", ["attention", "configuration"])
def test_what_a_document_shows_is_the_source_of_today(include_code: ModuleType, name: str) -> None:
    document = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert len(include_code.BLOCK.findall(document)) > 20
    differing = include_code.differing(document)
    assert not differing, (
        f"docs/{name}.md differs from the source in {differing}: run scripts/include_code.py"
    )


def test_every_key_is_in_the_configuration_document_and_explained(
    include_code: ModuleType,
) -> None:
    shown = set(re.findall(r"^\| `([\w.]+)` \|", CONFIGURATION, re.MULTILINE))
    files = (ROOT / "conf").rglob("*.yaml")
    rows = "".join(include_code.table_of(f) for f in files if f.parent.name != "experiment")
    keys = set(re.findall(r"^\| `([\w.]+)` \|", rows, re.MULTILINE))
    assert {key for key in keys - shown if not key.startswith("data.columns.")} == set()
    assert re.findall(r"^\|.*\|  \|$", CONFIGURATION, re.MULTILINE) == []


def test_a_table_has_full_names_defaults_and_descriptions(include_code: ModuleType) -> None:
    rows = include_code.table_of(ROOT / "conf" / "model" / "transformer.yaml").splitlines()
    assert (
        "| `model.activation` | `relu` | function inside the feed-forward layers; swiglu has a "
        r"third matrix (relu \| gelu \| swiglu) |"
    ) in rows
    stale = "<!-- conf/model/transformer.yaml -->\n\n| old |\n\nafter\n"
    assert include_code.differing(stale) == ["conf/model/transformer.yaml"]
    mended = include_code.with_code(stale)
    assert mended.endswith(f"{rows[-1]}\n\nafter\n")
    assert include_code.differing(mended) == []


@pytest.mark.parametrize(
    ("file", "node", "key"),
    [
        ("model/transformer", TransformerConfig, "model.dropout"),
        # a base file has the class of the first option that begins from it
        ("search/base", BeamConfig, "search.max_length_ratio"),
        ("data/base", PyPI, "data.tag"),
    ],
)
def test_a_change_of_a_description_shows_in_the_table(
    include_code: ModuleType, monkeypatch: pytest.MonkeyPatch, file: str, node: type[Node], key: str
) -> None:
    path = ROOT / "conf" / f"{file}.yaml"
    before = include_code.table_of(path).splitlines()
    field = node.model_fields[key.rpartition(".")[2]]
    monkeypatch.setattr(field, "description", "odd words about it")
    changed = set(include_code.table_of(path).splitlines()) - set(before)
    assert [row.split(" | ")[::2] for row in changed] == [[f"| `{key}`", "odd words about it |"]]


def test_a_key_without_a_description_has_an_empty_cell(
    include_code: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransformerConfig.model_fields["d_model"], "description", None)
    table = include_code.table_of(ROOT / "conf" / "model" / "transformer.yaml")
    assert re.findall(r"^\|.*\|  \|$", table, re.MULTILINE) == ["| `model.d_model` | `256` |  |"]


def test_a_block_that_differs_is_found_and_mended(include_code: ModuleType) -> None:
    marker = "translate/attention/masks.py: over_keys"
    for block in ("", "```python\nreturn mask\n```\n", "\n```python\n```\n"):
        stale = f"before\n\n<!-- {marker} -->\n{block}\nafter\n"
        assert include_code.differing(stale) == [marker]
        mended = include_code.with_code(stale)
        assert "    return mask[:, None, None, :]\n```\n\nafter\n" in mended
        assert include_code.differing(mended) == []


def test_a_name_that_is_gone_is_told(include_code: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"masks\.py has 0 definitions of no_such"):
        include_code.with_code("<!-- translate/attention/masks.py: no_such -->\n")


@pytest.mark.parametrize(("name", "least"), [("attention", 6), ("python", 12)])
def test_examples_print_what_the_document_says(
    name: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    document = ROOT / "docs" / f"{name}.md"
    text = document.read_text(encoding="utf-8")
    examples = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    names = {"folder": tmp_path}
    parsed = doctest.DocTestParser().get_doctest(examples, names, document.name, str(document), 0)
    said: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(parsed, out=said.append)
    assert results.attempted >= least
    assert results.failed == 0, "".join(said)


def test_the_page_of_the_python_interface_is_that_of_today() -> None:
    new = loaded("api_page").page()
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == new, "run scripts/api_page.py"
    assert new.count("### ") > 20


@pytest.mark.parametrize("choice", CHOICES)
def test_every_config_line_is_valid(choice: str) -> None:
    jobs: list[Job] = []
    launch(
        COMMANDS["train"],
        split(COMMANDS["train"].syntax(), ["data=toy", *choice.split()]),
        jobs.append,
    )
    assert len(jobs) == 1
    assert training_problems(jobs[0].config) == []


def train_lines(text: str) -> list[str]:
    r"""What the lines of a text give to `translate train`, without flags, sweeps and run folders.

    A line that ends with \ goes on with the next.
    """
    text = re.sub(r"\\\n\s*", "", text)
    lines = re.findall(r"^ +(?:srun |-m )?translate train ([^#\n]*)", text, re.MULTILINE)
    # … stands for what a reader chooses, and $ but for a folder for what a loop goes through
    plain = [shlex.split(line) for line in lines if not re.search(r"--|…|(?<!dir=)\$", line)]
    kept = [
        shlex.join(word for word in words if "=" in word and not word.startswith("run="))
        for words in plain
    ]
    return sorted(set(filter(None, kept)))


@pytest.mark.parametrize("choice", train_lines(f"{EVERYTHING}\n{HELPS['train']}"))
def test_every_training_of_the_documents_and_the_help_is_valid(choice: str) -> None:
    jobs: list[Job] = []
    launch(COMMANDS["train"], split(COMMANDS["train"].syntax(), shlex.split(choice)), jobs.append)
    assert training_problems(jobs[0].config) == []


def other_lines(text: str) -> list[str]:
    """The other command lines of a text whose keys have values, without what a shell reads."""
    text = re.sub(r"\\\n\s*", "", text)
    lines = re.findall(r"^ +translate (?!train |models)(\w+ .*)$", text, re.MULTILINE)
    return sorted({re.split(r"\s+#| [<>] | && ", line)[0] for line in lines if "$" not in line})


@pytest.mark.parametrize("line", other_lines("\n".join([EVERYTHING, *HELPS.values()])))
def test_every_other_command_of_the_documents_and_the_help_is_valid(line: str) -> None:
    name, *arguments = shlex.split(line)
    parsed = split(COMMANDS[name].syntax(), arguments)
    if COMMANDS[name].composed:
        jobs: list[Job] = []
        launch(COMMANDS[name], parsed, jobs.append)
        assert len(jobs) == 1
    else:
        stored = {"search": node_of("search", "beam"), "data": {}, "tokenizer": {}}
        values, wrong = COMMANDS[name].options.values_of(parsed, stored)
        assert wrong == []
        assert problems(COMMANDS[name].options, values, "", combined=False) == []


@pytest.mark.parametrize("number", [0, 1])
def test_every_configuration_of_several_corpora_is_valid(number: int) -> None:
    shown = re.findall(r"^```yaml\ndata:\n(.*?)^```$", CORPORA, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    node = yaml.safe_load(shown[number])
    whole = yaml.safe_load((ROOT / "conf" / "data" / "base.yaml").read_text(encoding="utf-8"))
    files = yaml.safe_load((ROOT / "conf" / "data" / "files.yaml").read_text(encoding="utf-8"))
    del files["defaults"]
    assert check_data(whole | files | {"source": "en", "target": "de"} | node) == []


def test_every_mechanism_is_in_the_table_once() -> None:
    assert list(map(int, ROWS)) == list(range(1, 28))


@cache
def functions(path: Path) -> set[str]:
    """Those of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("name", "path"), NAMED_TESTS, ids=[name for name, _ in NAMED_TESTS])
def test_every_named_test_exists(name: str, path: Path) -> None:
    assert name in functions(path)


def anchors(path: Path) -> set[str]:
    """What the headings of a document are called in links, as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        there = path.parent / name if name else path
        if "://" not in link and not (there.exists() and (not anchor or anchor in anchors(there))):
            lost.append(link)
    assert lost == []


def test_files_have_about_as_many_lines_as_the_page_says() -> None:
    said = re.findall(r"\[\w+\.py\]\(([^)]+)\)\s\((?:some )?(\d+)[ )]", TEXT)
    assert len(said) == 6
    for link, lines in said:
        counted = len((DOCUMENT.parent / link).read_text("utf-8").splitlines())
        assert counted == pytest.approx(int(lines), rel=0.15), link


def test_what_the_documents_call_as_a_program_can_be_called() -> None:
    programs = [p for p in (ROOT / "scripts").iterdir() if p.read_bytes().startswith(b"#!")]
    assert len(programs) > 5
    for program in programs:
        assert os.access(program, os.X_OK), f"chmod +x scripts/{program.name}"
    called = set(re.findall(r"^ +scripts/(\w+\.(?:py|sh))", EVERYTHING, re.MULTILINE))
    assert called <= {program.name for program in programs}

"""Rows of delimited text, as pandas, spreadsheets and R write it.

A row is read as it is meant where that is certain, and handed on as `Unreadable` where it is not.
Certain are: a cell in quotation marks with doubled ones in it; quotation marks around a cell
without which the row would not have the width of the table; marks around all cells that are no
numbers. Of a row that is too wide, empty cells are left out where only one reading is left then.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Literal, NamedTuple

from translate.data.pairs import Pair, Unreadable
from translate.data.plain_text import has_text, read_lines
from translate.data.sources import NOT_UTF_8
from translate.errors import UserError
from translate.wording import counted

# of source, target and perhaps domain: the name, path or number from 1, and the key that has it
Columns = Sequence[tuple[str | int, str]]
Header = bool | Literal["auto"]
BLANK = Pair("", "")  # of a blank line between others, so that pair n stays on line n
HEAD = 1_000  # rows that a table is judged by
USUAL = 0.9  # of them have its width, or it has none
MOST_LINES = 100  # of one cell
MOST_EMPTY = 6  # empty cells of a row that may be too many
NEARLY_ALL = 0.9  # of the rows: a table of which more cannot be read is refused
SEPARATORS = ",;\t|"
NUMBER = re.compile(r"[-+]?\d[\d.,]*|")
log = logging.getLogger(__name__)


class TableForm(NamedTuple):
    """The form of a table, judged by its first rows."""

    separator: str
    always: bool  # a cell that begins with a quotation mark is in quotation marks
    width: int | None  # cells of a row; None where rows differ
    names: Sequence[str]  # of the columns; none where the first row is a pair


class Row(NamedTuple):
    """The cells of a record, which begins on a line of its file and may go over several."""

    number: int  # of that line, from 1
    text: str
    cells: list[str] | None  # None: its quotation marks do not match


def read_table(
    path: Path,
    columns: Columns,
    *,
    header: Header,
    separator: str | None = "\t",
    languages: Sequence[str] = (),
) -> Iterator[Pair]:
    """Yield the pairs of a table; `Unreadable` in place of a row that may mean several things.

    Args:
        columns: each by its number from 1 or, where a header names it, by name.
        header: whether the first row names the columns; auto: if it has the names in `columns` or,
            where these are numbers, those of the `languages`.
        separator: a tab, with marks of quotation only where they are certain; None: one of
            `SEPARATORS`, with marks of quotation as in every CSV.

    Raises:
        UserError: a column that is not there.
    """
    lines = numbered(path)
    head = list(islice(lines, HEAD))
    layout = judged(head, columns, header, separator, languages)
    positions = [_position(column, columns, layout.names, path) for column in columns]
    rows = _rows(chain(head, lines), layout)
    if layout.names:
        next(rows)
    yield from _pairs(rows, positions, layout, path)


def judged(
    head: Sequence[tuple[int, str]],
    columns: Columns,
    header: Header,
    separator: str | None,
    languages: Sequence[str],
) -> TableForm:
    """Return the layout that most of the first lines have, as `read_table` reads them."""
    head = [line for line in head if line[1].strip()]
    by_name = [str(column) for column, _ in columns if not str(column).isdecimal()]
    layouts = [
        _judged(head, by_name or languages, header, each, separator is None)
        for each in (separator or SEPARATORS)
    ]
    return max(layouts, key=lambda one: (_all_in(by_name, one.names), one.width or 0))


def _judged(
    head: Sequence[tuple[int, str]],
    wanted: Sequence[str],
    header: Header,
    separator: str,
    csv: bool,
) -> TableForm:
    """Return the layout by one separator."""
    always = csv or _all_quoted(head, separator)
    first, *rest = _cells(head, TableForm(separator, always, None, ())) or [[]]
    named = _all_in(wanted, first) if header == "auto" else header
    ((width, _),) = Counter(map(len, rest or [first])).most_common(1)
    if named:
        # R names no column of row numbers
        of_r = width == len(first) + 1 and all(NUMBER.fullmatch(cells[0]) for cells in rest)
        names = ["", *first] if of_r else first
        return TableForm(separator, always, len(names), names)
    layout = TableForm(separator, always, width, ())
    rows = _cells(head, layout)
    regular = sum(len(cells) == width or len(_filled(cells)) == width for cells in rows)
    return layout if regular >= USUAL * len(rows) else layout._replace(width=None)


def _cells(lines: Iterable[tuple[int, str]], layout: TableForm) -> list[list[str]]:
    """Return the cells of the rows of which they are known."""
    return [row.cells for row in _rows(lines, layout) if row.cells]


def _filled(cells: Iterable[str]) -> list[str]:
    return [cell for cell in cells if cell.strip()]


def _all_in(wanted: Sequence[str], names: Sequence[str]) -> bool:
    """Tell whether a row has all the names that are wanted, each once."""
    return bool(wanted) and all(len(places(name, names)) == 1 for name in wanted)


def places(wanted: str, names: Sequence[str]) -> list[int]:
    """Return where a name stands: as it is, else without case and spaces, else as a language.

    `de` is found in `DE `, and in `de-AT` where no other column is German.
    """
    for form in (str, plain, language):
        if hits := [i for i, name in enumerate(names) if form(name) == form(wanted)]:
            return hits
    return []


def plain(name: str) -> str:
    """A name without case, spaces around it and quotation marks."""
    return name.strip(" \t\xa0\ufeff\"'").casefold()


def language(name: str) -> str:
    """The language of a code that may name a country: `de` of `de_AT`."""
    return re.split("[-_]", plain(name))[0]


def _all_quoted(head: Sequence[tuple[int, str]], separator: str) -> bool:
    """Tell whether all cells are in quotation marks, but for numbers and empty ones.

    At least two are in each row, and there are two rows.
    """
    rows = _rows(head, TableForm(separator, True, None, ()))
    cells = [_grammar(separator).raw_cells(row.text) or [] for row in rows]
    return len(cells) > 1 and all(
        sum(cell.startswith('"') for cell in row) > 1
        and all(cell.startswith('"') or NUMBER.fullmatch(cell) for cell in row)
        for row in cells
    )


def numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers from 1, without blank ones at its end."""
    held = []
    for number, line in enumerate(read_lines(path, tolerated=NOT_UTF_8), start=1):
        held.append((number, line))
        if line.strip(" "):
            yield from held
            held.clear()


# Possessive quantifiers: nothing is tried twice, whatever a line holds.
QUOTED = r'"[^"]*+(?:""[^"]*+)*+"'
OPEN = r'"[^"]*+(?:""[^"]*+)*+'


class _Grammar:
    """The cells of a record by one separator: in quotation marks, or beginning otherwise."""

    def __init__(self, separator: str) -> None:
        between = re.escape(separator)
        cell = rf'(?:{QUOTED}|[^"{between}][^{between}]*+|)'
        self.record = re.compile(rf"{cell}(?:{between}{cell})*+")
        self.unclosed = re.compile(rf"(?:{cell}{between})*+{OPEN}")
        self.cell = re.compile(rf"({cell})(?:{between}|$)")

    def raw_cells(self, record: str) -> list[str] | None:
        """Return the cells as they stand; None where a quotation mark is out of its place."""
        if not self.record.fullmatch(record):
            return None
        cells, end = [], -1
        while end < len(record):
            match = self.cell.match(record, end + 1)
            assert match is not None  # the record has matched
            cells.append(match[1])
            end = match.end(1)
        return cells


@cache
def _grammar(separator: str) -> _Grammar:
    return _Grammar(separator)


def _rows(lines: Iterable[tuple[int, str]], layout: TableForm) -> Iterator[Row]:
    """Yield the records of some lines: one a line, but for cells with line ends in them."""
    queue = _Queue(lines)
    while line := queue.next():
        number, text = line
        if '"' in text:
            yield Row(number, *_record(text, queue, layout))
        else:
            yield Row(number, text, text.split(layout.separator))


class _Queue:
    """Lines to take, some of which are put back."""

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        self.lines, self.back = iter(lines), deque[tuple[int, str]]()

    def next(self) -> tuple[int, str] | None:
        """Return the next line; None at the end."""
        return self.back.popleft() if self.back else next(self.lines, None)


def _record(text: str, queue: _Queue, layout: TableForm) -> tuple[str, list[str] | None]:
    """Return the text of a record that begins with this line, and its cells."""
    grammar, width = _grammar(layout.separator), layout.width
    literal = text.split(layout.separator)
    raw = grammar.raw_cells(text)
    if raw is None and (layout.always or width) and grammar.unclosed.fullmatch(text):
        taken: list[tuple[int, str]] = []
        joined = text
        while len(taken) < MOST_LINES and (line := queue.next()):
            taken.append(line)
            joined = f"{joined}\n{line[1]}"
            if '"' in line[1] and not grammar.unclosed.fullmatch(joined):
                break
        longer = grammar.raw_cells(joined)
        if longer is not None and width in (None, len(longer)):
            return joined, list(map(_bare, longer))
        queue.back.extendleft(reversed(taken))
    if raw is not None and (
        layout.always
        or any(len(cell) > 2 and '""' in cell[1:-1] for cell in raw if cell.startswith('"'))
        or len(literal) != width == len(raw)
    ):
        return text, list(map(_bare, raw))
    return text, None if layout.always else literal


def _bare(cell: str) -> str:
    """Return the content of a cell, whose line ends are spaces."""
    return cell[1:-1].replace('""', '"').replace("\n", " ") if cell.startswith('"') else cell


def _pairs(
    rows: Iterable[Row], positions: Sequence[int], layout: TableForm, path: Path
) -> Iterator[Pair]:
    """Yield the pairs of the rows; at the end, log how many were mended."""
    mended: Counter[str] = Counter()
    for row in rows:
        if not row.text.strip(" "):
            yield BLANK
            continue
        if row.cells is None:
            yield Unreadable.of(row.text, "its quotation marks do not match")
            continue
        readings = _readings(row.cells, positions, layout.width)
        if len(readings) != 1:
            table = "" if layout.width is None else f", where the table has {layout.width}"
            yield Unreadable.of(row.text, f"it has {counted(len(row.cells), 'cell')}{table}")
            continue
        mended["quotation marks around cells"] += row.cells != row.text.split(layout.separator)
        mended["empty cells too many"] += len(row.cells) > (layout.width or sys.maxsize)
        yield pair_of(*readings)
    for what, count in (+mended).items():
        log.info("%s: left out %s in %s", path, what, counted(count, "row"))


def _readings(
    cells: Sequence[str], positions: Sequence[int], width: int | None
) -> set[tuple[str, ...]]:
    """Return the cells at these positions; in every way to make a row as narrow as the table."""
    if len(cells) <= max(positions):
        return set()
    surplus = len(cells) - (width or len(cells))
    if surplus <= 0:
        return {tuple(cells[position] for position in positions)}
    empty = [index for index, cell in enumerate(cells) if not has_text(cell)]
    if len(empty) > MOST_EMPTY:
        return set()
    narrowed = (
        [cell for index, cell in enumerate(cells) if index not in left_out]
        for left_out in combinations(empty, surplus)
    )
    return {tuple(row[position] for position in positions) for row in narrowed}


def pair_of(texts: Iterable[str]) -> Pair:
    """Return a pair of the texts of a row: source, target and perhaps domain."""
    source, target, *domain = texts
    return Pair(source, target, "".join(domain))


def unless_nearly_all(pairs: Iterable[Pair], path: Path | str) -> Iterator[Pair]:
    """Yield the pairs; UserError where nearly all of them are `Unreadable`, with the first one."""
    read, first, unreadable = 0, None, 0
    for read, pair in enumerate(pairs, start=1):
        if isinstance(pair, Unreadable):
            first, unreadable = first or (read, pair), unreadable + 1
        yield pair
        if read == HEAD and unreadable == read:
            break
    if first is not None and unreadable > NEARLY_ALL * read:
        raise UserError(
            f"{path}: {unreadable:,} of {counted(read, 'row')} cannot be read as a pair; of the "
            f"first, row {first[0]}: {first[1].reason}"
        )


def _position(
    column: tuple[str | int, str], columns: Columns, names: Sequence[str], path: Path
) -> int:
    hits = places(str(column[0]), names)
    if len(hits) == 1:
        return hits[0]
    if not hits and str(column[0]).isdecimal() and int(column[0]) >= 1:
        return int(column[0]) - 1
    raise UserError(f"{path} has {not_one(column, columns, names, hits)}")


def not_one(
    column: tuple[str | int, str], columns: Columns, names: Sequence[str], hits: Sequence[int]
) -> str:
    """Say that a column is not there or, with several `hits`, there several times; and the remedy.

    Args:
        columns: all that are wanted: without data.columns they are called as the languages.
        names: those that are there.
    """
    name, key = column
    there = ", ".join(name.strip() for name in ([names[i] for i in hits] or names))
    named = f"but {there}" if names else "and no line that names columns"
    remedy = ""
    if key in ("data.source", "data.target"):
        (source, _), (target, _) = columns[:2]
        one, other = [*names, "…", "…"][:2] if names else (1, 2)
        remedy = (
            f": say which is which, such as 'data.columns={{{source}: {one}, {target}: {other}}}'"
        )
    return f"{'several columns' if hits else 'no column'} {name} ({key}), {named}{remedy}"

"""Reports as one HTML file: it loads nothing, follows light and dark, and prints.

`Html` is markup that is safe to stand in a page; every function here makes it from plain text,
which it escapes. Nothing else may be given to `page`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NewType

from translate.files import write

Html = NewType("Html", str)

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fdfdfb; --ink: #1c2127; --quiet: #5a6370; --rule: #dfe2e6; --mark: #d9e8fb;
  --one: #14448c; --two: #b5500b; --three: #00775a; --four: #a03c78;
  --five: #8a6d00; --six: #2c79ad; --seven: #6b4fbb; --eight: #6a6f76;
  --sans: system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #eceef1; --quiet: #a2abb6; --rule: #30363e; --mark: #1f4272;
    --one: #8dbdf5; --two: #f0a868; --three: #67cfae; --four: #e59ac6;
    --five: #e6d36a; --six: #4f9ad1; --seven: #b3a0f0; --eight: #b5bac1;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem clamp(1rem, 4vw, 3rem) 4rem; max-width: 62rem;
  background: var(--paper); color: var(--ink); font: 0.9375rem/1.55 var(--sans);
}
h1 { font-size: 1.375rem; line-height: 1.3; margin: 0 0 0.5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.0625rem; margin: 2.5rem 0 0.75rem; padding-top: 1rem; }
h2 { border-top: 1px solid var(--rule); }
p { margin: 0.5rem 0; max-width: 75ch; overflow-wrap: anywhere; }
.lead { font-size: 1.0625rem; font-weight: 600; }
.note, figcaption { color: var(--quiet); font-size: 0.8125rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.5rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.75rem 0.25rem 0; text-align: end; vertical-align: baseline; }
td:not(:first-child, :last-child) { white-space: nowrap; }
td:last-child { overflow-wrap: anywhere; min-width: 5ch; }
th:first-child, td:first-child, .text th, .text td { text-align: start; }
.text td { max-width: 30rem; overflow-wrap: break-word; white-space: normal; }
th { font-weight: 400; } thead th { color: var(--quiet); font-size: 0.8125rem; }
tbody tr { border-top: 1px solid var(--rule); }
.figures { display: flex; flex-wrap: wrap; gap: 1.5rem 2.5rem; }
figure { margin: 0.5rem 0; min-width: 0; }
svg { display: block; max-width: 100%; height: auto; font: 11px var(--sans); fill: var(--ink); }
svg .rule { stroke: var(--rule); } svg .quiet { fill: var(--quiet); }
.one { --colour: var(--one); } .two { --colour: var(--two); }
.three { --colour: var(--three); } .four { --colour: var(--four); }
.five { --colour: var(--five); } .six { --colour: var(--six); }
.seven { --colour: var(--seven); } .eight { --colour: var(--eight); }
svg .area { fill: var(--colour); }
svg .line { stroke: var(--colour); fill: none; stroke-width: 1.75; }
svg .cell { fill: var(--one); } figcaption b { color: var(--colour); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.125rem 1rem; margin: 1rem 0; }
dt { color: var(--quiet); font-size: 0.8125rem; } dd { margin: 0; overflow-wrap: anywhere; }
mark { background: var(--mark); color: inherit; border-radius: 0.2em; padding: 0.05em 0.15em; }
"""

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def text(content: str) -> Html:
    """Plain text, escaped."""
    return Html(html.escape(content))


def join(parts: Iterable[Html], between: str = "\n") -> Html:
    """Several pieces of markup in a row."""
    return Html(between.join(parts))


def page(title: str, *parts: Html) -> Html:
    """A whole document; its policy forbids it to load anything."""
    return Html(PAGE.format(title=text(title), style=STYLE, body=join(parts)))


def section(heading: str, *parts: Html) -> Html:
    """A heading and what stands under it."""
    return join([Html(f"<section>\n<h2>{text(heading)}</h2>"), *parts, Html("</section>")])


def isolated(content: str) -> Html:
    """Plain text that runs in the direction of its own letters, whatever stands around it."""
    return Html(f"<bdi>{text(content)}</bdi>")


def paragraph(content: str, kind: str = "") -> Html:
    """A paragraph; `kind` is lead, note or nothing."""
    return passage(text(content), kind)


def passage(content: Html, kind: str = "") -> Html:
    """A paragraph of markup."""
    return Html(f'<p class="{kind}">{content}</p>' if kind else f"<p>{content}</p>")


def marked(words: Iterable[tuple[str, bool]]) -> Html:
    """Words and spaces in a row; those whose flag is set are marked."""
    return join(
        (Html(f"<mark>{text(word)}</mark>") if flag else text(word) for word, flag in words), ""
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table of figures; the first column names the row."""
    return cells(headings, ([text(cell) for cell in row] for row in rows))


def cells(
    headings: Sequence[str], rows: Iterable[Sequence[Html]], *, of_text: bool = False
) -> Html:
    """A table of markup; with `of_text` all columns wrap and begin where their language does."""
    kind, direction = (' class="text"', ' dir="auto"') if of_text else ("", "")
    head = join(
        (Html(f'<th scope="col">{text(name)}</th>' if name else "<td></td>") for name in headings),
        "",
    )

    def row(name: Html, *others: Html) -> Html:
        named = name and not of_text  # an empty header would name nothing
        first = f'<th scope="row">{name}</th>' if named else f"<td{direction}>{name}</td>"
        rest = join((Html(f"<td{direction}>{cell}</td>") for cell in others), "")
        return Html(f"<tr>{first}{rest}</tr>")

    return Html(
        f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{join(row(*each) for each in rows)}</tbody></table></div>"
    )


def facts(rows: Iterable[tuple[str, Html]]) -> Html:
    """Names with their values."""
    return Html(
        f"<dl>{join(Html(f'<dt>{text(name)}</dt><dd>{value}</dd>') for name, value in rows)}</dl>"
    )


def figures(*pictures: Html) -> Html:
    """Pictures beside each other, as far as the window is wide."""
    return Html(f'<div class="figures">{join(pictures)}</div>')


def write_page(path: Path, document: Html) -> None:
    """Write a document.

    Raises:
        UserError: the path cannot be written.
    """
    write(path, document.encode("utf-8", "replace"))

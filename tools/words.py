"""Check the words of names, texts and documents: python -m tools.words [FILE ...]

The project uses the nouns and verbs of Kafka and Spark. `tools/words.toml` lists the words that it once had instead,
what to write, and the exceptions with their reasons. Names are checked where they are defined; texts are docstrings,
comments, string messages, documents, and the names of tests, which are sentences.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = ("sharegroup", "jobs", "tests", "benchmarks", "tools", "examples", "notebooks")
CHECKED = ("*.md", "docs/*.md", *(f"{folder}/**/*.{suffix}" for folder in FOLDERS for suffix in ("py", "md")))
"""Globs of the files that are checked when none is named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exemption:
    """A use of a refused word that is right."""

    pattern: re.Pattern[str]
    path: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A refused word of names, or a refused expression of texts.

    Attributes:
        is_of_names: True for names in snake case, False for texts.
        is_of_docstrings: True if it counts at the start of a docstring only.
    """

    pattern: re.Pattern[str]
    replacement: str
    exemptions: tuple[Exemption, ...]
    is_of_names: bool
    is_of_docstrings: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A name in snake case, or a piece of prose, with its first line."""

    content: str
    line: int
    is_name: bool = False
    is_docstring: bool = False


class Vocabulary:
    """The rules of a TOML file."""

    def __init__(self, path: Path) -> None:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        self._rules = (
            *(_rule(entry, rf"(?:^|(?<=_)){entry['word']}(?=_|$)", is_of_names=True) for entry in data["name"]),
            *(_rule(entry, entry["pattern"], is_of_names=False) for entry in data["text"]),
        )
        self._excluded = {entry["path"] for entry in data["excluded"]}

    def findings(self, path: str, source: str) -> Iterator[str]:
        """Yield `path:line: "word": write …` for each refused word of a file."""
        if path in self._excluded:
            return
        texts = [Text(content=source, line=1)] if path.endswith(".md") else _python_texts(path, source)
        for text in texts:
            for rule in self._rules:
                for start, words in _matches(rule, text, path):
                    line = text.line + text.content.count("\n", 0, start)
                    where = f' in "{text.content}"' if text.is_name and words != text.content else ""
                    yield f'{path}:{line}: "{words}"{where}: write {rule.replacement}'


def _rule(entry: dict[str, Any], pattern: str, *, is_of_names: bool) -> Rule:
    exemptions = tuple(
        Exemption(pattern=re.compile(e["pattern"]), path=e.get("path", "*"), reason=e["reason"])
        for e in entry.get("exceptions", [])
    )
    return Rule(
        # A text is wrapped anywhere.
        pattern=re.compile(pattern if is_of_names else pattern.replace(" ", r"\s+")),
        replacement=entry["write"],
        exemptions=exemptions,
        is_of_names=is_of_names,
        is_of_docstrings=entry.get("docstring", False),
    )


def _matches(rule: Rule, text: Text, path: str) -> Iterator[tuple[int, str]]:
    if rule.is_of_names != text.is_name or (rule.is_of_docstrings and not text.is_docstring):
        return
    allowed = [
        exempt.span()
        for exemption in rule.exemptions
        if fnmatch(path, exemption.path)
        for exempt in exemption.pattern.finditer(text.content)
    ]
    for match in rule.pattern.finditer(text.content):
        if rule.is_of_docstrings and match.start() > 0:
            return
        if not any(start < match.end() and match.start() < end for start, end in allowed):
            yield match.start(), " ".join(match.group().split())


def _python_texts(path: str, source: str) -> Iterator[Text]:
    yield _name(Path(path).stem, 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(content=token.string, line=token.start[0])
    tree = ast.parse(source)
    docstrings = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Text(content=node.value, line=node.lineno, is_docstring=node in docstrings)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield _name(node.name, node.lineno)
        elif isinstance(node, ast.arg):
            yield _name(node.arg, node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield _name(node.id, node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield _name(node.attr, node.lineno)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield _name(node.name, node.lineno)
        elif isinstance(node, ast.alias) and node.asname:
            yield _name(node.asname, node.lineno)


def _name(name: str, line: int) -> Text:
    if name.startswith("test_"):
        return Text(content=name.replace("_", " "), line=line)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return Text(content=snake, line=line, is_name=True)


def main(arguments: Sequence[str]) -> int:
    """Print the findings in the files, by default in all of the project; return 1 if there are some."""
    vocabulary = Vocabulary(Path(__file__).with_suffix(".toml"))
    paths = [Path(argument).resolve() for argument in arguments] or sorted(
        path for pattern in CHECKED for path in ROOT.glob(pattern)
    )
    findings = [
        finding
        for path in paths
        for finding in vocabulary.findings(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    print("\n".join([*findings, f"{len(paths)} files, {len(findings)} refused words"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

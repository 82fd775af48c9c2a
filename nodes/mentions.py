"""Mentions: the files that a task's own words name or imply, by a rule and without a model.

A token that looks like a file (``src/app.py``, ``Makefile``, ``"my notes.md"``) names one; words such as *the tests* or
*this package* imply some. With a tree both are looked up in it; without one a name is taken as it stands, as the seed
has it, and what is implied is left out with a word.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from frames.findings import Findings, FoundFile, LeftOut, findings_of
from frames.text import clean
from nodes.tools.tree import Tree

_CODE = (
    "py|pyi|pyx|jsx?|mjs|cjs|tsx?|vue|svelte|java|kts?|scala|go|rs|cc?|cpp|cxx|h|hh|hpp|cs|fs|swift|mm?|rb|php|pl|lua|r"
    "|jl|exs?|erl|hs|ml|clj|dart|sh|bash|zsh|ps1|sql|proto|graphql|tf|zig|nim"
)
_TEXTS = "md|markdown|rst|txt|adoc|jsonl?|ya?ml|toml|ini|cfg|conf|xml|html?|s?css|csv|tsv|lock|gradle|j2"
_SPECIAL = "Makefile|Dockerfile|Jenkinsfile|Procfile|Rakefile|Gemfile|CMakeLists\\.txt|README|LICENSE|CHANGELOG"
_NAME = rf"[\w.+@~-]*\w\.(?:{_CODE}|{_TEXTS})"
_FILE = rf"(?:\.{{0,2}}/)?(?:[\w.+@~-]+/)*(?:{_NAME}|(?:{_SPECIAL}))(?![\w/-]|\.\w)"
_TOKEN = re.compile(
    rf"[a-z]+://\S+|`(?P<ticked>[^`\n]+)`|[\"'“](?P<quoted>[^\"'”\n]*\.\w+)[\"'”]"
    rf"|(?<![\w./-])(?:(?P<file>{_FILE})|(?P<folder>(?:[\w.+@~-]+/)+[\w.+@~-]*))"
)
_WHOLE_FILE = re.compile(rf"(?:.*/)?(?:[^/]+\.(?:{_CODE}|{_TEXTS})|{_SPECIAL})", re.DOTALL)
_THE = (
    r"\b(?:the|its|our|my|their|this|these|all|all of the|existing|whole|entire)\s+(?:unit |whole |entire |existing )?"
)
_TESTS = re.compile(
    r"(?:^|/)(?:tests?|testing|__tests__|spec)/|(?:^|/)(?:test_[^/]*|conftest)\.|[._-](?:test|spec)\.\w+$"
)


class _Implied(NamedTuple):
    """What words imply: a path is meant in which ``paths`` finds something."""

    words: re.Pattern[str]
    paths: re.Pattern[str]


def _implied(words: str, path: str) -> _Implied:
    return _Implied(re.compile(_THE + rf"(?:{words})\b", re.IGNORECASE), re.compile(path, re.IGNORECASE))


_BUILD = (
    r"(?:^|/)(?:makefile|cmakelists\.txt|pyproject\.toml|setup\.(?:py|cfg)|package\.json|build\.gradle(?:\.kts)?"
    r"|pom\.xml|cargo\.toml|go\.mod|"
)
_NARROW = (
    _implied(r"tests?(?: suite| files?)?", _TESTS.pattern),
    _implied(
        r"config(?:uration)?(?: files?)?|settings files?",
        r"(?:^|/)(?:config|conf)/|(?:^|/)[^/]*(?:config|settings)[^/]*\.\w+$|^[^/]+\.(?:toml|ini|cfg|ya?ml)$"
        r"|^package\.json$",
    ),
    _implied(
        r"docs|documentation(?: files?)?", r"(?:^|/)docs?/.*\.(?:md|rst|txt|adoc|html?)$|^[^/]+\.(?:md|rst|adoc)$"
    ),
    _implied(r"read ?me", r"(?:^|/)readme(?:\.\w+)?$"),
    _implied(r"change ?log", r"(?:^|/)(?:changelog|changes|history|news)(?:\.\w+)?$"),
    _implied(r"licen[cs]e", r"(?:^|/)(?:licen[cs]e|copying)(?:\.\w+)?$"),
    _implied(r"build(?: files?| scripts?| system)?", _BUILD + r"meson\.build|dockerfile)$|\.mk$"),
    _implied(r"dependencies|requirements(?: files?)?", _BUILD + r"gemfile|requirements[^/]*\.txt)$"),
    _implied(r"ci|pipelines?|workflows?", r"(?:^|/)\.github/workflows/|(?:^|/)\.gitlab-ci\.yml$|jenkinsfile$"),
)
_WHOLE = _implied(
    r"(?:python )?(?:package|project|code ?base|repo(?:sitory)?|library|source(?:s| code| files?)?|code|modules?|folder"
    r"|files|tree|app(?:lication)?)",
    rf"^(?!.*(?:{_TESTS.pattern})).*\.(?:{_CODE})$",
)
_PRODUCTS = re.compile(r"(?:node|vue|next|react|express|three|d3|nuxt|ember|backbone)\.js", re.IGNORECASE)
"""What looks like a file and is none."""


class _Mention(NamedTuple):
    """What a task's words mention: a name, or words that imply files; and where in the text."""

    place: int
    said: str
    implied: _Implied | None
    folder: bool = False


def mentioned(task: str, tree: Tree | None) -> Findings:
    """Return the findings that a task's own words give; the same task and tree, the same findings. It may block."""
    files, left_out, observations = dict[str, str](), list[LeftOut](), list[str]()
    for mention in _mentions(task):
        if mention.implied is None:
            paths, why = _named(mention, tree), "named in the task"
        else:
            paths, why = _meant(mention.implied, tree), f'the task says "{mention.said}"'
        if isinstance(paths, str):
            left_out.append(LeftOut(clean(mention.said), paths))
            continue
        observations += [f'"{mention.said}" is taken for {len(paths)} files'] if mention.implied else []
        for path in paths:
            fault = tree.why_not(path) if tree else None
            if fault and path not in {each.what for each in left_out}:
                left_out.append(LeftOut(path, fault))
            elif not fault:
                files.setdefault(path, why)
    found = tuple(FoundFile(path, why) for path, why in files.items())
    return findings_of(Findings(found, tuple(observations), tuple(left_out), "text"))


def _mentions(task: str) -> list[_Mention]:
    """Return what the task mentions, in order; what stands for the whole tree only where nothing narrower is meant."""
    found = [*_tokens(task)]
    found += [
        _Mention(match.start(), match[0], implied) for implied in _NARROW for match in implied.words.finditer(task)
    ]
    if not found and (match := _WHOLE.words.search(task)):
        found = [_Mention(match.start(), match[0], _WHOLE)]
    unique = {mention.said.casefold(): mention for mention in sorted(found, key=lambda each: -each.place)}
    return sorted(unique.values(), key=lambda each: each.place)


def _tokens(task: str) -> Iterator[_Mention]:
    for match in _TOKEN.finditer(task):
        name = match["ticked"] or match["quoted"] or match["file"]
        if name and _PRODUCTS.fullmatch(name):
            continue
        if name and _WHOLE_FILE.fullmatch(name.strip()):
            yield _Mention(match.start(), name.strip(), None)
        elif folder := match["folder"] or (match["ticked"] or "").strip():
            yield _Mention(match.start(), folder, None, folder=True)


def _named(mention: _Mention, tree: Tree | None) -> list[str] | str:
    """Return the files that a name stands for, or why there is none; a folder that is not there stands for none."""
    name = mention.said
    if tree is None:
        return [] if mention.folder else [clean(name)]
    if mention.folder:
        return [path for path in tree.below(name) if _is_code(path)] if name.strip("./") else []
    plain = name.removeprefix("./")
    listed = tree.listing().files
    if plain in listed or not (fault := tree.why_not(plain)):
        return [plain]
    alike = [path for path in listed if path.endswith(f"/{plain}")]
    return alike or fault


def _meant(implied: _Implied, tree: Tree | None) -> list[str] | str:
    if tree is None:
        return "there is no root to look for them in: name it with --root"
    return [
        path for path in tree.listing().files if implied.paths.search(path)
    ] or "nothing below the root is called so"


def _is_code(path: str) -> bool:
    return re.fullmatch(_CODE, PurePosixPath(path).suffix.lstrip("."), re.IGNORECASE) is not None

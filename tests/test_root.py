"""The files below --root: hostile trees are refused or bounded with a clear word."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from frames.findings import plain_path, shown_path
from nodes.tools import tree as module
from nodes.tools.files import file_tools, listed, numbered
from nodes.tools.run import run_tool
from nodes.tools.tree import Tree
from nodes.tools.unreadable import UnreadableError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "root"


@pytest.mark.parametrize(
    "path", ["../secret.txt", "a/../../secret.txt", "/etc/passwd", "link.txt", "folder/secret.txt"]
)
def test_nothing_outside_is_read(root: Path, path: str):
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "folder").symlink_to(root.parent)
    with pytest.raises(UnreadableError, match="outside the root"):
        Tree(root).read(path)
    assert Tree(root).listing().files == []


def test_a_link_made_after_the_listing_is_refused_too(root: Path):
    (root / "a.txt").write_text("a")
    tree = Tree(root)
    assert tree.listing().files == ["a.txt"]
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to(root.parent / "secret.txt")
    with pytest.raises(UnreadableError, match="outside the root"):
        tree.read("a.txt")
    assert tree.search("secret") == ([], None)


def test_large_binary_and_strange_files_are_left_out_with_a_word(root: Path):
    with (root / "large.bin").open("wb") as file:
        file.truncate(100_000_000)
    (root / "binary.dat").write_bytes(b"a\0b")
    os.mkfifo(root / "pipe")
    tree, began = Tree(root), time.monotonic()
    assert tree.why_not("large.bin") == "100.0 MB, over 1 MB"
    assert tree.why_not("binary.dat") == "binary"
    assert tree.why_not("pipe") == "not a regular file"
    assert tree.why_not("none") == "no such file or directory"
    assert tree.listing().left_out == {"large.bin": "100.0 MB, over 1 MB", "pipe": "not a regular file"}
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("name", ["two words.py", "a\nb.py", 'quote".py', " lead.py"])
async def test_names_with_spaces_and_line_breaks_are_shown_on_one_line_and_read_as_shown(root: Path, name: str):
    (root / name).write_text("x = 1\n")
    shown = listed(Tree(root))
    assert shown.splitlines() == [shown_path(name)]
    assert plain_path(shown) == name
    reader = file_tools(lambda: Tree(root))[2]
    assert "1: x = 1" in (await run_tool(reader, {"path": shown}, 5)).text


def test_many_files_are_bounded_with_a_word(root: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(10_000):
        (root / f"{number:05}.py").touch()
    assert len(Tree(root).listing().files) == 10_000
    (root / "z.py").touch()
    listing = Tree(root).listing()
    assert len(listing.files) == module.MOST_FILES
    assert listing.left_out["…"].startswith("over 10,000 files")
    shown = listed(Tree(root))
    assert "… and 9800 more files" in shown
    assert len(shown) < 10_000


def test_git_says_what_is_there_and_no_program_of_the_repository_is_run(root: Path):
    git = ["git", "-C", str(root)]
    subprocess.run([*git, "init", "-q"], check=True)
    (root / ".gitignore").write_text("*.log\n")
    for name in ("a.py", "b.log", ".hidden"):
        (root / name).write_text("x")
    subprocess.run([*git, "config", "core.fsmonitor", f"touch {root.parent / 'ran'}; false"], check=True)
    assert Tree(root).listing().files == [".gitignore", ".hidden", "a.py"]
    assert not (root.parent / "ran").exists()


def test_without_git_its_ignore_files_hold_and_what_is_hidden_is_left_out(root: Path):
    (root / ".gitignore").write_text("*.log\n/build/\n!keep.log\n")
    for name in ("a.py", "b.log", "keep.log", ".env", "build/x.py", "sub/build/y.py", "sub/c.log", "__pycache__/a.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "sub" / ".gitignore").write_text("!c.log\n")
    assert Tree(root).listing().files == ["a.py", "keep.log", "sub/build/y.py", "sub/c.log"]


def test_what_is_cut_says_so():
    text = "\n".join(f"line {number}" for number in range(1, 101))
    shown = numbered("a.py", text, 11, 50)
    assert "(lines 11 to 14 of 100)" in shown
    assert "(cut: these are lines 11 to 14 of 100" in shown
    with pytest.raises(UnreadableError, match="100 lines"):
        numbered("a.py", text, 101, 50)

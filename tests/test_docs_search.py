"""A folder of documents is searched without a key: what is found, what is left out, and how that is said."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frames.errors import UsageError
from nodes.tools import pdf as pdf_module
from nodes.tools.docs import DocumentIndex, document_tools
from nodes.tools.markup import html_text
from nodes.tools.passages import SIZE, passages
from nodes.tools.run import run_tool
from nodes.tools.unreadable import UnreadableError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cactus" / "pdf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture
def search(folder):
    """Return a function that indexes the folder and searches it."""
    opened = []

    def run(query, limit=5):
        opened.append(DocumentIndex.build(folder))
        return opened[-1].search(query, limit)

    yield run
    for index in opened:
        index.close()


@pytest.fixture(scope="module")
def one_document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    (folder / "a.txt").write_text("Something to find: 文書")
    index = DocumentIndex.build(folder)
    yield index
    index.close()


def sources(passages):
    return [passage.source for passage in passages]


def pdf(*pages: str) -> bytes:
    """A PDF file with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    return (
        f"{body}xref\n0 {size}\n0000000000 65535 f \n{table}"
        f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF"
    ).encode()


# What is found


def test_each_format_is_found_under_its_heading(folder, search):
    (folder / "a.md").write_text("# Manual\n\nIntro.\n\n## Deployment\n\nRoll out with the zeppelin command.\n")
    (folder / "b.rst").write_text("Guide\n=====\n\nIntro.\n\nBackups\n-------\n\nStored on a walrus drive.\n")
    (folder / "c.html").write_text("<h1>Site</h1><p>Hello</p><h2>Fees &amp; taxes</h2><p>Pay in <b>doubloons</b>.</p>")
    (folder / "d.txt").write_text("Nothing but a kumquat.")
    (folder / "e.pdf").write_bytes(pdf("The first page.", "Here dwells an axolotl."))
    for query, source, title in [
        ("zeppelin", "a.md", "Deployment"),
        ("walrus", "b.rst", "Backups"),
        ("doubloons", "c.html", "Fees & taxes"),
        ("kumquat", "d.txt", "d.txt"),
        ("axolotl", "e.pdf", "Page 2"),
    ]:
        [found] = search(query)
        assert (found.source, found.title) == (source, title)
        assert query in found.text


def test_questions_in_plain_language_find_other_forms_of_the_words(folder, search):
    (folder / "holidays.md").write_text("Employees are entitled to thirty days of paid vacation.")
    (folder / "other.md").write_text("The cafeteria is open at noon. What is it that you would like to be?")
    assert sources(search("How many vacations is an employee entitled to?"))[0] == "holidays.md"


def test_rare_words_count_for_more(folder, search):
    for number in range(9):
        (folder / f"{number}.txt").write_text(f"The server restarts every night, number {number}.")
    (folder / "wanted.txt").write_text("The server has a quokka.")
    assert sources(search("server quokka"))[0] == "wanted.txt"


@pytest.mark.parametrize(
    "query",
    ['"', '""', "a AND", "NOT", "(", "title:x", "x*", "*", "^x", "NEAR(a b)", "{a}:b", "-", "\0", "\ud800", "_"],
)
def test_no_query_raises(folder, search, query):
    (folder / "a.md").write_text("Something")
    search(query)


@given(st.text())
def test_any_text_is_a_query(one_document, query):
    assert isinstance(one_document.search(query), list)


def test_a_query_of_common_words_alone_is_still_one(folder, search):
    (folder / "hamlet.txt").write_text("To be, or not to be.")
    assert sources(search("to be or not to be")) == ["hamlet.txt"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("公司规定员工每年有十五天年假。", "年假政策是什么"),
        ("公司规定员工每年有十五天年假。", "假"),
        ("猫は窓のそばで寝ている。", "窓"),
        ("東京タワーは赤い。", "タワー"),
        ("연차 휴가는 십오일입니다.", "휴가"),
        ("Das Café in Zürich schließt früh.", "cafe zurich"),
        ("Отпуск длится четыре недели.", "ОТПУСК"),
        ("Full width \uff21\uff22\uff23\uff11\uff12\uff13", "abc123"),
        ("an exam-\nple of a hyphen", "example"),
    ],
)
def test_scripts_and_accents(folder, search, text, query):
    (folder / "wanted.txt").write_text(text)
    (folder / "other.txt").write_text("完全に別のこと unrelated")
    assert sources(search(query))[:1] == ["wanted.txt"]


def test_one_document_does_not_fill_the_result(folder, search):
    (folder / "long.md").write_text("\n\n".join(f"# Part {n}\n\nAll about penguins." for n in range(20)))
    (folder / "short.md").write_text("A penguin, too, among many other words that make it less of a match.")
    found = sources(search("penguins", 10))
    assert found.count("long.md") == 3
    assert "short.md" in found


def test_the_limit_holds(folder, search):
    for number in range(30):
        (folder / f"{number}.txt").write_text("penguin")
    assert len(search("penguin", 2)) == 2
    assert len(search("penguin", 0)) == 1
    assert len(search("penguin", 10_000)) == 20


# Passages


@given(st.text(alphabet="ab .\n#=-`字", max_size=400).map(lambda text: text * 12), st.booleans())
def test_passages_cover_the_text_in_order(text, headings):
    covered, last = "", 0
    for part in passages(text, headings):
        assert last <= part.start < part.end <= len(text)
        covered += text[part.start : part.end]
        assert part.end - part.start <= SIZE * 3
        last = part.end
    assert "".join(covered.split()) == "".join(text.split())


def test_passages_have_about_a_thousand_characters():
    text = "\n\n".join("word " * 60 for _ in range(50))
    lengths = [part.end - part.start for part in passages(text)]
    assert all(SIZE / 2 < length <= SIZE for length in lengths[:-1])


def test_a_comment_in_a_program_is_no_heading():
    text = "# Title\n\n```\n# comment\nrun\n```\n\nAfter."
    assert [part.title for part in passages(text)] == ["Title"]
    assert [part.title for part in passages("# comment\nrun()\n", headings=False)] == [""]


def test_a_passage_is_where_it_says(folder):
    (folder / "a.md").write_text("\r\n\r\n# Über\r\n\r\nErster Absatz.\r\n\r\n# Zwei\r\n\r\nZweiter.\r\n")
    index = DocumentIndex.build(folder)
    [found] = index.search("zweiter")
    assert index.read("a.md", found.start, len(found.text)) == found.text == "# Zwei\n\nZweiter."
    index.close()


# Reading


def test_reading_by_pages_and_beyond(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("0123456789")
    index = DocumentIndex.build(folder)
    assert index.read("sub/a.txt", 3, 4) == "3456"
    assert index.read("./sub/a.txt", -5) == "0123456789"
    assert index.read("sub/a.txt", 99) == ""
    with pytest.raises(UsageError, match=r"no document 'a.tx'; there is sub/a.txt"):
        index.read("a.tx")
    index.close()
    index.close()


async def test_the_tools_name_their_sources(folder):
    (folder / "a.md").write_text("# Pets\n\nA cat.\n\n" + "filler " * 1000)
    index = await asyncio.to_thread(DocumentIndex.build, folder)
    tools = {tool.name: tool for tool in document_tools(index)}
    assert (await run_tool(tools["search_documents"], {"query": "cats"}, 9)).text.startswith(
        "[source: a.md] Pets (from character 0)\n# Pets\n\nA cat."
    )
    ok, text = await run_tool(tools["search_documents"], {"query": "volcano"}, 9)
    assert ok
    assert text.startswith("No passage matches 'volcano'")
    assert "a.md" in text
    first = (await run_tool(tools["read_document"], {"source": "a.md"}, 9)).text
    assert first.startswith("[source: a.md] (characters 0 to 4000 of 7016; read on with start=4000)\n# Pets")
    last = (await run_tool(tools["read_document"], {"source": "a.md", "start": 6000}, 9)).text
    assert last.startswith("[source: a.md] (characters 6000 to 7016 of 7016)\n")
    for arguments in ({"source": "b.md"}, {"source": "a.md", "start": 9999}):
        ok, text = await run_tool(tools["read_document"], arguments, 9)
        assert not ok
        assert text.startswith("ERROR: read_document failed: ")
    index.close()


# What is left out


def test_what_cannot_be_read_is_skipped_with_the_reason(folder, tmp_path, monkeypatch):
    from pypdf import PdfReader, PdfWriter

    monkeypatch.setattr("nodes.tools.folder.MAX_BYTES", 1_000_000)
    (folder / "good.md").write_text("Good.")
    (folder / ".git").mkdir()
    (folder / ".git" / "x.txt").write_text("hidden")
    (folder / ".secret").write_text("hidden")
    (folder / "image.png").write_bytes(b"\x89PNG\0\0")
    (folder / "big.txt").write_text("x" * 1_000_001)
    (folder / "empty.txt").write_text(" \n")
    (folder / "kanji.txt").write_bytes("日本語の文書です".encode("shift-jis"))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    (folder / "scan.pdf").write_bytes(pdf(""))
    (tmp_path / "outside.txt").write_text("outside")
    (folder / "out.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "up").symlink_to(tmp_path)
    (folder / "dangling").symlink_to(tmp_path / "nothing")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    (folder / "plain.pdf").write_bytes(pdf("Secret."))
    writer = PdfWriter(clone_from=PdfReader(folder / "plain.pdf"))
    writer.encrypt("password", algorithm="RC4-128")
    (folder / "plain.pdf").unlink()
    writer.write(folder / "locked.pdf")
    index = DocumentIndex.build(folder)
    assert index.documents == 1
    reasons = dict(line.split(": ", 1) for line in index.skipped)
    assert reasons.pop("broken.pdf").startswith("broken PDF (")
    assert reasons == {
        ".git": "hidden",
        ".secret": "hidden",
        "big.txt": "over 1 MB",
        "dangling": "no such file or directory",
        "empty.txt": "empty",
        "image.png": "binary; save it as text, HTML or PDF",
        "kanji.txt": "not in UTF-8; save it in that encoding",
        "locked.pdf": "encrypted",
        "loop": "too many levels of symbolic links",
        "out.txt": "a link that leaves the folder",
        "pipe": "not a regular file",
        "scan.pdf": "no text in it (a scan?)",
        "up": "a link to a folder, which is not followed",
    }
    index.close()


def test_other_encodings_that_can_be_told_are_read(folder, search):
    (folder / "mark.txt").write_text("sixteen bits: Ünïcode", "utf-16")
    (folder / "western.txt").write_bytes("Die Straße nach Köln führt am Wasser entlang.".encode("cp1252"))
    (folder / "page.html").write_bytes('<meta charset="shift_jis"><p>日本語の文書です</p>'.encode("shift-jis"))
    assert sources(search("Ünïcode")) == ["mark.txt"]
    assert sources(search("Köln")) == ["western.txt"]
    assert sources(search("文書")) == ["page.html"]


def test_names_and_texts_that_cannot_be_stored_are_made_so(folder, search):
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xffd.txt")).write_text("a penguin" + " " * 5000 + "\0")
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xfed.txt")).write_text("another penguin")
    [found] = search("penguin")
    assert found.source == "b\N{REPLACEMENT CHARACTER}d.txt"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, r"there is no folder .*docs to search: .*--docs"),
        (lambda path: path.write_text("x"), r"docs is not a folder: .*--docs"),
        (lambda path: path.mkdir(), r"docs holds no document that can be read: put some into it"),
        (lambda path: (path.mkdir(), (path / "a.bin").write_bytes(b"\0")), r"\(1 left out: a.bin: binary"),
    ],
)
def test_a_folder_that_gives_nothing_is_refused(tmp_path, make, message):
    make(tmp_path / "docs")
    with pytest.raises(UsageError, match=message):
        DocumentIndex.build(tmp_path / "docs")


def test_without_pypdf_the_way_to_it_is_told(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    (folder / "a.pdf").write_bytes(pdf("x"))
    with pytest.raises(UsageError, match=r"a.pdf: a PDF: pip install 'cactus-solver\[docs\]'"):
        DocumentIndex.build(folder)


# HTML


def test_html_keeps_what_is_read_and_drops_what_is_not():
    text = html_text(
        "<html><head><title>My &lt;page&gt;</title><style>p {}</style><script>if (1 < 2) {}</script></head><body>"
        "<svg><title>icon</title></svg><h2>Part\n <em>one</em></h2>Some   text<br>next line<ul><li>first<li>second</ul>"
        "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table><pre>  x = 1\n  y = 2</pre><!-- not --></body>"
    )
    assert text == (
        "# My <page>\n\n## Part one\n\nSome text\nnext line\n\n- first\n- second\n\na | b\nc\n\n  x = 1\n  y = 2"
    )


@given(st.text(alphabet="<>/!ab\"'= &;[-]?"))
def test_no_markup_breaks_the_reader(source):
    with contextlib.suppress(UnreadableError):
        html_text(source)


# The cache of PDF texts


def test_a_pdf_is_read_once_and_again_when_it_changed(folder, search, cache, monkeypatch):
    (folder / "a.pdf").write_bytes(pdf("penguin"))
    assert search("penguin")
    read, reads = pdf_module._read, []
    monkeypatch.setattr(pdf_module, "_read", lambda path: reads.append(path) or read(path))
    assert search("penguin")
    assert not reads
    (folder / "a.pdf").write_bytes(pdf("emu and more"))
    assert not search("penguin")
    assert search("emu")
    assert len(reads) == 1
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"0" * 64 + b"\nwrong"])
def test_a_damaged_entry_is_read_anew(folder, search, cache, damage):
    (folder / "a.pdf").write_bytes(pdf("penguin"))
    assert search("penguin")
    [entry] = cache.iterdir()
    entry.write_bytes(damage)
    assert search("penguin")
    assert entry.read_bytes() != damage


def test_old_entries_go_and_a_cache_that_cannot_be_written_does_not_matter(folder, search, cache):
    cache.mkdir(parents=True)
    (cache / "old").write_text("x")
    os.utime(cache / "old", (1, 1))
    (folder / "a.pdf").write_bytes(pdf("penguin"))
    assert search("penguin")
    assert not (cache / "old").exists()
    for entry in cache.iterdir():
        entry.unlink()
    cache.rmdir()
    cache.write_text("in the way")
    assert search("penguin")


def test_two_processes_at_once(folder):
    for number in range(20):
        (folder / f"{number}.pdf").write_bytes(pdf(f"penguin {number}"))
    code = (
        "import sys; from pathlib import Path; from nodes.tools.docs import DocumentIndex\n"
        "index = DocumentIndex.build(Path(sys.argv[1])); print(index.documents, len(index.search('penguin', 20)))"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [child.communicate(timeout=60)[0] for child in children] == ["20 20\n"] * 2


# Threads and time


def test_threads_search_at_once(folder):
    for number in range(50):
        (folder / f"{number}.txt").write_text(f"penguin number{number}")
    index = DocumentIndex.build(folder)
    wrong = []

    def look(number):
        for _ in range(20):
            wrong.extend(each for each in sources(index.search(f"number{number}", 1)) if each != f"{number}.txt")

    threads = [threading.Thread(target=look, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    index.close()
    assert not wrong


def test_a_few_hundred_documents_are_indexed_quickly(folder):
    for number in range(300):
        paragraphs = [f"## Section {part}\n\n" + f"word{number} and term{part} again. " * 25 for part in range(20)]
        (folder / f"{number}.md").write_text("\n\n".join(paragraphs))
    began = time.process_time()
    index = DocumentIndex.build(folder)
    assert time.process_time() - began < 8
    assert sources(index.search("word123 term7"))[0] == "123.md"
    index.close()

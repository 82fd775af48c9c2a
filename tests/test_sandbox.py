"""Programs run in both engines, and no program reaches the host, runs for ever or fills its memory."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from blockbuster import BlockBuster

from nodes.sandbox.bubblewrap import BubblewrapSandbox
from nodes.sandbox.inside import pack, unpack
from nodes.sandbox.monty import MontySandbox
from nodes.sandbox.run import FirstThatCan, Ran, SandboxLimits, default_sandbox, is_inside
from nodes.sandbox.seccomp import seccomp_filter

LIMITS = SandboxLimits(seconds=6, memory_mb=128, output_chars=2000, file_mb=2)
SECRET = "a-secret-of-the-host"
TABLE = {"table.csv": b"name,price\npear,3\nplum,5\nfig,10\n"}

needs_bwrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap (bwrap) is not installed")
ENGINES = [pytest.param(MontySandbox, id="monty"), pytest.param(BubblewrapSandbox, id="bubblewrap", marks=needs_bwrap)]


@pytest.fixture(params=ENGINES, scope="module")
def sandbox(request):
    """Each engine by itself."""
    return request.param(LIMITS)


@pytest.fixture(params=ENGINES, scope="module")
def hasty(request):
    """Each engine with little time, for programs that use up all of it."""
    return request.param(replace(LIMITS, seconds=0.5))


@pytest.fixture(scope="module")
def cpython():
    return BubblewrapSandbox(LIMITS)


@pytest.fixture(scope="module")
def chosen():
    return default_sandbox(LIMITS)


async def _attack(sandbox, code, files=None, seconds=5):
    """Run ``code``: it fails within ``seconds``, and what it gives back is small."""
    start = time.monotonic()
    ran = await sandbox.run(code, files or {})
    assert time.monotonic() - start < seconds
    assert ran.error
    assert len(ran.error) < 3000
    assert len(ran.output) < LIMITS.output_chars + 100
    assert SECRET not in ran.output + ran.error
    return ran


# what programs do


async def test_statistics_of_a_table(sandbox):
    code = """
import csv
with open("table.csv", newline="") as file:
    prices = [int(row["price"]) for row in csv.DictReader(file)]
print("rows:", len(prices))
sum(prices) / len(prices)
"""
    assert await sandbox.run(code, TABLE) == Ran("rows: 3\n6.0\n", None, {}, _engine(sandbox))


def _engine(sandbox):
    return "monty" if isinstance(sandbox, MontySandbox) else "bubblewrap"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("", ""),
        ("# only a comment", ""),
        ("None", ""),
        ("x = 3", ""),
        ("40 + 2", "42\n"),
        ("print('a')\n'b'", "a\n'b'\n"),
        ("[1, 'x', (2,), {'k': {3}}, b'z', None]", "[1, 'x', (2,), {'k': {3}}, b'z', None]\n"),
        ("print('grüße, 世界 🌵')", "grüße, 世界 🌵\n"),
        ("from pathlib import Path\nPath('table.csv').read_text()[:4]", "'name'\n"),
        ("import os\nos.listdir('.')", "['table.csv']\n"),
        ("import json, re, math, datetime, itertools\nmath.floor(3.7)", "3\n"),
        ("if __name__ == '__main__':\n    print('main')", "main\n"),
        ("raise SystemExit", ""),
    ],
)
async def test_what_a_program_shows(sandbox, code, output):
    assert await sandbox.run(code, TABLE) == Ran(output, None, {}, _engine(sandbox))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero (line 2: 1 / 0)"),
        ("def f():\n    return {}['k']\n\nf()", "KeyError: 'k' (line 2: return {}['k'])"),
        ("raise ValueError('no rows')", "ValueError: no rows (line 1: raise ValueError('no rows'))"),
        ("'a' < 1", "TypeError: '<' not supported between instances of 'str' and 'int' (line 1: 'a' < 1)"),
        ("pirnt(1)", "NameError: name 'pirnt' is not defined (line 1: pirnt(1))"),
    ],
)
async def test_an_error_names_its_line(sandbox, code, error):
    ran = await sandbox.run(code, {})
    assert ran.error
    assert ran.error.replace("KeyError: k", "KeyError: 'k'") == error


async def test_a_syntax_error_names_its_line(sandbox):
    ran = await sandbox.run("x = 1\ndef f(:\n    pass", {})
    assert ran.error
    assert ran.error.startswith("SyntaxError: ")
    assert ran.error.endswith("(line 2: def f(:)")


async def test_what_was_printed_before_an_error_is_kept(sandbox):
    ran = await sandbox.run("print('begun')\nopen('a.txt', 'w').write('a')\n1 / 0", {})
    assert (ran.output, ran.files) == ("begun\n", {"a.txt": b"a"})


async def test_files_come_back(sandbox):
    code = """
import os
os.makedirs("out/deep", exist_ok=True)
with open("out/deep/new.txt", "w") as file:
    for number in range(3):
        file.write(f"{number}\\n")
with open("bytes.bin", "wb") as file:
    file.write(b"\\x00\\xff")
with open("table.csv", "a") as file:
    file.write("kiwi,1\\n")
text = open("same.txt").read()
with open("same.txt", "w") as file:
    file.write(text)
"""
    ran = await sandbox.run(code, {**TABLE, "same.txt": b"same", "data/left.txt": b"left"})
    assert ran.error is None
    assert ran.files == {
        "out/deep/new.txt": b"0\n1\n2\n",
        "bytes.bin": b"\x00\xff",
        "table.csv": TABLE["table.csv"] + b"kiwi,1\n",
    }


async def test_nothing_but_files_is_left_of_a_program(sandbox):
    assert (await sandbox.run("x = 1", {})).error is None
    assert (await sandbox.run("x", {})).error == "NameError: name 'x' is not defined (line 1: x)"


async def test_programs_run_side_by_side(sandbox):
    code = "total = 0\nfor n in range(100000):\n    total += n\nprint({number})"
    runs = await asyncio.gather(*(sandbox.run(code.replace("{number}", str(number)), {}) for number in range(5)))
    assert [(ran.output, ran.error) for ran in runs] == [(f"{number}\n", None) for number in range(5)]


async def test_the_event_loop_goes_on(sandbox):
    await sandbox.run("", {})  # the probe of bubblewrap reads folders
    blocker = BlockBuster()
    blocker.activate()
    try:
        ran = await sandbox.run("1", TABLE)
    finally:
        blocker.deactivate()
    assert ran.output == "1\n"


# the choice of an engine


@needs_bwrap
@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import statistics\nstatistics.median([1, 5, 3])", "3\n"),
        ("class A:\n    pass\nclass B(A):\n    pass\nB.__name__", "'B'\n"),
        ("def f():\n    yield 1\nlist(f())", "[1]\n"),
        ("x = [1, 2]\ndel x[0]\nx", "[2]\n"),
        ("bytearray(b'a')", "bytearray(b'a')\n"),
        ("import sys\nsys.stdout.write('a')\nNone", "a"),
        ("sorted(['b', 'A'], key=str.lower)", "['A', 'b']\n"),
        ("import sys\nprint('a')\nsys.exit(0)", "a\n"),
        ("exit()", ""),
    ],
)
async def test_what_monty_lacks_runs_in_cpython(chosen, code, output):
    assert await chosen.run(code, {}) == Ran(output, None, {}, "bubblewrap")


@pytest.mark.parametrize("code", ["1 / 0", "'a' < 1", "def f(:", "undefined", "import numpy", "{}.nothing"])
async def test_an_error_of_the_program_is_not_run_again(code):
    ran = await FirstThatCan(MontySandbox(LIMITS), _Never()).run(code, {})
    assert ran.error
    assert ran.engine == "monty"


class _Never:
    async def missing(self):
        return "bwrap is not installed"

    async def run(self, code, files):
        raise AssertionError(code)


async def test_without_bubblewrap_the_error_says_what_is_lacking(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = await default_sandbox(LIMITS).run("import statistics", {})
    assert ran.error
    assert "No module named 'statistics'" in ran.error
    assert "installing it would help" in ran.error


async def test_a_bubblewrap_that_does_not_work_is_said_once(monkeypatch, tmp_path):
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(f"#!/bin/sh\necho x >> {tmp_path}/asked\necho no namespaces here >&2\nexit 1\n")
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox = BubblewrapSandbox(LIMITS)
    for _ in range(2):
        ran = await sandbox.run("1", {})
        assert "no namespaces here" in (ran.error or "")
    assert (tmp_path / "asked").read_text() == "x\n"


# attacks


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../../../../etc/passwd", "{secret}", "/proc/self/environ"])
async def test_files_of_the_host_are_out_of_reach(sandbox, path, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    ran = await _attack(sandbox, f"print(open({path.replace('{secret}', str(secret))!r}).read())", TABLE)
    assert "FileNotFoundError" in ran.error


async def test_the_environment_is_empty(sandbox, monkeypatch):
    monkeypatch.setenv("CACTUS_SECRET", SECRET)
    ran = await sandbox.run("import os\nprint(dict(os.environ))\nos.getenv('CACTUS_SECRET')", {})
    assert ran.error is None
    assert SECRET not in ran.output
    assert "PATH" not in ran.output


async def test_there_is_no_network(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        port = server.getsockname()[1]
        await _attack(sandbox, f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)")
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run(['ls'])",
        "import os\nos.system('ls')\nraise SystemExit(1)",
        "import os\nwhile True:\n    os.fork()",
        "import threading\nwhile True:\n    threading.Thread(target=print).start()",
        "import os\nos.kill(1, 9)\nos.kill(os.getppid(), 9)\nraise SystemExit(1)",
        "import os\nos.kill(-1, 9)",
        "__import__('os').execv('/bin/sh', ['sh'])",
        "exec('import subprocess; subprocess.run([\"ls\"])')",
        "().__class__.__base__.__subclasses__()[0].__init__.__globals__['x']",
        "import ctypes\nctypes.string_at(0)",
    ],
)
async def test_no_process_is_started_or_harmed(sandbox, code):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    await _attack(sandbox, code)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    pass",
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "x = 10 ** 10 ** 7 // 3",
        "import time\ntime.sleep(60)",
        "import time\nwhile True:\n    time.sleep(0.01)",
        "while True:\n    open('a.txt', 'w').close()",
        "while True:\n    print('x' * 1000)",
    ],
)
async def test_time_is_limited(hasty, code):
    ran = await _attack(hasty, code)
    assert "time limit" in ran.error


@pytest.mark.parametrize(
    "code",
    [
        "x = 'a' * 10 ** 10",
        "x = [0] * 10 ** 10",
        "x = []\nwhile True:\n    x.append('a' * 10000 + str(len(x)))",
        "x = 'a'\nwhile True:\n    x += x",
    ],
)
async def test_memory_is_limited(sandbox, code):
    ran = await _attack(sandbox, code)
    assert "memory limit" in ran.error


async def test_recursion_is_limited(sandbox):
    ran = await _attack(sandbox, "def f(n):\n    return f(n + 1)\nf(0)")
    assert ran.error.startswith("RecursionError: ")


async def test_output_is_cut_and_says_so(sandbox):
    ran = await sandbox.run("for n in range(5000):\n    print(n)\n", {})
    assert ran.error is None
    assert ran.output.startswith("0\n1\n2\n")
    assert ran.output.endswith("\n[output cut after 2,000 characters]")
    assert len(ran.output) < 2100


async def test_a_flood_of_output_takes_no_memory(sandbox):
    before = psutil.Process().memory_info().rss
    ran = await sandbox.run("for n in range(100):\n    print('x' * 1_000_000)", {})
    assert len(ran.output) < 2100
    assert psutil.Process().memory_info().rss - before < 60 << 20


@pytest.mark.parametrize(
    "code",
    [
        "x = []\nfor _ in range(60):\n    x = [x, x]\nx",
        "x = []\nfor _ in range(100000):\n    x = [x]\nx",
        "x = []\nx.append(x)\nx",
        "'x' * 10 ** 7",
        "7 ** 20000",
    ],
)
async def test_a_huge_value_is_not_shown_whole(hasty, code):
    ran = await hasty.run(code, {})
    assert len(ran.output) < 2100


async def test_a_huge_message_is_cut(sandbox):
    await _attack(sandbox, "raise ValueError('x' * 10 ** 7)")


@pytest.mark.parametrize(
    "code",
    [
        "open('a.txt', 'w').write('x' * 3_000_000)",
        "for n in range(9):\n    open(f'{n}.txt', 'w').write('x' * 1_000_000)",
        "with open('a.txt', 'a') as file:\n    while True:\n        file.write('x' * 100_000)",
    ],
)
async def test_what_is_written_is_limited(sandbox, code):
    ran = await _attack(sandbox, code)
    assert "2 MB" in ran.error
    assert sum(map(len, ran.files.values())) <= 2 << 20


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "a/./b", "", ".", "..", "a//b", "a\nb", "a\0b", "n" * 300, "a\\b", "x/"]
)
async def test_a_name_that_leaves_the_folder_is_refused(sandbox, name):
    assert not is_inside(name)
    ran = await _attack(sandbox, "1", {name: b"x"})
    assert "file name" in ran.error


async def test_a_file_below_a_file_is_refused(sandbox):
    await _attack(sandbox, "1", {"a": b"", "a/b": b""})


@pytest.mark.parametrize("name", ["../escaped.txt", "/escaped.txt", "deep/../../escaped.txt", "/tmp/escaped.txt"])
async def test_nothing_is_written_elsewhere(sandbox, name):
    ran = await sandbox.run(f"open({name!r}, 'w').write('x')", {})
    assert ran.files == {}
    assert not any(map(os.path.exists, ["/escaped.txt", "/tmp/escaped.txt", "../escaped.txt"]))


async def test_the_given_bytes_are_not_changed(sandbox, tmp_path):
    (tmp_path / "table.csv").write_bytes(TABLE["table.csv"])
    given = {"table.csv": (tmp_path / "table.csv").read_bytes()}
    ran = await sandbox.run("with open('table.csv', 'w') as file:\n    file.write('gone')", given)
    assert ran.files == {"table.csv": b"gone"}
    assert given == TABLE
    assert (tmp_path / "table.csv").read_bytes() == TABLE["table.csv"]


# attacks that only a whole CPython can try


@needs_bwrap
async def test_links_to_the_host_are_not_followed(cpython, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    code = f"""
import os
for name, target in [("a", "/etc/passwd"), ("b", {str(secret)!r}), ("c", "/inside.py"), ("d", "/"), ("e", "../")]:
    os.symlink(target, name)
os.mkfifo("pipe")
os.makedirs("out")
os.symlink("/usr", "out/usr")
"""
    assert await cpython.run(code, {}) == Ran("", None, {}, "bubblewrap")


@needs_bwrap
@pytest.mark.parametrize(
    "call",
    [
        "libc.fork()",
        "libc.unshare(0x10000000)",
        "libc.memfd_create(b'', 0)",
        "libc.shmget(0, 10 ** 6, 0o1600)",
        "libc.socket(2, 1, 0)",
        "libc.mount(b'/', b'/tmp', b'', 4096, 0)",
        "libc.ptrace(0, 0, 0, 0)",
        "libc.setuid(0)",
        "libc.chroot(b'/tmp')",
    ],
)
async def test_calls_of_the_kernel_are_denied(cpython, call):
    code = f"import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n{call}, os.strerror(ctypes.get_errno())"
    ran = await cpython.run(code, {})
    assert ran.error is None
    assert ran.output.startswith("(-1, ")
    assert "not permitted" in ran.output or "Invalid argument" in ran.output


@needs_bwrap
@pytest.mark.parametrize("folder", ["/", "/usr", "/usr/lib", "/dev", sys.base_prefix + "/lib", "/etc"])
async def test_nothing_outside_is_writable(cpython, folder):
    ran = await _attack(cpython, f"open({folder + '/x'!r}, 'w')")
    assert "Read-only" in ran.error or "FileNotFoundError" in ran.error


@needs_bwrap
async def test_the_host_is_not_in_sight(cpython):
    code = "import os\nfor path in '/home', '/root', '/etc', '/usr/bin', '/bin', '/proc', '/sys', '/var':\n"
    code += "    print(path, os.listdir(path) if os.path.exists(path) else [])\nprint(os.getuid(), os.getpid())"
    ran = await cpython.run(code, {})
    seen = {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in ran.output.splitlines()}
    assert seen.pop("65534") == "2"
    assert set(seen.pop("/etc")) <= set("['ld.so.cache']")
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    assert set(seen.values()) <= {"[]", "['.pyenv']", f"['{python}']", f"['{Path(sys.base_prefix).name}']"}
    assert "pytest" not in (await cpython.run("import pytest", {})).output


@needs_bwrap
@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(0)",
        "import os\nos.closerange(0, 60)",
        "import os\nfor n in range(2, 9):\n    try: os.write(n, b'\\xff' * 9)\n    except OSError: pass\nos._exit(0)",
        "import os\nos.walk = None",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "import sys\nsys.modules.clear()\nraise ValueError",
        "class E(Exception):\n    def __str__(self):\n        raise E\nraise E",
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f():\n    return f()\nf()",
        "exec('(' * 10 ** 6)",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import os\nn = 0\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
    ],
)
async def test_a_program_that_spoils_its_report_gives_an_error(code):
    await _attack(BubblewrapSandbox(replace(LIMITS, seconds=0.5)), code)


@needs_bwrap
async def test_forged_files_stay_inside(cpython):
    forged = pack([("", b""), ("../x", b"x"), ("/etc/x", b"x"), ("good", b"x")])
    code = f"import os\nfor fd in range(3, 20):\n    try:\n        os.write(fd, {forged!r})\n    except OSError:\n"
    ran = await cpython.run(code + "        pass\nos._exit(0)", {})
    assert set(ran.files) <= {"good"}


def test_a_report_that_is_cut_off_is_refused():
    packed = pack([("a", b"1"), ("", b"")])
    assert unpack(packed) == [("a", b"1"), ("", b"")]
    for length in range(1, len(packed)):
        if length != 10:  # where the first record ends
            with pytest.raises(ValueError, match="cut off"):
                unpack(packed[:length])


def test_the_filter_is_known_for_two_machines():
    assert seccomp_filter("x86_64") != seccomp_filter("aarch64")
    assert seccomp_filter("riscv64") is None


# ends


async def test_cancelling_ends_the_program(sandbox):
    sandbox = type(sandbox)(SandboxLimits(seconds=60))
    await sandbox.run("", {})
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    task = asyncio.create_task(sandbox.run("while True:\n    pass", {}))
    await _until(lambda: _children() - before)
    await asyncio.sleep(0.2)
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until(lambda: not _children() - before)
    assert time.monotonic() - start < 2


def _children():
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def _until(true):
    for _ in range(250):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to pass within 5 s")


@pytest.mark.parametrize(
    ("module", "name", "seconds"),
    [("monty", "MontySandbox", 1), pytest.param("bubblewrap", "BubblewrapSandbox", 60, marks=needs_bwrap)],
)
def test_a_program_does_not_outlive_a_killed_parent(module, name, seconds):
    """Bubblewrap's ends at once; Monty's when its time is over."""
    code = f"""
import asyncio
from nodes.sandbox.{module} import {name}
from nodes.sandbox.run import SandboxLimits
async def main():
    sandbox = {name}(SandboxLimits(seconds={seconds}))
    await sandbox.run("", {{}})
    print("ready", flush=True)
    await sandbox.run("while True:\\n    pass", {{}})
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=dict(os.environ)) as parent:
        assert parent.stdout.readline() == b"ready\n"
        while not psutil.Process(parent.pid).children(recursive=True):
            time.sleep(0.01)
        time.sleep(0.2)
        children = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    _, alive = psutil.wait_procs(children, timeout=3)
    assert not alive

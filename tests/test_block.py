"""The code in replies, in whatever form models give it, and what is refused before it is run."""

import pytest

from nodes.agent.block import FINISH, LAUNCH, code_of, fault_of

NAMES = {LAUNCH, FINISH, "craft"}
AWAITED = {LAUNCH, "craft"}


@pytest.mark.parametrize(
    "reply",
    [
        "So:\n```python\nx = 1\nprint(x)\n```\nThat is all.",
        "```py\nx = 1\nprint(x)\n```",
        "```\nx = 1\nprint(x)\n```",
        "~~~python\nx = 1\nprint(x)\n~~~",
        "````python\nx = 1\nprint(x)\n````",
        "```Python title=a\nx = 1\nprint(x)",
        "```python\nx = 1\n```\nand then\n```python\nprint(x)\n```",
        "```json\n{}\n```\n```python\nx = 1\nprint(x)\n```\n```text\nno\n```",
        "<think>```python\nno()\n```</think>\n```python\nx = 1\nprint(x)\n```",
        "<code>\nx = 1\nprint(x)\n</code>",
        "<execute>x = 1\nprint(x)",
        '{"name": "python", "arguments": {"code": "x = 1\\nprint(x)"}}',
        '<tool_call>{"name": "run", "arguments": "{\\"code\\": \\"x = 1\\\\nprint(x)\\"}"}</tool_call>',
        '{"type": "function", "function": {"name": "python", "parameters": {"source": "x = 1\\nprint(x)"}}}',
        "x = 1\nprint(x)",
        "```python\n>>> x = 1\n>>> print(x)\n1\n```",
        "```python\n%time\nx = 1\nprint(x)\n```",
    ],
)
def test_the_code_is_found(reply: str) -> None:
    assert (code_of(reply, NAMES) or "").strip() == "x = 1\nprint(x)"


def test_calls_in_json_are_code() -> None:
    launch = code_of('{"name": "launch_subagent", "arguments": {"goal": "a \\"b\\"", "context": null}}', NAMES)
    given = '"{\\"goal\\": \\"a \\\\\\"b\\\\\\"\\", \\"context\\": null}"'
    assert launch == f"import json\nprint(await launch_subagent(**json.loads({given})))"
    assert fault_of(launch, AWAITED) is None
    finish = code_of('{"tool": "finish", "args": {"message": "done"}}', NAMES)
    assert finish == 'import json\nfinish(*json.loads("{\\"message\\": \\"done\\"}").values())'


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I think so.",
        "None",
        "{}",
        '{"answer": 4}',
        "```json\n{}\n```",
        "x = 1",
        "```python\n\n```",
        '{"name": "rm"}',
    ],
)
def test_a_reply_without_code_has_none(reply: str) -> None:
    assert code_of(reply, NAMES) is None


@pytest.mark.parametrize(
    "code",
    [
        "await launch_subagent('a')",
        "r = await launch_subagent('a')",
        "print((await launch_subagent('a'))['x'])",
        "a, b = await asyncio.gather(launch_subagent('a'), craft({}))",
        "await asyncio.gather(*[launch_subagent(g) for g in goals])",
        "tasks = [launch_subagent(g) for g in goals]\nrs = await asyncio.gather(*tasks)",
        "tasks = []\nfor g in goals:\n    tasks.append(launch_subagent(g))\nawait asyncio.gather(*tasks)",
        "t = launch_subagent('a')\nprint(await t)",
        "async def sub(g):\n    return await launch_subagent(g)\nprint(await sub('a'))",
        "def sub(g):\n    return launch_subagent(g)\nprint(await sub('a'))",
        "f = lambda g: launch_subagent(g)\nprint(await f('a'))",
        "fs = {g: launch_subagent(g) for g in goals}\nfor g in fs:\n    print(await fs[g])",
        "[await launch_subagent(g) for g in goals]",
        "names = 'launch_subagent(1)'",
    ],
)
def test_what_is_awaited_is_run(code: str) -> None:
    assert fault_of(code, AWAITED) is None


@pytest.mark.parametrize(
    "code",
    [
        "launch_subagent('a')",
        "for g in goals:\n    launch_subagent(g)",
        "r = launch_subagent('a')",
        "rs = [launch_subagent(g) for g in goals]",
        "print(launch_subagent('a'))",
        "x = launch_subagent('a')['x']\nawait y",
        "x = launch_subagent('a').x\nawait y",
        "x = launch_subagent('a') + 1",
        "if craft({}):\n    await launch_subagent('a')",
        "print(f'{craft({})}')",
        "for x in launch_subagent('a'):\n    pass",
        "assert craft({})",
        "while not craft({}):\n    pass",
    ],
)
def test_what_is_not_awaited_is_refused(code: str) -> None:
    assert "is not awaited" in (fault_of(code, AWAITED) or "")


@pytest.mark.parametrize(
    "code", ["if x\n  y", "x = (", "\x00", "(" * 500 + ")" * 500, "-" * 40_000 + "1", "x" * 60_000, "await = 1"]
)
def test_what_is_no_python_is_refused(code: str) -> None:
    assert fault_of(code, AWAITED)

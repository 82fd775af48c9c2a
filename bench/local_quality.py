"""What the embedded model can and cannot do: figures over small tasks, each checked by rule.

Run as ``python bench/local_quality.py``; takes a few minutes on two cores and prints a Markdown table.
"""

import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel

from nodes.atomize import says_yes
from nodes.decompose import bullets
from nodes.models.local import LocalServer
from nodes.prompt import render
from nodes.verify import read_verdict

Check = Callable[[str], bool]


@dataclass(frozen=True)
class Case:
    """One prompt of a ``kind`` and the rule that its reply must meet."""

    kind: str
    about: str
    prompt: str
    check: Check


def has(*wanted: str) -> Check:
    """Return a rule: every word is in the reply, in any case."""
    return lambda reply: all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", reply, re.IGNORECASE) for word in wanted)


def solve(task: str, *wanted: str) -> Case:
    return Case("solve a simple task", task, task, has(*wanted))


def judge(task: str, *, simple: bool) -> Case:
    words = ("yes",) if simple else ("no",)
    return Case(
        "tell simple from complex",
        task,
        render("atomize", task=task, depth=0),
        lambda reply: says_yes(reply) == simple and reply.strip().lower().startswith(words),
    )


def split(task: str, *subjects: str) -> list[Case]:
    """Two figures: the form of the plan, and whether each subtask names what it is about."""
    prompt = render("decompose", task=task, depth=0, max_subtasks=3)
    words = tuple(subject.lower() for subject in subjects)
    return [
        Case("split: 2 or 3 lines in form", task, prompt, lambda reply: len(bullets(reply)) in {2, 3}),
        Case(
            "split: each line names its subject",
            task,
            prompt,
            lambda reply: all(any(word in line.lower() for word in words) for line in bullets(reply) or [""]),
        ),
    ]


def check(task: str, result: str, *, right: bool) -> Case:
    kind = "accept a right answer" if right else "reject a wrong answer"
    prompt = render("verify", task=task, result=result, attempt=1)
    return Case(kind, f"{task} / {result}", prompt, lambda reply: read_verdict(reply).accepted == right)


def combine(task: str, results: dict[str, str], *wanted: str) -> Case:
    given = [{"task": subtask, "answer": answer} for subtask, answer in results.items()]
    return Case("combine results", task, render("aggregate", task=task, results=given), has(*wanted))


CASES = [
    solve("What is the capital of Canada?", "Ottawa"),
    solve("What is 48 + 37? Reply with the number.", "85"),
    solve("What is 23 * 4? Reply with the number.", "92"),
    solve("How many letters has the word 'cactus'? Reply with the number.", "6"),
    solve("Which planet is closest to the Sun?", "Mercury"),
    solve("Translate 'bread' into Spanish.", "pan"),
    solve("Who wrote 'Hamlet'?", "Shakespeare"),
    solve("A train leaves at 9:40 and arrives at 11:05. How many minutes does it take?", "85"),
    solve("Write a Python expression for the last element of the list xs.", "xs[-1]"),
    solve("What is the chemical formula of table salt?", "NaCl"),
    judge("Who painted the Mona Lisa?", simple=True),
    judge("What is 15 percent of 80?", simple=True),
    judge("Write a limerick about a cat.", simple=True),
    judge("Write a Python function that adds two numbers.", simple=True),
    judge("Give a synonym of 'happy'.", simple=True),
    judge("Write a market study of electric bicycles in Germany, France and Italy.", simple=False),
    judge("Plan a wedding for 80 guests: venue, food, music, invitations and budget.", simple=False),
    judge("Build a chat application with a server, a web client and tests.", simple=False),
    judge("Compare buses, trams and metros by cost, capacity and building time.", simple=False),
    judge("Write a handbook for new employees: history, rules, tools and contacts.", simple=False),
    *split("Compare tea and coffee by taste, caffeine and price.", "tea", "coffee"),
    *split("Describe the food, the climate and the history of Portugal.", "portugal", "portuguese"),
    *split("Write a guide to caring for a dog: feeding, walking and training.", "dog", "pupp"),
    *split("Give the population and the official language of Brazil.", "brazil"),
    check("What is 31 + 14?", "45", right=True),
    check("What is 31 + 14?", "55", right=False),
    check("What is the capital of Turkey?", "Ankara", right=True),
    check("What is the capital of Turkey?", "Istanbul", right=False),
    check("Name two planets of the solar system.", "Mars and Venus", right=True),
    check("Name two planets of the solar system.", "Mars", right=False),
    check("Translate 'dog' into German.", "Hund", right=True),
    check("Translate 'dog' into German.", "Katze", right=False),
    check("How many minutes are in two hours?", "120", right=True),
    check("How many minutes are in two hours?", "100", right=False),
    combine("What is 6*7 plus 5*8?", {"Compute 6*7": "42", "Compute 5*8": "40"}, "82"),
    combine(
        "Give the population and the official language of Brazil.",
        {"Give the population of Brazil.": "About 212 million.", "Name Brazil's official language.": "Portuguese."},
        "212 million",
        "Portuguese",
    ),
    combine(
        "Which is taller, the Eiffel Tower or the Statue of Liberty?",
        {"How tall is the Eiffel Tower?": "330 metres", "How tall is the Statue of Liberty?": "93 metres"},
        "Eiffel",
    ),
]


@dataclass
class Figure:
    """What one kind of task came to."""

    right: int = 0
    tasks: int = 0
    seconds: float = 0.0


def measure(model: BaseChatModel) -> dict[str, Figure]:
    """Ask every case and return the figures by kind; misses are printed as they come."""
    figures: dict[str, Figure] = {}
    replies: dict[str, tuple[str, float]] = {}
    for case in CASES:
        if case.prompt not in replies:
            start = time.perf_counter()
            reply = str(model.invoke(case.prompt).text)
            replies[case.prompt] = (reply, time.perf_counter() - start)
        reply, seconds = replies[case.prompt]
        figure = figures.setdefault(case.kind, Figure())
        figure.tasks += 1
        figure.seconds += seconds
        figure.right += (right := case.check(reply))
        if not right:
            print(f"missed: {case.kind}: {case.about!r}: {reply[:200]!r}", flush=True)
    return figures


def main() -> None:
    begin = time.perf_counter()
    with LocalServer() as server:
        model = server.chat_model()
        ready = time.perf_counter() - begin
        figures = measure(model)
    print(f"\nready in {ready:.1f} s; Python {platform.python_version()}, {platform.machine()}\n")
    print("| job | right | tasks | seconds each |\n| --- | ---: | ---: | ---: |")
    for kind, figure in figures.items():
        print(f"| {kind} | {figure.right} | {figure.tasks} | {figure.seconds / figure.tasks:.1f} |")


if __name__ == "__main__":
    main()

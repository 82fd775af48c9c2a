"""What git knows of a folder: its tracked files, and those that are neither tracked nor ignored."""

import os
import subprocess
from pathlib import Path

_SECONDS = 60
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")
"""A repository's own settings may name programs; none of them is run."""


def tracked(folder: Path) -> list[str] | None:
    """Return the paths below ``folder``, relative to it, that git tracks or does not ignore, in order.

    ``None`` where git is not there, ``folder`` is in no work tree, or git ignores all of it. It blocks.
    """
    command = ["git", *_QUIET, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    unset = {name for name in os.environ if name.startswith("GIT_")}  # a hook's would point to another repository
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    try:
        done = subprocess.run(  # noqa: S603  # our own words; no shell
            command,
            cwd=folder,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return sorted(os.fsdecode(name) for name in done.stdout.split(b"\0") if name) or None

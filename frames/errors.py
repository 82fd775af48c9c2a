"""The exceptions of Cactus.

CactusError
├── UsageError          wrong input: an option, a setting, a file, a run id (exit status 2)
├── CallError           a model call gave no usable reply; the frame's step fails
│   ├── TransportError  the provider could not be reached or kept failing, after all retries
│   ├── ReplyCutError   the reply was cut off at its length limit
│   ├── RefusedError    the model declined to answer
│   │   └── EmptyReplyError  the reply had no text
│   ├── TooLargeError   the request is larger than the provider takes, however long one waits
│   └── ToolsRefusedError    the endpoint takes no tools
├── StoreError          the database of runs failed under way; what was saved before stays
└── LimitError          a limit of the run was reached; a result with a status, not a failure

A message says what happened and what to do about it. Frame ids are added where the frame is known.
"""


class CactusError(Exception):
    """Base of everything that Cactus raises on purpose."""


class UsageError(CactusError):
    """Wrong input. The message names the option, setting, file or run, and the remedy."""


class CallError(CactusError):
    """A model call that gave no usable reply."""


class TransportError(CallError):
    """The provider could not be reached, or kept failing after all retries."""


class ReplyCutError(CallError):
    """The reply was cut off at its length limit: half an answer is none."""


class RefusedError(CallError):
    """The model declined to answer."""


class EmptyReplyError(RefusedError):
    """The reply had no text."""


class TooLargeError(CallError):
    """The request is larger than the provider takes: not too many, and no use in waiting."""


class ToolsRefusedError(CallError):
    """The endpoint takes no tools; the model can be told of them in words."""


class StoreError(CactusError):
    """The database of runs failed under way (a full disk); what was saved before stays."""


class LimitError(CactusError):
    """A limit of the whole run was reached.

    ``name`` is the setting that set it (``max_calls``). ``kept``: something is left, for what was begun.
    """

    def __init__(self, name: str, message: str, *, kept: bool = False) -> None:
        super().__init__(message)
        self.name, self.kept = name, kept

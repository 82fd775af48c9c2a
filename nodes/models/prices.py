"""What a model call costs in US dollars: by the user's table, else by the one of the package ``genai-prices``."""

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from frames.errors import UsageError

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

_MILLION = 1_000_000

_FORM = (
    'write in the YAML file of --config: prices: {"openai:my-model": {input: 0.25, output: 2}} '
    "(US dollars for a million tokens), or -c 'prices.openai:my-model=0.25/2'"
)

_PROVIDERS = {
    "anthropic": "anthropic",
    "anthropic_bedrock": "aws",
    "azure_ai": "azure",
    "azure_openai": "azure",
    "baseten": "baseten",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "bedrock_mantle_anthropic": "aws",
    "bedrock_mantle_openai": "aws",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "google_anthropic_vertex": "google",
    "google_genai": "google",
    "google_vertexai": "google",
    "groq": "groq",
    "meta": "meta",
    "mistralai": "mistral",
    "openai": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "together": "together",
    "xai": "x-ai",
}
"""LangChain's providers by the package's names. Left to itself, the package takes any name that resembles one."""


class Price(NamedTuple):
    """What tokens cost, in US dollars per million."""

    input: float
    output: float


class Prices:
    """The prices of models: ``own`` by name or pattern (``openai:*``, ``*``), else the package's.

    Of the entries of ``own`` that match, the exact name counts, else the pattern with the most letters. What neither
    table knows has no price; the embedded model costs nothing, unless ``own`` says otherwise. Nothing is fetched.

    Raises:
        UsageError: ``own`` is not as ``check_prices`` wants it.
    """

    def __init__(self, own: Mapping[str, Mapping[str, float]]) -> None:
        check_prices(own)
        self._own = {model: Price(given["input"], given["output"]) for model, given in own.items()}
        self._known: dict[str, Price | None] = {}

    def of(self, model: str) -> Price | None:
        """Return the price of a model, named as ``name_of`` does; ``None`` where it is unknown.

        Where a price depends on the size of the input it is that of the smallest, and where it depends on the time
        that of the first question.

        The first question may import the package (some 50 ms, 0.6 s where it was never compiled): ask in a thread,
        off the event loop. Later answers, and ``cost`` for the same model, take under a millisecond.
        """
        if model not in self._known:
            self._known[model] = self._fixed(model) or _standard(model)
        return self._known[model]

    def cost(self, model: str, input_tokens: int, output_tokens: int) -> float | None:
        """Return the US dollars of one call made now; ``None`` where the price is unknown.

        The rate for inputs of this size applies, and a provider's fee per request is added. Where ``of`` was not
        asked about this model before, this may import the package.
        """
        if self.of(model) is None:
            return None
        if fixed := self._fixed(model):
            return (input_tokens * fixed.input + output_tokens * fixed.output) / _MILLION
        listed = _listed(model, input_tokens, output_tokens)
        return float(listed.total_price) if listed else None

    def _fixed(self, model: str) -> Price | None:
        """Return a price that is the same for all inputs: the user's, or that of the embedded model."""
        if model in self._own:
            return self._own[model]
        patterns = [pattern for pattern in self._own if fnmatchcase(model, pattern)]
        if patterns:
            return self._own[max(patterns, key=lambda pattern: len(pattern.replace("*", "")))]
        return Price(0, 0) if model == "local" else None


def check_prices(own: Mapping[str, Mapping[str, float]]) -> None:
    """Check a user's table of prices: for each model ``input`` and ``output``, each a number from 0 up.

    Raises:
        UsageError: one is missing, is no such number, or has another name; the message names the model.
    """
    for model, given in own.items():
        fault = next(_faults(given), None)
        if fault:
            raise UsageError(f"prices: {model!r} {fault}; {_FORM}")


def _faults(given: Mapping[str, float]) -> Iterator[str]:
    for key, value in given.items():
        if key not in Price._fields:
            yield f"has the unknown key {key!r} (the keys are input and output)"
        elif not (math.isfinite(value) and value >= 0):
            yield f"has {key} {value:g}, which is not a number from 0 up"
    for key in Price._fields:
        if key not in given:
            yield f"has no {key}"


def _standard(model: str) -> Price | None:
    """Return the package's price for the smallest inputs."""
    listed = _listed(model, 0, 0)
    if listed is None:
        return None
    given, got = _smallest(listed.model_price.input_mtok), _smallest(listed.model_price.output_mtok)
    # an entry without rates is no free model: its price is unknown, or the model is not one for text
    return None if given is None or got is None else Price(given, got)


def _smallest(rate: Any) -> float | None:
    """Return the rate of the smallest inputs, where they differ."""
    return None if rate is None else float(getattr(rate, "base", rate))


def _listed(model: str, input_tokens: int, output_tokens: int) -> "PriceCalculation | None":
    provider, _, name = model.partition(":")
    if not name or provider not in _PROVIDERS:
        return None
    try:
        from genai_prices import Usage, calc_price  # slow to import, and an extra
    except ImportError:
        return None
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    try:
        return calc_price(usage, name, provider_id=_PROVIDERS[provider])
    except LookupError:
        return None

"""What a model call costs: the user's table beats the package's, and what neither knows has no price."""

import subprocess
import sys
from pathlib import Path

import pytest

from frames.errors import UsageError
from nodes.models.prices import _FORM, _PROVIDERS, Price, Prices, check_prices
from studio.options import choose

MINI = "openai:gpt-5-mini"
OWN = {"input": 3.0, "output": 7.0}


def test_the_package_knows_the_price_of_a_model():
    assert Prices({}).of(MINI) == Price(0.25, 2)
    assert Prices({}).cost(MINI, 1_000_000, 500_000) == pytest.approx(1.25)
    assert Prices({}).cost(MINI, 0, 0) == 0


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("openai:gpt-5-mini-2025-08-07", (0.25, 2)),
        ("azure_openai:gpt-4o", (2.5, 10)),
        ("anthropic:claude-sonnet-4-5-20250929", (3, 15)),
        ("google_genai:gemini-2.5-pro", (1.25, 10)),
        ("google_vertexai:gemini-2.5-pro", (1.25, 10)),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", (3.3, 16.5)),
        ("openrouter:openai/gpt-5-mini", (0.25, 2)),
    ],
)
def test_names_of_langchains_providers_and_dated_models(model, price):
    assert Prices({}).of(model) == price


@pytest.mark.parametrize(
    "model",
    [
        "groq:llama-3.3-70b-versatile",
        "mistralai:mistral-large-latest",
        "deepseek:deepseek-chat",
        "xai:grok-4",
        "together:meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "cohere:command-r-plus",
        "perplexity:sonar",
    ],
)
def test_other_providers_have_some_price(model):
    price = Prices({}).of(model)
    assert price
    assert min(price) > 0


def test_each_provider_is_one_of_the_packages_and_of_langchains():
    from genai_prices.data_snapshot import get_snapshot
    from langchain.chat_models.base import _BUILTIN_PROVIDERS

    assert set(_PROVIDERS) <= set(_BUILTIN_PROVIDERS)
    assert set(_PROVIDERS.values()) <= {provider.id for provider in get_snapshot().providers}


@pytest.mark.parametrize(
    "model",
    [
        "scripted:tests/script.yaml",
        "scripted:gpt-5-mini",
        "gpt-5-mini",  # a LangChain object: its provider is not told
        "llama3.1:8b",  # another, with a colon of its own
        "answer_all",  # a callable
        "ollama:llama3.1",
        "litellm:openai/gpt-5-mini",
        "my_openai:gpt-5-mini",  # the package itself would take any provider with openai in its name
        "openai:my-own-model",
        "openai:text-embedding-3-small",  # no price of output
        "openrouter:meta-llama/llama-3.3-70b-instruct:free",  # an entry without rates
        "openai:",
        "",
    ],
)
def test_what_no_table_knows_has_no_price(model):
    prices = Prices({})
    assert prices.of(model) is None
    assert prices.cost(model, 1000, 1000) is None


def test_the_embedded_model_costs_nothing():
    assert Prices({}).of("local") == (0, 0)
    assert Prices({}).cost("local", 10_000, 10_000) == 0


@pytest.mark.parametrize("pattern", [MINI, "openai:*", "*", "openai:gpt-5-*"])
def test_the_users_table_beats_the_packages(pattern):
    prices = Prices({pattern: OWN})
    assert prices.of(MINI) == (3, 7)
    assert prices.cost(MINI, 2_000_000, 1_000_000) == pytest.approx(13)


def test_a_pattern_prices_whatever_it_matches_and_leaves_the_rest():
    prices = Prices({"openai:*": OWN})
    assert prices.of("openai:my-own-model") == (3, 7)
    assert prices.of("mistralai:my-own-model") is None
    assert prices.of("azure_openai:gpt-4o") == (2.5, 10)
    assert Prices({"*": OWN}).of("scripted:a.yaml") == Prices({"*": OWN}).of("local") == (3, 7)
    assert Prices({"local": OWN}).of("local") == (3, 7)


@pytest.mark.parametrize("turn", [1, -1])
def test_the_exact_name_beats_patterns_and_a_longer_pattern_a_shorter_one(turn):
    table = {"*": 1.0, "openai:*": 2.0, "openai:gpt-5-*": 3.0, MINI: 4.0, "openai:odd[1]": 5.0}
    prices = Prices({model: {"input": rate, "output": rate} for model, rate in list(table.items())[::turn]})
    found = [prices.of(model) for model in (MINI, "openai:gpt-5-nano", "openai:o3", "xai:grok-4", "openai:odd[1]")]
    assert found == [(4, 4), (3, 3), (2, 2), (1, 1), (5, 5)]


def test_a_price_of_zero_is_a_price():
    prices = Prices({MINI: {"input": 0, "output": 0}})
    assert prices.of(MINI) == (0, 0)
    assert prices.cost(MINI, 1000, 1000) == 0


def test_large_inputs_cost_the_rate_of_their_size():
    prices = Prices({})
    assert prices.cost("google_genai:gemini-2.5-pro", 200_000, 1000) == pytest.approx(0.25 + 0.01)
    assert prices.cost("google_genai:gemini-2.5-pro", 400_000, 1000) == pytest.approx(1.0 + 0.015)


def test_a_fee_for_each_request_is_part_of_the_cost():
    prices = Prices({})
    fee = prices.cost("perplexity:sonar", 0, 0)
    price = prices.of("perplexity:sonar")
    assert fee
    assert price
    tokens = (1000 * price.input + 500 * price.output) / 1e6
    assert prices.cost("perplexity:sonar", 1000, 500) == pytest.approx(fee + tokens)


def test_nothing_is_imported_before_it_is_needed_and_nothing_fetched():
    code = """
import sys
from nodes.models.prices import Prices

def hook(event, arguments):
    if event.startswith("socket.") and event != "socket.__new__":
        raise OSError(event)

sys.addaudithook(hook)
prices = Prices({"openai:mine": {"input": 1, "output": 1}})
prices.of("openai:mine"), prices.of("local"), prices.of("scripted:a"), prices.of("some_function")
assert "genai_prices" not in sys.modules
print(prices.of("openai:gpt-5-mini"), prices.cost("openai:gpt-5-mini", 1000, 1000), prices.of("openai:unheard-of"))

prices.of("google_genai:gemini-2.5-pro")
known = set(sys.modules)
assert prices.cost("google_genai:gemini-2.5-pro", 400_000, 1000)
assert set(sys.modules) == known, "after the first question, none may be work for the event loop"
"""
    told = subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True)
    assert told.strip() == "Price(input=0.25, output=2.0) 0.00225 None"


def test_without_the_package_the_users_table_is_all_there_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    prices = Prices({"openai:mine": OWN})
    assert prices.of(MINI) is None
    assert prices.cost(MINI, 1000, 1000) is None
    assert prices.of("openai:mine") == (3, 7)
    assert prices.of("local") == (0, 0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"input": 1}, "has no output"),
        ({"output": 1}, "has no input"),
        ({}, "has no input"),
        ({"input": -1, "output": 1}, "has input -1, which is not a number from 0 up"),
        ({"input": 1, "output": float("nan")}, "has output nan"),
        ({"input": float("inf"), "output": 1}, "has input inf"),
        ({"input": 1, "output": 1, "cached": 1}, "has the unknown key 'cached' (the keys are input and output)"),
        ({"in": 1, "out": 1}, "has the unknown key 'in'"),
    ],
)
def test_a_bad_table_is_refused_with_the_model_and_the_right_form(given, said):
    for refuse in (check_prices, Prices):
        with pytest.raises(UsageError) as refused:
            refuse({MINI: OWN, "xai:mine": given})
        assert f"prices: 'xai:mine' {said}" in str(refused.value)
        assert "--config" in str(refused.value)


def test_the_form_that_the_message_shows_works(tmp_path: Path):
    form = _FORM.removeprefix("write in the YAML file of --config: ").rpartition(" (")[0]
    (tmp_path / "cactus.yaml").write_text(form, encoding="utf-8")
    chosen = choose({"model": "scripted:none"}, config=tmp_path / "cactus.yaml").context.prices
    check_prices(chosen)
    assert Prices(chosen).of("openai:my-model") == (0.25, 2)

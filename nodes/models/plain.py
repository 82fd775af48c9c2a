"""A plain callable as a chat model, so that a trace has its calls as those of any model."""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field
from typing_extensions import override


class PlainChatModel(BaseChatModel):
    """Replies with what ``ask`` gives; it reports no tokens."""

    ask: Callable[[], Awaitable[str]] = Field(exclude=True, repr=False)
    model_name: str

    @property
    def _llm_type(self) -> str:
        return "callable"

    @override
    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> NoReturn:
        raise NotImplementedError("it is asked from an event loop")

    @override
    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(await self.ask()))])

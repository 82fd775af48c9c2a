"""The compiled graph as a server runs it: what plain settings name is opened for each run, and closed after it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from typing_extensions import override

from frames.errors import UsageError
from graph.replies import Answerable
from nodes.context import Context


class RefusedError(UsageError, ValueError):
    """Wrong input of a run. LangGraph's server passes on what a ``ValueError`` says, and hides all else."""


class App(Answerable):
    """The compiled graph, which takes a run's settings as plain values too.

    Whoever brings a context of their own opens and closes what belongs to it.
    """

    @override
    def astream(self, input: Any, config: Any = None, **options: Any) -> Any:
        """Run the graph as LangGraph does, with what plain settings name.

        Raises:
            ValueError: a setting is unknown or out of its range.
            RefusedError: the task is blank, a tool, document folder or file that the settings name is not there, or
                a price is unknown.
        """
        settings = options.get("context")
        if not isinstance(settings, Mapping):
            return super().astream(input, config, **options)
        return self._astream_opened(cast("Mapping[str, Any]", settings), (input, config), options)

    async def _astream_opened(
        self, settings: Mapping[str, Any], given: tuple[Any, Any], options: dict[str, Any]
    ) -> AsyncIterator[Any]:
        schema = cast("type[Context]", self.builder.context_schema)
        try:
            async with _opened(schema(**settings)) as context:
                chunks: Any = super().astream(*given, **{**options, "context": context})
                async with aclosing(chunks) as stream:
                    async for chunk in stream:
                        yield chunk
        except UsageError as error:
            raise RefusedError(str(error)) from error


@asynccontextmanager
async def _opened(context: Context) -> AsyncGenerator[Context]:
    models, resources = context.models, context.resources  # made here, so that branches share them
    try:
        if context.max_usd is not None:
            await asyncio.to_thread(lambda: context.check_money(context.named_models()))
        await resources.open()
        yield context
    finally:
        await resources.close()
        await asyncio.to_thread(models.close)

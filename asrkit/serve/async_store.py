"""The store of calls for the event loop: no call waits long for a disk or a network."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from anyio import fail_after

from asrkit.errors import reason
from asrkit.serve.call_store import Store, StoredCall

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 0.5  # time that a call waits for the store
RETRY_S = 2.0  # time between two tries of a store that did not answer
THREADS = 4


class AsyncStore:
    """A store whose methods fail at once while the store does not answer.

    Args:
        store: store whose methods run in separate threads, if the store survives the process.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.survives = store, store.survives
        self.is_down = False  # whether the store did not answer the last time
        self._threads = ThreadPoolExecutor(THREADS, "asrkit-store") if store.survives else None
        self._retrying: asyncio.Task[None] | None = None

    async def put(self, name: str, entry: StoredCall) -> bool:
        """Like `Store.put`; OSError if the store fails or does not answer."""
        return await self._run(lambda: self.store.put(name, entry))

    async def take(self, name: str) -> StoredCall | None:
        """Like `Store.take`; OSError if the store fails or does not answer."""
        return await self._run(lambda: self.store.take(name))

    async def drop(self, name: str, generation: int) -> None:
        """Like `Store.drop`; if that fails, `sweep` removes the entry later."""
        try:
            await self._run(lambda: self.store.drop(name, generation))
        except OSError as error:
            logger.warning("a call's state could not be removed: %s", reason(error))

    async def sweep(self) -> None:
        """Like `Store.sweep`; OSError if the store fails or does not answer."""
        await self._run(self.store.sweep, PATIENCE_S + RETRY_S)

    def close(self) -> None:
        """Cancel the work that still waits."""
        if self._retrying is not None:
            self._retrying.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T], patience: float = PATIENCE_S) -> T:
        if self._threads is None:
            return work()
        if self.is_down:
            raise OSError("the store does not answer")
        try:
            return await self._tried(work, patience)
        except TimeoutError as error:
            if not self.is_down:
                logger.warning("calls continue but are not saved: %s", reason(error))
                self.is_down = True
                self._retrying = asyncio.ensure_future(self._retry())
            raise OSError("the store does not answer") from None

    async def _tried(self, work: Callable[[], T], patience: float) -> T:
        """Return the result; work that has not begun after `patience` seconds is cancelled."""
        assert self._threads is not None
        future = self._threads.submit(work)
        try:
            with fail_after(patience):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.done() and not future.cancelled():  # the store's own error
                raise
            raise TimeoutError(f"the store did not answer within {patience:g} s") from None

    async def _retry(self) -> None:
        """Check the store every `RETRY_S` until it answers."""
        began = time.monotonic()
        while self.is_down:
            await asyncio.sleep(RETRY_S)
            try:
                await self._tried(self.store.check, RETRY_S)
                self.is_down = False
            except OSError:
                pass
        logger.warning("the store of calls answers again, after %.0f s", time.monotonic() - began)

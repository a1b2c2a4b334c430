"""Work on one chunk while the next one is read.

Belongs here: `ahead`. Reading, mapping and writing leave the interpreter for native code, so two of them can run at once.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

Item = TypeVar("Item")
_DONE = object()


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Give the same items in the same order; the next one is made in a thread while this one is used.

    At most one item waits, so memory stays bounded by a few chunks. An error of the source is raised where its item would
    have come. If the caller stops early, the thread ends with the item it is making.
    """
    waiting: queue.Queue[object] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_DONE)
        except BaseException as error:  # noqa: BLE001 - it is raised again by the caller
            put(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not _DONE:
            if isinstance(item, BaseException):
                raise item
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()

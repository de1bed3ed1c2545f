"""Messages to nodes: all sent at once, replies matched one by one until a deadline."""

import re
import time
from collections.abc import Generator, Mapping
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedmux.flower.wire import in_short

POLL = 0.3  # seconds between checks for replies
KINDS = {3: "late", 4: "late", 5: "lost", 8: "lost"}  # Flower's error codes; any other: the app raised
RAISED = re.compile(r"<class '(?:[\w.]*\.)?(\w+)'>:<'(.*?)(?:'>)?")  # how Flower tells an exception


class Trouble(NamedTuple):
    """Why a node gave no answer."""

    kind: str
    reason: str


class Post:
    def __init__(self, grid: Grid, deadline: float) -> None:
        self.grid, self.deadline = grid, deadline
        self._unawaited: dict[str, tuple[int, float]] = {}  # by message: node, when it expires

    def nodes(self) -> set[int]:
        """Those that are online."""
        return set(self.grid.get_node_ids())

    def busy(self) -> set[int]:
        """Nodes still at work on something that nobody waits for any more."""
        if self._unawaited:
            for reply in self.grid.pull_messages(list(self._unawaited)):
                del self._unawaited[reply.metadata.reply_to_message_id]
        now = time.monotonic()
        self._unawaited = {key: (node, end) for key, (node, end) in self._unawaited.items() if now < end}
        return {node for node, _ in self._unawaited.values()}

    def ask(
        self, kind: str, contents: Mapping[int, RecordDict]
    ) -> Generator[tuple[int, RecordDict | Trouble]]:
        """Each node once, with its reply or why there is none, as they arrive.

        Closing this early leaves the others busy.
        """
        messages = [
            Message(content, dst_node_id=node, message_type=kind, ttl=self.deadline)
            for node, content in contents.items()
        ]
        sent = zip(self.grid.push_messages(messages), contents) if messages else ()
        waiting = {identifier: node for identifier, node in sent if identifier}
        arrived: dict[str, Message] = {}
        end = time.monotonic() + self.deadline
        try:
            for node in set(contents) - set(waiting.values()):
                yield node, Trouble("unreachable", "the SuperLink did not take the message")
            while waiting and time.monotonic() < end:
                for reply in self.grid.pull_messages(list(waiting)):
                    arrived[reply.metadata.reply_to_message_id] = reply
                for identifier in list(arrived):
                    node, reply = waiting.pop(identifier), arrived.pop(identifier)
                    yield node, reply.content if reply.has_content() else self._trouble(reply)
                if waiting:
                    time.sleep(POLL)
        except GeneratorExit:
            self._unawaited |= {key: (node, end) for key, node in waiting.items() if key not in arrived}
            raise
        for node in waiting.values():
            yield node, Trouble("late", self._in_time)

    @property
    def _in_time(self) -> str:
        return f"no answer within {self.deadline:g} s"

    def _trouble(self, reply: Message) -> Trouble:
        """From an error reply; a message that expires comes back as one."""
        code, reason = reply.error.code, in_short(reply.error.reason)
        if raised := RAISED.fullmatch(reason):
            reason = f"{raised[1]}: {raised[2]}".removeprefix("FedmuxError: ")
        kind = KINDS.get(code, "raised")
        return Trouble(kind, self._in_time if kind == "late" else f"error {code}: {reason}")

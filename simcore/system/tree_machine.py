"""One rank of a double binary tree, message by message; the rules are those of `double_binary_tree.exits`."""

from __future__ import annotations

from collections.abc import Callable

from simcore.system.collectives.double_binary_tree import Tree

__all__ = ["TreeMachine"]

UP, DOWN = 0, 1


class TreeMachine:
    """State of one rank: `send(peer, message)` hands a message to the network, a child's is UP, a parent's DOWN."""

    __slots__ = ("_children", "_cost_ns", "_early", "_endpoint_ns", "_heard", "_parent", "after", "done", "send")

    def __init__(
        self,
        shape: Tree,
        rank: int,
        endpoint_ns: int,
        reduction_ns: int,
        after: Callable[[int, Callable[[], None]], None],
        send: Callable[[int, int], None],
        done: Callable[[], None],
    ):
        self._parent, self._children = shape.parent[rank], shape.children[rank]
        self._endpoint_ns, self._cost_ns = endpoint_ns, endpoint_ns + reduction_ns
        self.after, self.send, self.done = after, send, done
        self._heard = self._early = 0

    def start(self) -> None:
        """Begin: a leaf sends up, the others listen to their children."""
        if not self._children:
            self.after(self._endpoint_ns, self._send_up)
        for _ in range(self._early):
            self.after(self._cost_ns, self._child_reduced)
        self._early = -1

    def arrive(self, message: int) -> None:
        """A message from a child or from the parent is here."""
        if message == DOWN:
            self.after(self._cost_ns if self._children else self._endpoint_ns, self._pass_down)
        elif self._early >= 0:
            self._early += 1
        else:
            self.after(self._cost_ns, self._child_reduced)

    def _child_reduced(self) -> None:
        self._heard += 1
        if self._heard < len(self._children):
            return
        if self._parent < 0:
            self._pass_down()
        else:
            self._send_up()

    def _send_up(self) -> None:
        self.send(self._parent, UP)

    def _pass_down(self) -> None:
        for child in self._children:
            self.send(child, DOWN)
        self.done()

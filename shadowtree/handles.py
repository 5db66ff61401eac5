"""What the context managers hand out: it answers like the message or step, finished after the body."""

from __future__ import annotations

from shadowtree.model import Message, Patch, Skipped, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from shadowtree.model import MessageState


class MessageHandle:
    """A message in the making. After the body it answers like the finished `Message`."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def finish(self, message: Message) -> None:
        """Take over what was recorded at the end."""
        self._message = message

    @property
    def value(self) -> Message:
        """The message as it is recorded now."""
        return self._message

    @property
    def id(self) -> str:
        """The id that the caller chose."""
        return self._message.id

    @property
    def session(self) -> str:
        """The session that it is part of."""
        return self._message.session

    @property
    def role(self) -> str | None:
        """Whose message it is."""
        return self._message.role

    @property
    def text(self) -> str:
        """What it is about."""
        return self._message.text

    @property
    def meta(self) -> dict[str, Any] | None:  # Any: the caller's JSON object
        """The caller's JSON object."""
        return self._message.meta

    @property
    def time(self) -> datetime:
        """When it began."""
        return self._message.time

    @property
    def before(self) -> str | None:
        """The tree before it."""
        return self._message.before

    @property
    def after(self) -> str | None:
        """The tree after it; None while it is open."""
        return self._message.after

    @property
    def state(self) -> MessageState:
        """Whether it is open, active, undone or archived."""
        return self._message.state

    @property
    def branch(self) -> str | None:
        """The branch that it is archived on."""
        return self._message.branch

    @property
    def skipped(self) -> list[Skipped]:
        """What of it is not protected."""
        return self._message.skipped

    @property
    def patch(self) -> Patch:
        """What it changed; empty while it is open."""
        return self._message.patch

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return self._message.to_dict()


class StepHandle:
    """A step in the making. After the body it answers like the finished `Step`."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def finish(self, step: Step) -> None:
        """Take over what was recorded at the end."""
        self._step = step

    @property
    def value(self) -> Step:
        """The step as it is recorded now."""
        return self._step

    @property
    def name(self) -> str:
        """Its name."""
        return self._step.name

    @property
    def before(self) -> str:
        """The tree before it."""
        return self._step.before

    @property
    def after(self) -> str | None:
        """The tree after it; None while it is open."""
        return self._step.after

    @property
    def patch(self) -> Patch:
        """What it changed; empty while it is open."""
        return self._step.patch

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return self._step.to_dict()

"""What can go wrong between an engine and the manager, as exceptions with names.

Each says what happened, why, and what mends it. An adapter that only wants to know "no cache this
time" catches `OrbitError` and computes; nothing here is a reason for an engine to stop.
"""

from orbitkv.io.wire import ChannelRefusal, ErrorReply


class OrbitError(Exception):
    """Base of everything that the client raises for the world's sake."""

    retry_helps = False
    """Whether the same call can succeed later without a change by the caller."""

    def __init__(self, sentence: str) -> None:
        """`sentence`: what happened, why, and which setting or command mends it."""
        super().__init__(sentence)


class ManagerUnavailable(OrbitError):
    """Nobody answers at the socket. The client tries again by itself, at growing intervals."""

    retry_helps = True


class NotWelcome(OrbitError):
    """A manager answers, and does not talk to this client: another ABI, another user, no room."""

    def __init__(self, sentence: str, refusal: int, retry_helps: bool) -> None:
        super().__init__(sentence)
        self.refusal = refusal
        self.retry_helps = retry_helps


class ConnectionLost(OrbitError):
    """The connection ended in the middle of a call; the next call makes a new one."""

    retry_helps = True

    def __init__(self, sentence: str, *, sent: bool = True) -> None:
        """`sent`: whether the manager may have received the request."""
        super().__init__(sentence)
        self.sent = sent


class ChannelPoisoned(ConnectionLost):
    """One end sent what the other could not read. Nothing of it was taken for an answer."""


class CallTimedOut(OrbitError):
    """No answer in time. The manager may still act on the request; its late answer is dropped."""

    retry_helps = True


class ClientClosed(OrbitError):
    """The client was closed by its owner."""


class LimitExceeded(OrbitError):
    """The call asks for more than the channel or this client's settings allow. Nothing was sent."""


class SaveGivenUp(OrbitError):
    """The connection that this save was begun on is gone, and the save with it."""


class RequestRefused(OrbitError):
    """The manager understood and said no; nothing changed there."""

    def __init__(self, reply: ErrorReply) -> None:
        super().__init__(reply.sentence)
        self.refusal = reply.refusal
        """A `Refusal` or a `ChannelRefusal`."""
        self.name = reply.name
        self.retry_helps = reply.retry_helps


class HandleRefused(RequestRefused):
    """The operation or lease handle opens nothing at this manager."""


class OtherIncarnation(HandleRefused):
    """The handle is of an earlier run of the manager, which has been restarted since."""


def refused(reply: ErrorReply) -> RequestRefused:
    match reply.refusal:
        case ChannelRefusal.OTHER_INCARNATION:
            return OtherIncarnation(reply)
        case ChannelRefusal.INVALID_HANDLE:
            return HandleRefused(reply)
        case _:
            return RequestRefused(reply)

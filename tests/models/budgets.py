"""Bytes that may be reserved: what an operation costs, who is next in line, and what nobody may exceed."""

from orbitkv.events.config import KernelConfig
from tests.models.books import Books
from tests.models.rows import Operation
from tests.models.sharing import marginal_bytes
from tests.models.story import require


def settings(books: Books) -> KernelConfig:
    assert books.config is not None, "the first record brings the configuration"
    return books.config


def budget_limit(books: Books) -> int:
    """The most that one demand may reserve at all."""
    return min(settings(books).query_budget_bytes, settings(books).instance_query_budget_bytes)


def speculative_shares(books: Books) -> tuple[int, int]:
    """What hints may reserve: over all instances, and each instance's."""
    config = settings(books)
    divisor = config.speculative_divisor
    return config.query_budget_bytes // divisor, config.instance_query_budget_bytes // divisor


def cost(books: Books, operation: Operation) -> int:
    """Bytes that it would have to reserve now."""
    if settings(books).charge_shared:
        return marginal_bytes(books, operation)
    return operation.asked_charge_bytes


def speculative_bytes(books: Books, instance: int | None = None) -> int:
    """What hints hold of their share: one that has ended only its own reads in flight."""
    return sum(
        operation.charge_bytes
        if operation.end is None or settings(books).charge_shared
        else books.own_reads_bytes(operation.number)
        for operation in books.operations.values()
        if operation.warm and (instance is None or operation.instance == instance)
    )


def ahead(books: Books, operation: Operation) -> bool:
    """Somebody of its own instance waits already, or somebody whom nobody may pass."""
    mine = [other for other in books.waiting_operations() if other.instance == operation.instance]
    return bool(mine or first_in_line(books))


def first_in_line(books: Books) -> list[Operation]:
    """Waiting demands that nobody may pass: an instance's own limit stops only that instance's demands."""
    stopped: set[int] = set()
    line = []
    for operation in books.waiting_operations():
        reserved = books.reserved_bytes(operation.instance) + cost(books, operation)
        if reserved > settings(books).instance_query_budget_bytes:
            stopped.add(operation.instance)
        if operation.instance not in stopped:
            line.append(operation)
    return line


def fits(books: Books, operation: Operation) -> bool:
    """Whether the demand would fit the global budget now."""
    total = books.reserved_bytes() + cost(books, operation)
    return total <= settings(books).query_budget_bytes


def within_budgets(books: Books) -> None:
    config = settings(books)
    share, instance_share = speculative_shares(books)
    total, warm = books.reserved_bytes(), books.reserved_bytes(warm=True)
    require(0 <= total <= config.query_budget_bytes, "the global query budget holds", reserved=total)
    require(0 <= warm <= share, "hints keep within their share of the global budget", reserved=warm)
    for number in books.instances:
        mine, warm = books.reserved_bytes(number), books.reserved_bytes(number, warm=True)
        holds = 0 <= mine <= config.instance_query_budget_bytes
        require(holds, "an instance's query budget holds", instance=number, reserved=mine)
        holds = 0 <= warm <= instance_share
        require(
            holds, "hints keep within their share of an instance's budget", instance=number, reserved=warm
        )

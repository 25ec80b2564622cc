"""Options of the whole test suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-rewrite",
        action="store_true",
        help="Write what the kernel does now into tests/golden/*.txt instead of comparing with it.",
    )

"""The command line in this process."""

from collections.abc import Callable

import pytest

from transduce import cli

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["bench", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run

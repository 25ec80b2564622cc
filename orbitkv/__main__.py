"""The command line: serve, demo, replay, admin.

It reads arguments and hands over. What a command needs is imported when it runs, so that `--version` and
`--help` come at once. A user's mistake ends with a message and exit code 2, never with a traceback.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from orbitkv import __version__

MISTAKE = 2
"""Exit code for what the user can mend: arguments, settings, paths, a manager that is not there."""

MENDABLE = frozenset(
    {
        "orbitkv.adapters.client_errors.OrbitError",
        "orbitkv.adapters.errors.AdapterError",
        "orbitkv.config.errors.ConfigError",
        "orbitkv.events.frame.LogError",
        "orbitkv.io.errors.StoreError",
        "orbitkv.io.http.EndpointError",
        "orbitkv.io.listener.ListenError",
        "orbitkv.manager.shell.recovery.UnreadablePredecessor",
    }
)
"""Exceptions that tell such a mistake. By name, so that nothing is imported for the sake of its errors."""


class _LazyGroup(click.Group):
    """Builds some commands only when asked for: their options take a while to load."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.builders: dict[str, Callable[[], click.Command]] = {
            "demo": _demo_command,
            "serve": _serve_command,
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.builders})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        build = self.builders.get(cmd_name)
        return build() if build else super().get_command(ctx, cmd_name)


def _demo_command() -> click.Command:
    from orbitkv.adapters.demo import command

    return command


def _serve_command() -> click.Command:
    from orbitkv.config.flags import setting_options

    def serve(config_file: Path | None, print_config: bool, **flags: object) -> None:
        from orbitkv.config import load, render

        with _mistakes_told():
            loaded = load(config_file, os.environ, flags)
            if print_config:
                click.echo(render(loaded.config, loaded.origins), nl=False)
                return
            from orbitkv.serve import serve as run

            run(loaded.config)

    return click.Command(
        "serve",
        callback=serve,
        params=[
            click.Option(["--config", "config_file"], type=click.Path(path_type=Path), help="TOML file."),
            click.Option(["--print-config"], is_flag=True, help="Print the settings in force, and exit."),
            *setting_options(),
        ],
        help="Run the manager until SIGTERM or SIGINT.\n\nEach setting can be a flag, ORBITKV_NAME in the "
        "environment, or a key of the TOML file; flags win over the environment, that over the file.",
        short_help="Run the manager.",
    )


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="orbitkv", message="%(prog)s %(version)s")
def cli() -> None:
    """OrbitKV: an event-sourced KV-cache manager for LLM engines."""


@cli.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def replay(arguments: tuple[str, ...]) -> NoReturn:
    """Ask a log: fold, verify and more; its own process takes over.

    The manager's code is not loaded there: a log is judged by events and kernel alone.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    home = Path(__file__).parents[1]
    environment = dict(os.environ)
    if (home / "pyproject.toml").exists():
        # A checkout that is not installed: -P below takes the working directory off the path.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(home), environment.get("PYTHONPATH"))))
    os.execve(sys.executable, [sys.executable, "-P", "-m", "replay", *arguments], environment)


@cli.group()
@click.option("--socket-path", help="Socket of the manager; default: as `orbitkv serve` would choose it.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="The manager's TOML file.")
@click.pass_context
def admin(context: click.Context, socket_path: str | None, config_file: Path | None) -> None:
    """Ask a running manager something."""
    from orbitkv.config import load

    with _mistakes_told():
        context.obj = load(config_file, os.environ, {"socket_path": socket_path}).config.socket_path


@admin.command()
@click.pass_obj
def status(socket_path: Path) -> None:
    """Print the manager's state as JSON."""
    from orbitkv.adapters.operator import OperatorClient

    with _mistakes_told(), closing(OperatorClient(socket_path)) as manager:
        click.echo(manager.status())


@admin.command("drop-dram")
@click.pass_obj
def drop_dram(socket_path: Path) -> None:
    """Evict every page from DRAM that nothing holds; the SSD keeps its pages."""
    from orbitkv.adapters.operator import OperatorClient

    with _mistakes_told(), closing(OperatorClient(socket_path)) as manager:
        click.echo(f"dropped {manager.drop_dram()} pages")


@admin.command("release-process")
@click.argument("process", type=click.IntRange(min=0))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def release_process(socket_path: Path, process: int, yes: bool) -> None:
    """State that PROCESS (as `admin status` numbers it) is gone and can no longer read a page.

    Needed only where the host cannot tell the manager itself. Wrong, it lets memory be reused under a
    reader.
    """
    from orbitkv.adapters.operator import OperatorClient

    if not yes:
        click.confirm(f"Is process {process} gone for certain?", abort=True)
    with _mistakes_told(), closing(OperatorClient(socket_path)) as manager:
        manager.release_process(process)
        click.echo(f"released process {process}")


@contextmanager
def _mistakes_told() -> Iterator[None]:
    """Turn what the user can mend into its message and exit code 2; let everything else through."""
    try:
        yield
    except Exception as error:
        messages = list(_messages(error))
        if not messages:
            raise
        for message in messages:
            click.echo(message, err=True)
        sys.exit(MISTAKE)


def _messages(error: BaseException) -> Iterator[str]:
    """The messages of a mistake, or of several told by tasks that ran side by side; none for a fault."""
    if isinstance(error, BaseExceptionGroup):
        parts = [list(_messages(part)) for part in error.exceptions]
        if all(parts):
            yield from dict.fromkeys(message for part in parts for message in part)
    elif any(f"{kind.__module__}.{kind.__qualname__}" in MENDABLE for kind in type(error).__mro__):
        yield str(error)


def main() -> NoReturn:
    cli(prog_name="orbitkv")
    raise AssertionError("click ends the process")


if __name__ == "__main__":
    main()

"""What every operator command shares: the options that find a core, `--json`, and how errors end a command."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, overload

import click
import uvloop
from quintet_client import Client, Credentials, QuintetError, UnavailableError

from quintet_cli.commands import exit_codes
from quintet_cli.commands.output import Output

TARGET = "127.0.0.1:50051"

Body = Callable[..., Awaitable[int | None]]
Prepare = Callable[..., dict[str, Any]]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.option(
        "--target",
        default=TARGET,
        show_default=True,
        envvar=("QUINTET_TARGET", "QUINTET_CORE_TARGET"),
        show_envvar=True,
        help="The core: host:port, or unix:/path/to/socket.",
    ),
    click.option("--namespace", default="default", show_default=True, envvar="QUINTET_NAMESPACE", show_envvar=True),
    click.option(
        "--token-file",
        type=_FILE,
        envvar=("QUINTET_TOKEN_FILE", "QUINTET_CORE_TOKEN_PATH"),
        show_envvar=True,
        help="File that holds the bearer token.",
    ),
    click.option(
        "--ca-file",
        type=_FILE,
        envvar=("QUINTET_CA_FILE", "QUINTET_CORE_CA_FILE"),
        show_envvar=True,
        help="Certificates (PEM) to trust; turns TLS on.",
    ),
    click.option("--tls", is_flag=True, help="Use TLS, trusting the system's certificates."),
    click.option("--cert-file", type=_FILE, envvar="QUINTET_CORE_CERT_FILE", help="Certificate (PEM), for mutual TLS."),
    click.option("--key-file", type=_FILE, envvar="QUINTET_CORE_KEY_FILE", help="The key of that certificate."),
    click.option(
        "--patience",
        type=click.FloatRange(min=0.1),
        default=5.0,
        show_default=True,
        help="Seconds to wait for a core that is away.",
    ),
    click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of tables."),
)


@overload
def connected(body: Body) -> Callable[..., None]: ...


@overload
def connected(*, prepare: Prepare) -> Callable[[Body], Callable[..., None]]: ...


def connected(body: Body | None = None, *, prepare: Prepare | None = None) -> Callable[..., Any]:
    """Makes coroutine `body(client, output, **options)` the body of a click command.

    `prepare` is called before there is a connection, with those options that it names; what it returns replaces
    options. It may raise a click.UsageError.

    Its result is the exit code (None: 0). A `QuintetError` becomes one sentence on stderr and an exit code
    (`quintet_cli.commands.exit_codes`), with `--json` one object {"error", "message", "retryable", ...}.
    """

    if body is None:
        return functools.partial(_connected, prepare=prepare)
    return _connected(body, prepare)


def _connected(body: Body, prepare: Prepare | None) -> Callable[..., None]:

    @functools.wraps(body)
    def command(
        target: str,
        namespace: str,
        token_file: Path | None,
        ca_file: Path | None,
        tls: bool,
        cert_file: Path | None,
        key_file: Path | None,
        patience: float,
        as_json: bool,
        **options: Any,
    ) -> None:
        if prepare is not None:
            wanted = inspect.signature(prepare).parameters
            options |= prepare(**{name: value for name, value in options.items() if name in wanted})
        credentials = Credentials(
            root_certificates=_content(ca_file),
            certificate_chain=_content(cert_file),
            private_key=_content(key_file),
            tls=tls,
            token_path=token_file,
        )
        client = Client(
            target, namespace=namespace, credentials=credentials, name="quintet command line", patience_s=patience
        )
        sys.exit(_run(body, client, Output(json=as_json), options))

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _content(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None


def _run(body: Body, client: Client, output: Output, options: dict[str, Any]) -> int:
    async def main() -> int:
        async with client:
            return await body(client, output, **options) or exit_codes.DONE

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except QuintetError as error:
        _tell(error, client.target, output)
        return exit_codes.of_error(error)
    except BrokenPipeError:
        return exit_codes.DONE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


def _tell(error: QuintetError, target: str, output: Output) -> None:
    if output.json:
        record = {"error": error.reason, "message": error.message, "retryable": error.retryable}
        output.record(record | ({"metadata": error.metadata} if error.metadata else {}))
    elif isinstance(error, UnavailableError):
        click.echo(f"quintet: no answer from a core at {target}: {error.message}", err=True)
        click.echo("Is it running? Start one with `quintet up`, or say where it is with --target.", err=True)
    else:
        click.echo(f"quintet: {error.message or error.reason} ({error.reason})", err=True)

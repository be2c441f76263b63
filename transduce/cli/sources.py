"""Where flags get values besides the command line: a YAML file and the environment. Complaints name which of them.

A flag's variable is the command's prefix and the flag's name, as click has it; here is told which variables with the
prefix are none. Knows no command.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperOption

from transduce.config import variables
from transduce.errors import ConfigError

if TYPE_CHECKING:
    from typer._click import Context, Parameter


KUBERNETES = re.compile(r"\w+_SERVICE_(HOST|PORT\w*)=.*|\w+_PORT_\d+_(TCP|UDP|SCTP)\w*=.*|\w+_PORT=(tcp|udp|sctp)://.*")
"""What Kubernetes sets in every pod for each service of the namespace, of whatever name."""

LINKED = ", which Kubernetes sets for a service of that name; give the flag, or the pod enableServiceLinks: false"


class Command(TyperCommand):
    """A command that says where a value that it refuses is from, and refuses variables that are none of its flags'."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Raises ConfigError for such a variable, and for one without a value."""
        if not {*ctx.help_option_names} & {*args}:
            _check_environment(ctx)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if error.param is not None and (found := _origin(ctx, error.param)):
                error.param_hint = f"{error.param.get_error_hint()} ({found[0]!r} from {found[1]})"
            raise

    def invoke(self, ctx: "Context") -> Any:
        """Raises the function's ConfigErrors, which begin with a flag's name, with where its value is from."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            name, *_ = re.split(r"\W", str(error), maxsplit=1)
            if not (found := next((_origin(ctx, param) for param in self.params if param.name == name), None)):
                raise
            raise ConfigError(f"{error} (from {found[1]})") from error


def read(context: typer.Context, file: Path | None) -> Path | None:
    """A callback of the flag --config: make the file's values the flags' defaults."""
    if file is not None:
        context.default_map = dict(_defaults(context, file))
    return file


def _defaults(context: "Context", file: Path) -> Iterator[tuple[str, Any]]:
    params = [param for param in context.command.params if param.name != "config"]
    flags = {key.strip("-").replace("-", "_"): param for param in params for key in (*param.opts, param.name or "")}
    for name, value in _mapping(file).items():
        param = flags.get(name.replace("-", "_"))
        if param is None or param.name is None:
            instead = _instead(context, name, [flag.replace("_", "-") for flag in flags])
            raise typer.BadParameter(f"{str(file)!r}: there is no flag --{name}; {instead}")
        several = getattr(param, "multiple", False)
        _check_form(f"{str(file)!r}: {name}", value, several)
        yield param.name, [value] if several and not isinstance(value, list) else value


def _mapping(file: Path) -> dict[str, Any]:
    """What the file holds, each value as the text that it is there, as on a command line."""
    import yaml

    try:
        values = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise typer.BadParameter(f"cannot read {str(file)!r}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise typer.BadParameter(f"{str(file)!r} holds no flags; give lines such as port: 8000")
    return values


def _check_form(where: str, value: object, several: bool) -> None:
    texts = value if several and isinstance(value, list) else [value]
    if not texts or "" in texts:
        raise typer.BadParameter(f"{where} has no value; give one, or leave the line out")
    if not all(isinstance(text, str) for text in texts):
        raise typer.BadParameter(f"{where}: give {'a value, or a list of them' if several else 'one value'}")


def _check_environment(context: "Context") -> None:
    prefix = f"{context.auto_envvar_prefix}_"
    known = {name for param in context.command.params if (name := _variable(context, param))}
    for name, value in variables(prefix).items():
        if name in known and not value.strip():
            raise ConfigError(f"{name} is empty; give it a value, or unset it")
        if name not in known and not KUBERNETES.fullmatch(f"{name}={value}"):
            flags = sorted(each.removeprefix(prefix) for each in known)
            instead = _instead(context, name.removeprefix(prefix), flags, prefix)
            raise ConfigError(f"{name} is no flag's variable; {instead}")


def _variable(context: "Context", param: "Parameter") -> str | None:
    """What the parameter may be set by; arguments have none unless it is given one."""
    if isinstance(param.envvar, str):
        return param.envvar
    return f"{context.auto_envvar_prefix}_{param.name}".upper() if isinstance(param, TyperOption) else None


def _origin(context: "Context", param: "Parameter") -> tuple[Any, str] | None:
    """The parameter's value as it was given, and the variable or the file that gave it; None for other sources."""
    source = context.get_parameter_source(param.name or "")
    match source.name if source is not None else None, _variable(context, param):
        case "DEFAULT_MAP", _:
            return context.lookup_default(param.name or ""), repr(str(context.params["config"]))
        case "ENVIRONMENT", str(name):
            value = variables(name)[name]
            return value, name + (LINKED if KUBERNETES.fullmatch(f"{name}={value}") else "")
        case _:
            return None


def _instead(context: "Context", name: str, known: Sequence[str], prefix: str = "") -> str:
    """A way out of a name that does not exist."""
    near = get_close_matches(name, known) or [each for each in known if name in each]
    if not near:
        return f"{context.command_path} --help lists them"
    return f"did you mean {' or '.join(prefix + each for each in near)}?"

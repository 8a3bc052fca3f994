"""The options of an entry point by all their names: those in its signature, and those that it takes besides.

picows and websockets have different names for the same option. The signature of a client has those of the library that
it follows; it takes the others as well. Which of two names a call has used is known only before Python binds its
arguments, so a decorator looks at them, and refuses what is no option.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar

__all__ = [
    "NOT_GIVEN",
    "OF_ASYNCIO",
    "OF_PICOWS",
    "OF_WEBSOCKETS",
    "Fixed",
    "NotGiven",
    "hints_at_fields",
    "names_of",
    "takes_options",
    "unexpected",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Options = TypeVar("Options")

# Options of other libraries, requests among them, and the option that does the same here.
_ELSEWHERE = {
    "timeout": "open_timeout",
    "header": "additional_headers",
    "headers": "additional_headers",
    "heartbeat": "ping_interval",
    "verify": "ssl",
    "verify_ssl": "ssl",
    "sslopt": "ssl",
}

# Second names, and the names in the signature: for the clients that follow websockets, and for the one that follows
# picows.
OF_ASYNCIO = {"source_address": "local_addr"}
OF_PICOWS = {
    "ssl_context": "ssl",
    "proxy_ssl_context": "proxy_ssl",
    "max_frame_size": "max_size",
    "extra_headers": "additional_headers",
    "logger_name": "logger",
}
OF_WEBSOCKETS = {name: second for second, name in OF_PICOWS.items()}


class NotGiven(Enum):
    """The type of NOT_GIVEN."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return "<not given>"


# The default of an option whose absence means something that no value of it does.
NOT_GIVEN: Final = NotGiven.NOT_GIVEN


def takes_options(
    called: str,
    second_names: Mapping[str, str],
    *,
    besides: Iterable[str] = (),
    alternatives: tuple[Iterable[str], Iterable[str]] = ((), ()),
    objects: Iterable[type] = (),
) -> Callable[[Function], Function]:
    """Decorate a function that has ``**kwargs``: it takes options by their second names, too, and refuses all others.

    :param called: the name of the function in errors
    :param second_names: the second name of an option, and its own; a call that has both raises TypeError
    :param besides: the function looks for these in its ``kwargs``
    :param alternatives: two groups of options of which a call may have only one
    :param objects: classes of options. Their fields were never options of their own, and an error says where they are
    """
    one, other = (frozenset(group) for group in alternatives)
    grouped = one | other

    def decorate(function: Function) -> Function:
        code = function.__code__
        own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        all_names = frozenset([*own, *besides, *second_names]) - {"self"}
        plain = all_names - grouped - second_names.keys()

        def translate(options: dict[str, Any]) -> dict[str, Any]:
            if options.keys() <= plain:
                return options
            for name in [name for name in options if name not in plain]:
                if name not in all_names:
                    raise unexpected(called, name, all_names, objects)
                first = second_names.get(name)
                if first is None:
                    continue
                if first in options:
                    raise TypeError(f"{name} is another name of {first}: give one of them")
                options[first] = options.pop(name)
            given = [[name for name in options if name in group] for group in (one, other)]
            if all(given):
                raise TypeError(f"{given[0][0]} cannot be combined with {given[1][0]}: give one of them")
            return options

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            return function(*args, **translate(options))

        @functools.wraps(function)
        async def call_async(*args: Any, **options: Any) -> Any:
            return await function(*args, **translate(options))

        wrapper: Any = call_async if inspect.iscoroutinefunction(function) else call
        wrapper.option_names = all_names
        return wrapper  # type: ignore[no-any-return]

    return decorate


def names_of(function: Any) -> frozenset[str]:
    """All names of the options of an entry point."""
    if isinstance(function, type):
        function = vars(function)["__init__"]
    names: frozenset[str] = function.option_names
    return frozenset(name for name in names if not name.startswith("_"))


def hints_at_fields(cls: type[Options]) -> type[Options]:
    """Decorate a dataclass of options: a call with a name that is no field raises TypeError with a hint."""
    init: Any = cls.__init__
    names = frozenset(cls.__dataclass_fields__)  # type: ignore[attr-defined]

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        for name in options.keys() - names:
            raise unexpected(cls.__name__, name, names)
        init(self, *args, **options)

    cls.__init__ = checked  # type: ignore[method-assign]
    return cls


def unexpected(called: str, name: str, names: Iterable[str], objects: Iterable[type] = ()) -> TypeError:
    """The error for what is no option, with a hint: where it belongs, or which option it resembles.

    :param names: all options
    """
    for kind in objects:
        if name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
            where = kind.__name__
            return TypeError(f"{name} is a field of {where}: {where.lower()}={where}({name}=...)")
    import difflib  # takes a millisecond

    public = sorted(n for n in names if not n.startswith("_"))
    near = (
        [_ELSEWHERE[name]] if _ELSEWHERE.get(name) in public else difflib.get_close_matches(name, public, 1)
    )
    near = near or [n for n in public if n.startswith(name)]
    hint = f". Did you mean {near[0]!r}?" if near else ""
    return TypeError(f"{called}() got an unexpected keyword argument {name!r}{hint}")


class Fixed:
    """An option of ``connect()`` that is no attribute, and that no assignment changes: it would have no effect, so it
    raises. It costs nothing where other attributes are assigned.

    :param got: what an error says of the option, after its name, when it is looked up
    :param assigned: the same when it is assigned
    """

    def __init__(self, got: str, assigned: str) -> None:
        self._got, self._assigned = got, assigned

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(f"{self._name} is an argument of connect(), {self._got}")

    def __set__(self, instance: object, value: object) -> NoReturn:
        raise AttributeError(f"{self._name} {self._assigned}")

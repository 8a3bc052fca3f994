"""Keyword arguments that a function takes by more than one name, or passes on: told by its signature, checked once.

picows and websockets have different names for the same option. Each face keeps those of the library that it follows and
takes the others as well. Which of two names a call has used is known only before Python binds its arguments, so a
decorator looks at them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar

__all__ = ["NOT_GIVEN", "Fixed", "NotGiven", "keywords"]

Function = TypeVar("Function", bound=Callable[..., Any])


class NotGiven(Enum):
    """The type of NOT_GIVEN."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return "<not given>"


# The default of an option whose absence means something that no value of it does.
NOT_GIVEN: Final = NotGiven.NOT_GIVEN


def keywords(
    aliases: Mapping[str, str],
    *,
    passed_on: Iterable[str] = (),
    alternatives: tuple[Iterable[str], Iterable[str]] = ((), ()),
) -> Callable[[Function], Function]:
    """Decorate a function that has ``**kwargs``: take options by other names, too, and show all in its signature.

    :param aliases: the other name of an option, and its own; a call that has both raises TypeError
    :param passed_on: what the function looks for in its ``kwargs``
    :param alternatives: two groups of options of which a call may have only one
    """
    one, other = (tuple(group) for group in alternatives)
    seldom = frozenset([*aliases, *one, *other])

    def translate(options: dict[str, Any]) -> dict[str, Any]:
        if seldom.isdisjoint(options):
            return options
        for alias in [name for name in options if name in aliases]:
            name = aliases[alias]
            if name in options:
                raise TypeError(f"{alias} is another name of {name}: give one of them")
            options[name] = options.pop(alias)
        given = [[name for name in group if name in options] for group in (one, other)]
        if all(given):
            raise TypeError(f"{given[0][0]} cannot be combined with {given[1][0]}: give one of them")
        return options

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            return function(*args, **translate(options))

        @functools.wraps(function)
        async def call_async(*args: Any, **options: Any) -> Any:
            return await function(*args, **translate(options))

        wrapper: Any = call_async if inspect.iscoroutinefunction(function) else call
        wrapper.__signature__ = _signature(inspect.signature(function), passed_on, aliases)
        return wrapper  # type: ignore[no-any-return]

    return decorate


def _signature(
    signature: inspect.Signature, passed_on: Iterable[str], aliases: Mapping[str, str]
) -> inspect.Signature:
    """With a parameter for each keyword instead of ``**kwargs``."""
    shown = {
        name: parameter for name, parameter in signature.parameters.items() if parameter.kind is not _KWARGS
    }
    for name in passed_on:
        shown[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=NOT_GIVEN)
    for alias, name in aliases.items():
        shown[alias] = shown[name].replace(name=alias)
    return signature.replace(parameters=list(shown.values()))


_KWARGS = inspect.Parameter.VAR_KEYWORD


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

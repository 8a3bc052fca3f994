"""Which of wsfast's classes an exception is of. Where websockets is imported it is of a class with two bases."""

from __future__ import annotations

import wsfast.exceptions


def kind_of(error: BaseException | None) -> type:
    """The class of wsfast's, or, if it is none of wsfast's exceptions, its type."""
    ours = vars(wsfast.exceptions).values()
    return next((base for base in type(error).__mro__ if base in ours), type(error))

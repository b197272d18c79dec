"""The public names of a package: what the site's reference must show."""

import inspect
from types import ModuleType


def public_names(package: ModuleType) -> set[str]:
    """Return the functions and classes of a package that are its own."""
    if hasattr(package, "__all__"):
        return {name for name in package.__all__ if callable(getattr(package, name))}
    own = {name: thing for name, thing in vars(package).items() if inspect.isfunction(thing) or inspect.isclass(thing)}
    return {name for name, thing in own.items() if thing.__module__.startswith(package.__name__) and name[0] != "_"}

"""The public names of a package: what the site's reference must show."""

import inspect
from types import ModuleType


def public_names(package: ModuleType) -> set[str]:
    """Return the functions and classes of a package that are its own."""
    things = {name: getattr(package, name) for name in package.__all__}
    own = {name: thing for name, thing in things.items() if inspect.isfunction(thing) or inspect.isclass(thing)}
    return {name for name, thing in own.items() if thing.__module__.startswith(package.__name__)}

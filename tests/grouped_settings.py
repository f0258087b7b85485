"""Parameters by name, as tests vary them one by one, in the groups that estimators take."""

from dataclasses import fields

from crcen import Inputs, Schedule, Search


def grouped(**settings):
    """The same with what belongs to a group in that group: ``tol=0`` becomes ``schedule=Schedule(tol=0)``."""
    for name, kind in (("schedule", Schedule), ("inputs", Inputs), ("search", Search)):
        own = {field.name: settings.pop(field.name) for field in fields(kind) if field.name in settings}
        if own:
            settings[name] = kind(**own)
    return settings

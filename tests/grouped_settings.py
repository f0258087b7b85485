"""Settings by name, put into the groups that the estimators take: tests vary them one at a time."""

from dataclasses import fields, replace

from crcen import Calibration, Inputs, Schedule, Search

__all__ = ["calibrated", "grouped"]


def grouped(**settings):
    """The same with what belongs to a group in that group: ``tol=0`` becomes ``schedule=Schedule(tol=0)``."""
    groups = (("schedule", Schedule), ("search", Search), ("calibration", Calibration), ("encoding", Inputs))
    for name, kind in groups:
        names = [field.name for field in fields(kind) if field.name in settings]
        if name == "encoding" and isinstance(settings.get(name), Inputs):
            names.remove(name)
        if names and names != ["encoding"]:
            own = {field: settings.pop(field) for field in names}
            before = settings.get(name)
            settings[name] = replace(before, **own) if isinstance(before, kind) else kind(**own)
            vars(settings[name])["given"] = own
    return settings


def calibrated(settings, **defaults):
    """Settings with the parts of the calibration that they do not state taken from ``defaults``."""
    settings = grouped(**settings)
    given = settings.get("calibration")
    if given is None or hasattr(given, "given"):
        settings["calibration"] = Calibration(**defaults | getattr(given, "given", {}))
    return settings

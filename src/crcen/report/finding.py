"""Finding: the outcome of one check, with its measure, its limit and what to try."""

from dataclasses import asdict, dataclass

__all__ = ["Finding", "finding"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Parameters
    ----------
    code : str
        Stable: CRC001 and so on.
    title : str
        What would be wrong.
    status : str
        "warning", "passed", or "unknown" where the check cannot be made.
    measured : str
        What was found; where it is unknown, why.
    limit : str
        From where on it is a warning.
    advice : str
        What to try.
    """

    code: str
    title: str
    status: str
    measured: str
    limit: str
    advice: str

    @property
    def sentence(self) -> str:
        """The outcome in words: what is wrong and what to try, what was measured, or why nobody can say."""
        if self.status == "warning":
            return f"{self.title}: {self.measured}. {self.advice}"
        answer = "No" if self.status == "passed" else "Cannot be told"
        return f"{self.title}? {answer}: {self.measured}."

    def to_dict(self) -> dict[str, str]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "sentence": self.sentence}


def finding(code: str, title: str, is_warning: bool | None, measured: str, limit: str, advice: str) -> Finding:
    """A finding that warns (True), passes (False) or cannot be told (None)."""
    status = {True: "warning", False: "passed", None: "unknown"}[is_warning]
    return Finding(code, title, status, measured, limit, advice)

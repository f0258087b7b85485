"""The members that a committee knows by name. A new member is a file in this folder and an entry in `MEMBERS`."""

from crcen.exceptions import InvalidParameter, MissingExtra
from crcen.models.members.catboost_trees import CatBoostTrees
from crcen.models.members.external import External
from crcen.models.members.forest import Forest
from crcen.models.members.lightgbm_trees import LightGBMTrees, RandomTrees
from crcen.models.members.member import MemberKind
from crcen.models.members.networks import Networks
from crcen.theory.rows import Estimator

# In the order of the leaderboard.
MEMBERS: dict[str, MemberKind] = {
    kind.name: kind for kind in (Networks(), LightGBMTrees(), RandomTrees(), CatBoostTrees(), Forest())
}


def default_members(n_rows: int, effort: str) -> tuple[list[MemberKind], list[str]]:
    """The members of a committee where none were asked for, and notes on those that are not installed."""
    kinds = [kind for kind in MEMBERS.values() if effort in kind.efforts]
    wanted = [kind for kind in kinds if kind.max_rows is None or n_rows <= kind.max_rows]
    notes = [
        f"{kind.name} is not installed: the committee goes without it; pip install 'crcen[{kind.extra}]' adds it"
        for kind in wanted
        if not kind.is_installed()
    ]
    return [kind for kind in wanted if kind.is_installed()], notes


def member_kind(member: str | Estimator) -> MemberKind:
    """The kind of a member that was asked for: a name of `MEMBERS` or a classifier."""
    if isinstance(member, str):
        if member not in MEMBERS:
            raise InvalidParameter(f"members must be of {list(MEMBERS)} or classifiers: got {member!r}.")
        kind = MEMBERS[member]
        if not kind.is_installed():
            raise MissingExtra(f"{kind.package} is not installed; get it with: pip install 'crcen[{kind.extra}]'")
        return kind
    if not hasattr(member, "fit") or not hasattr(member, "predict_proba"):
        raise InvalidParameter(
            f"a member must be one of {list(MEMBERS)} or a classifier with predict_proba: got {type(member).__name__}."
        )
    return External(member)

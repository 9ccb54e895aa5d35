"""Who the patient is: one id in several spellings, images of which nobody says it, and what a split makes of them."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedmed.data.patients import folded
from fedmed.data.prepare.case import Checked
from fedmed.errors import DataError

MANY = 10  # images a prefix: more are a ward, a class or a year, and no patient
COUNTED = r"(?:scan|visit|part|series|ser|view|img|image|im|frontal|lateral|lat|pa|ap|pre|post|day|t|v)[-_]?\d*"


def unite_patients(cases: Sequence[Checked]) -> list[str]:
    """Give ids that differ in blanks, in capitals or in leading zeros one patient; return a line about each.

    Two spellings of one patient could train and test, while two patients who are taken for one only share a list.
    """
    spellings: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        if case.patient and case.patient_said:
            spellings[case.patient_key or folded(case.patient)].add(case.patient)
    several = {key: sorted(names) for key, names in spellings.items() if len(names) > 1}
    one = {name: names[0] for names in several.values() for name in names}
    for case in cases:
        if case.patient_said:
            case.patient = one.get(case.patient, case.patient)
    return [
        f"{' and '.join(map(repr, names))} differ in blanks, capitals or leading zeros: counted as one patient"
        for names in several.values()
    ]


def patient_warnings(cases: Sequence[Checked], what: str, remedy: str) -> list[str]:
    """What stands on top of a report: of how many images nobody knows the patient, or that all are of one.

    Args:
        cases: with their lists.
        what: one of them is called, such as "image".
        remedy: how to say who the patient is.
    """
    used = [case for case in cases if case.lists]
    unsaid = [case for case in used if not case.patient_said]
    said = {case.patient for case in used if case.patient_said}
    warnings = []
    if unsaid and len({name for case in used for name in case.lists}) > 1:
        known = f"{len(unsaid)} of {len(used)} {what}s: nobody says who the patient is"
        warnings.append(
            f"{known}, so each {what} counts as a patient of its own; scans of one patient may train and test. {remedy}"
        )
    if len(said) == 1 and not unsaid and len(used) > 1:
        text = f"all {len(used)} {what}s are of one patient, '{said.pop()}', and so in one list"
        warnings.append(f"{text}. If there are several patients: {remedy}")
    return warnings


def refuse_shared_prefixes(cases: Iterable[Checked], folder: Path, what: str, remedy: str) -> None:
    """Refuse a split by files whose names show that several are of one patient, such as p1_0 and p1_1.

    Names without an id, such as covid_1 and covid_2, and folders of many images, such as 2019/0001, show nothing.

    Raises:
        DataError: names two of them, and how to say who the patient is.
    """
    keys = sorted(
        case.case.rsplit("/", 1)[-1].split(".", 1)[0] for case in cases if case.usable and not case.patient_said
    )
    parts = [re.split(r"[-_ ](?=[^-_ ]*$)", key) for key in keys]
    groups = Counter(prefix for prefix, *rest in parts if rest and _is_patient(prefix, rest[0]))
    shared = [prefix for prefix, count in groups.items() if count > 1]
    if len(groups) > 1 and shared and groups.total() <= MANY * len(groups):
        first, second, *_ = [key for key in keys if re.match(rf"{re.escape(shared[0])}[-_ ]", key)]
        raise DataError(
            f"{folder}: '{first}' and '{second}' look like {what}s of one patient, and nothing says who that is, "
            f"so one may train and the other test. {remedy}; or, if each is another patient, say --own-patients"
        )


def _is_patient(prefix: str, rest: str) -> bool:
    """Whether what stands before the last part of a name may be a patient, and that part a number or kind of scan."""
    counted = re.fullmatch(COUNTED, rest, re.IGNORECASE)
    return bool(counted) or (any(c.isdigit() for c in prefix) and any(c.isdigit() for c in rest))

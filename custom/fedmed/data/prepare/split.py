"""Lists for training, validation and testing: by patient, with each label in each list."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedmed.data.datalist import LABELLED
from fedmed.data.patients import folded
from fedmed.data.prepare.case import Case, Checked
from fedmed.errors import DataError
from fedmed.seeds import derive_seed

ROLES = ("labelled", "unlabelled")
BEFORE_LAST = r"^(.+)[-_ ][^-_ /]*$"  # a pattern of patients that fits names such as p1_0
MANY = 10  # images a prefix: more are a ward, a class or a year, and no patient
COUNTED = r"(?:scan|visit|part|series|ser|view|img|image|im|frontal|lateral|lat|pa|ap|pre|post|day|t|v)[-_]?\d*"


def divides(fractions: Sequence[float]) -> bool:
    """True where patients come into more than one list."""
    return sum(share > 0 for share in fractions) > 1


def apportion(count: int, fractions: Sequence[float]) -> list[int]:
    """Divide ``count`` into integer parts as near to ``fractions`` as possible; earlier parts win a tie.

    A part with a fraction above 0 gets at least one if ``count`` is large enough for all.
    """
    shares = [fraction * count / sum(fractions) for fraction in fractions]
    parts = [int(share + 1e-9) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (parts[i] - shares[i], i))
    for i in by_remainder[: count - sum(parts)]:
        parts[i] += 1
    wanted = [i for i, fraction in enumerate(fractions) if fraction > 0]
    for i in wanted:
        largest = max(wanted, key=lambda j: (parts[j], -j))
        if parts[i] == 0 and parts[largest] > 1:
            parts[i], parts[largest] = 1, parts[largest] - 1
    return parts


def split_patients(patients: Iterable[str], fractions: Sequence[float], seed: int = 0) -> dict[str, str]:
    """Return patient → ``training``, ``validation`` or ``testing``.

    The order is that of a seeded hash of each patient, so it depends neither on the order of files nor on the machine.
    DataError if the fractions are not three numbers of at least 0 with a positive sum.
    """
    if len(fractions) != 3 or min(fractions) < 0 or not 0 < sum(fractions) < float("inf"):
        raise DataError(f"the split {tuple(fractions)} must be three numbers ≥ 0 (training validation testing)")
    ordered = sorted(set(patients), key=lambda patient: (derive_seed(seed, "split", patient), patient))
    counts = apportion(len(ordered), fractions)
    names = [name for name, count in zip(LABELLED, counts, strict=True) for _ in range(count)]
    return dict(zip(ordered, names, strict=True))


def assign(cases: Sequence[Case], role: str, fractions: Sequence[float], seed: int = 0) -> dict[str, str]:
    """Return case → datalist key for the usable cases; a case that is missing from the result must be left out.

    Patients with at least one mask are split. A labelled site trains on their masks; an unlabelled site takes its
    training and validation patients as ``unlabeled`` and keeps masks for ``testing`` only. All other patients are
    ``unlabeled``. A case without a mask whose patient is validated or tested on is left out.

    Raises:
        DataError: unknown role or wrong fractions.
    """
    if role not in ROLES:
        raise DataError(f"the role '{role}' is unknown; use one of {', '.join(ROLES)}")
    usable = [case for case in cases if case.usable]
    lists = split_patients((case.patient for case in usable if case.mask), fractions, seed)
    if role == "unlabelled":
        lists = {patient: name if name == "testing" else "unlabeled" for patient, name in lists.items()}
    assigned = {}
    for case in usable:
        name = lists.get(case.patient, "unlabeled")
        if case.mask or name == "unlabeled":
            assigned[case.case] = name
        elif name == "training":
            assigned[case.case] = "unlabeled"
    return assigned


def refuse_copies(cases: Sequence[Checked], same: str, noun: str) -> list[list[Checked]]:
    """Keep one of several usable cases of equal content, if possible a labelled one.

    ``same`` is what is equal, such as ``pixels``, ``noun`` what a case is called. Returns the groups of two and more,
    the one that is kept first.
    """
    groups: dict[str, list[Checked]] = defaultdict(list)
    for case in cases:
        if case.usable:
            groups[case.content].append(case)
    several = [group for group in groups.values() if len(group) > 1]
    equal = [sorted(group, key=lambda case: (not (case.label or case.mask), case.case)) for group in several]
    for first, *others in equal:
        for case in others:
            owner = "" if case.patient == first.patient else f" of another patient, '{first.patient}'"
            case.faults.append(f"same {same} as '{first.case}'{owner}; one {noun} counts once")
    return equal


def refuse_copied_images(cases: Sequence[Checked]) -> None:
    """Keep one of several equal images, if possible a labelled one; refuse all of them if their labels differ."""
    for first, second, *others in refuse_copies(cases, "pixels", "image"):
        labels = sorted({case.label for case in (first, second, *others) if case.label})
        if len(labels) > 1:
            first.faults.append(f"same pixels as '{second.case}', but different labels: {', '.join(labels)}")


def fill_lists(cases: Sequence[Checked], fractions: Sequence[float], seed: int, ignore: bool) -> None:
    """Set ``lists`` of every usable image or video: a patient is in one of training, validation and testing.

    Images without a label are ``unlabeled``, but left out where their patient is validated or tested on; with
    ``ignore`` no image has a label.
    """
    usable = [case for case in cases if case.usable]
    names = {} if ignore else _stratified(usable, fractions, seed)
    for case in usable:
        name = names.get(case.patient)
        if case.label and name:
            case.lists = [name]
        elif name in (None, "training"):
            case.lists = ["unlabeled"]
        else:
            case.notes.append("left out: without a label, and its patient is in validation or testing")


def _stratified(cases: Sequence[Checked], fractions: Sequence[float], seed: int) -> dict[str, str]:
    """Patient → list, for patients with a label; each class is divided by ``fractions``, rounded to patients.

    A patient with several classes counts for the rarest of them.
    """
    classes: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        if case.label:
            classes[case.patient].add(case.label)
    counts = Counter(label for labels in classes.values() for label in labels)
    strata: dict[str, list[str]] = defaultdict(list)
    for patient, labels in classes.items():
        strata[min(labels, key=lambda label: (counts[label], label))].append(patient)
    split: dict[str, str] = {}
    for label in sorted(strata):
        split |= split_patients(strata[label], fractions, seed)
    return split


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
    """Sentences on top of a report: of how many images nobody knows the patient, or that all are of one.

    ``what`` is the name of a case, such as "image", ``remedy`` how to say who the patient is.
    """
    used = [case for case in cases if case.lists]
    unsaid = [case for case in used if not case.patient_said]
    said = {case.patient for case in used if case.patient_said}
    warnings = []
    if unsaid and len({name for case in used for name in case.lists}) > 1:
        known = f"{len(unsaid)} of {len(used)} {what}s: nobody says who the patient is"
        risk = f"so each {what} counts as a patient of its own; scans of one patient may train and test"
        warnings.append(f"{known}, {risk}. {remedy}{_pattern_for(unsaid)}")
    if len(said) == 1 and not unsaid and len(used) > 1:
        text = f"all {len(used)} {what}s are of one patient, '{said.pop()}', and so in one list"
        warnings.append(f"{text}. If there are several patients: {remedy}")
    return warnings


def _pattern_for(cases: Sequence[Checked]) -> str:
    """A pattern that puts together names which differ in their last part alone; "" where none or nearly all do."""
    keys = map(_name, cases)
    groups = Counter(key[: len(key) - len(rest)] for key in keys if (rest := re.split("[-_ ]", key)[-1]) != key)
    if not _repeated(groups):
        return ""
    beginning = groups.most_common(1)[0][0]
    return f", perhaps as '{BEFORE_LAST}' (all but the last part), since '{beginning}' comes more than once"


def _name(case: Checked) -> str:
    """Name of a case's file, without folder and extension."""
    return case.case.rsplit("/", 1)[-1].split(".", 1)[0]


def _repeated(groups: Counter[str]) -> list[str]:
    """Beginnings that several names have; none where all names have one, or groups are too large for a patient."""
    if len(groups) < 2 or groups.total() > MANY * len(groups):
        return []
    return [beginning for beginning, count in groups.items() if count > 1]


def refuse_shared_prefixes(cases: Iterable[Checked], folder: Path, what: str, remedy: str) -> None:
    """Refuse a split by files whose names show that several are of one patient, such as p1_0 and p1_1.

    Names without an id, such as covid_1 and covid_2, and folders of many images, such as 2019/0001, show nothing.

    Raises:
        DataError: names two of them, and how to say who the patient is.
    """
    unsaid = (case for case in cases if case.usable and not case.patient_said)
    keys = sorted(map(_name, unsaid))
    parts = [re.split(r"[-_ ](?=[^-_ ]*$)", key) for key in keys]
    groups = Counter(prefix for prefix, *rest in parts if rest and _is_patient(prefix, rest[0]))
    if shared := _repeated(groups):
        first, second, *_ = [key for key in keys if re.match(rf"{re.escape(shared[0])}[-_ ]", key)]
        raise DataError(
            f"{folder}: '{first}' and '{second}' look like {what}s of one patient, and nothing says who that is, "
            f"so one may train and the other test. {remedy}, here '{BEFORE_LAST}' (all but the last part); or, "
            "if each is another patient, say --own-patients"
        )


def _is_patient(prefix: str, rest: str) -> bool:
    """True where the beginning of a name may be a patient, and its last part a number or kind of scan."""
    counted = re.fullmatch(COUNTED, rest, re.IGNORECASE)
    return bool(counted) or (any(c.isdigit() for c in prefix) and any(c.isdigit() for c in rest))

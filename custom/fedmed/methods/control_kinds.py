"""The controls that a run without labels at every site can be compared with, and how their names tell them apart."""

LEFT_OUT = "left_out"  # the sites without labels do not train: they are only scored
SILENT = "silent"  # they take part in every round, and neither adapt nor learn anything
ADAPTED = "adapted"  # they take part, adapt as in the run, and learn nothing
SUFFIXES = {LEFT_OUT: " control", SILENT: " silent control", ADAPTED: " adapted control"}  # of the name of the job
OPTIONS = {LEFT_OUT: "--control", SILENT: "--silent-control", ADAPTED: "--control"}  # of fedmed simulate
FOLDERS = {LEFT_OUT: "control", SILENT: "control", ADAPTED: "control_adapted"}  # in the workspace of the run


def is_control(name: str) -> bool:
    """Tell whether a job's name is that of a control."""
    return name.endswith(tuple(SUFFIXES.values()))


def kind_of_control(name: str) -> str:
    """The kind of the control that has this name."""
    return next((kind for kind in (SILENT, ADAPTED) if name.endswith(SUFFIXES[kind])), LEFT_OUT)

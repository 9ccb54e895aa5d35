"""The controls that a run without labels at every site can be compared with, and how their names tell them apart."""

LEFT_OUT = "left_out"  # the sites without labels do not train: they are only scored
SILENT = "silent"  # they take part in every round, and learn nothing
SUFFIXES = {LEFT_OUT: " control", SILENT: " silent control"}  # of the name of the job


def kind_of_control(name: str) -> str:
    """The kind of the control that has this name."""
    return SILENT if name.endswith(SUFFIXES[SILENT]) else LEFT_OUT

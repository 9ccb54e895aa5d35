"""Names of phases and tools of laparoscopic gallbladder removals, in synthetic recordings and in prepared ones."""

from typing import Literal, get_args

Tool = Literal["grasper", "clipper", "coagulation", "scissors", "suction_irrigation", "specimen_bag"]

TOOLS: tuple[str, ...] = get_args(Tool)
PHASES = (
    "preparation",
    "hepatocystic_triangle_dissection",
    "clipping_and_cutting",
    "gallbladder_dissection",
    "gallbladder_packaging",
    "cleaning_and_coagulation",
)

"""Several processes with threads on the same cores, as in a simulation or beside other tables."""

import os

WAIT_POLICY = "OMP_WAIT_POLICY"  # of OpenMP, which PyTorch computes with on CPUs


def share_cores() -> None:
    """Let threads that wait for others give their core away, in all processes that this one starts.

    By default they keep it for a while and look again and again. Two trainings of two threads each, on two cores with
    other work, then took 170 seconds for what takes 3. What a user has set stays.
    """
    os.environ.setdefault(WAIT_POLICY, "PASSIVE")

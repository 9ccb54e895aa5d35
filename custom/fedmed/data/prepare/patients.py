"""Pseudonyms of patients."""

import hashlib


def pseudonym(patient: str) -> str:
    """The name that a datalist, which others may see, has instead of a PatientID; "" for ""."""
    return "patient-" + hashlib.sha256(patient.encode()).hexdigest()[:12] if patient else ""

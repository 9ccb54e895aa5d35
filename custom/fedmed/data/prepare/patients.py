"""Who a patient is, without saying it."""

import hashlib


def pseudonym(patient: str) -> str:
    """A datalist may be shown to others, so it holds no PatientID; equal IDs give equal pseudonyms."""
    return "patient-" + hashlib.sha256(patient.encode()).hexdigest()[:12] if patient else ""

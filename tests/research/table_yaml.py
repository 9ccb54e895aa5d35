"""Content of the YAML of small tables: of one arm's jobs and their Dice, and scores of images."""

ROOM = "research.runner"
SITE_TABLE = {
    "title": "T",
    "data": "demo",
    "seeds": [0],
    "test": ["site_1"],
    "chain": {"training": {"path": f"{ROOM}.federated_training.FederatedTraining"}},
    "scores": {"dice": {"path": f"{ROOM}.score_kinds.UnitMean", "metric": "dice", "label": "Dice"}},
    "layout": {"path": f"{ROOM}.site_columns.SiteColumns"},
}
OF_IMAGES = {
    "accuracy": {"path": f"{ROOM}.score_kinds.Accuracy", "label": "accuracy", "unit": "image"},
    "auroc": {"path": f"{ROOM}.score_kinds.AurocOfClasses", "label": "AUROC", "unit": "image"},
}

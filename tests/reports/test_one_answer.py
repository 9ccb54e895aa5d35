"""A model that says the same of every frame of a site's videos, told from counts that sites send."""

from fedmed.data.structure import Structure
from fedmed.reports.run import read_run
from fedmed.reports.video_report import PhasesReport, PresenceReport

PARTS = ("tp", "fp", "fn")


def findings(report, fake_run, classes, **sites):
    run = read_run(fake_run(rounds=1, sites=dict.fromkeys(sites, "supervised"), refuse=()))
    run.classes = [Structure(name=name) for name in classes]
    run.result["test"] = {
        name: {"n_cases": 2, "n_frames": 10, "dice_mean": 0.5, **test} for name, test in sites.items()
    }
    return report.findings(run)


def test_one_phase_called_in_every_frame(fake_run):
    def counts(*four):
        return dict(
            zip(("frames_rest>rest", "frames_rest>clip", "frames_clip>rest", "frames_clip>clip"), four, strict=True)
        )

    sentences = findings(PhasesReport(), fake_run, ["rest", "clip"], one=counts(3, 0, 7, 0), two=counts(3, 0, 6, 1))
    assert sentences == [
        "one: the model calls all 10 frames 'rest'. 3 of them are (30 %): the accuracy is that of a model that "
        "looks at no frame."
    ]


def test_tools_that_are_always_or_never_called(fake_run):
    def counts(**labels):
        return {f"{part}_{label}": n for label, three in labels.items() for part, n in zip(PARTS, three, strict=True)}

    always = counts(grasper=(4, 6, 0), hook=(0, 0, 3), bag=(0, 0, 0), clipper=(10, 0, 0))
    right = counts(grasper=(4, 0, 0), hook=(2, 1, 1), bag=(0, 1, 0), clipper=(1, 0, 9))
    names = ["grasper", "hook", "bag", "clipper"]
    assert findings(PresenceReport(), fake_run, names, one=always, two=right) == [
        "one: called in every one of 10 frames: grasper (there in 40 %).",
        "one: there and never called: hook (3 frames).",
    ]

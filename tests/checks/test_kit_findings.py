"""A folder that is not a readable startup kit, and faults of a kit's certificates and of what it allows."""

import json
import os

import pytest
from made_kits import PARTS, SAFE, Authority

from fedmed.checks.startup_kit import MESSAGES, check_kit, read_kit
from fedmed.errors import SiteConfigError
from fedmed.jobs.app_shape import TO_SERVER
from fedmed.jobs.job_classes import job_classes

OFF = {**PARTS[0], "disabled": True}


def test_no_kit_is_one_clear_error(tmp_path, make_kit):
    with pytest.raises(SiteConfigError, match="startup/fed_client.json is missing"):
        read_kit(tmp_path)
    kit = make_kit()
    (kit / "startup" / "client.crt").write_text("nothing")
    with pytest.raises(SiteConfigError, match="client.crt is not a readable certificate"):
        read_kit(kit)
    (kit / "startup" / "fed_server.json").touch()
    with pytest.raises(SiteConfigError, match="server or an admin"):
        read_kit(kit)


@pytest.mark.parametrize(
    ("days", "since", "kind"), [(-3, 20, "certificate"), (20, 20, "ends_soon"), (90, -2, "certificate")]
)
def test_certificates_that_ended_end_soon_or_begin_later(make_kit, days, since, kind):
    (finding,) = check_kit(read_kit(make_kit(days=days, since=since)), "hospital_k")
    assert finding.kind == kind


def test_what_else_is_wrong_with_a_kit(make_kit, authority, tmp_path):
    kit = make_kit()
    (kit / "startup" / "client.key").chmod(0o644)
    streams = {"path": "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer"}
    resources = {"class_list_enforcement_mode": "enforce", "class_allow_list": ["a.B"]}
    resources |= {"components": [*PARTS, MESSAGES, streams]}
    (kit / "local" / "resources.json").write_text(json.dumps(resources))
    results = list(check_kit(read_kit(kit), "hospital_m", ["a.B", "c.D"]))
    assert [finding.kind for finding in results] == ["kit", "key", "logs", "wide_list", "classes"]
    assert "'c.D'" in results[-1].text and "hospital_m" in results[0].text
    authority.issue(tmp_path, "client", "x")
    os.replace(tmp_path / "client.key", kit / "startup" / "client.key")
    assert "does not belong" in " ".join(finding.text for finding in check_kit(read_kit(kit), "hospital_k"))
    Authority().issue(kit / "startup", "client", "hospital_k")
    (kit / "startup" / "rootCA.pem").write_bytes((tmp_path / "rootCA.pem").read_bytes())
    assert "certificate" in [finding.kind for finding in check_kit(read_kit(kit), "hospital_k")]


@pytest.mark.parametrize(
    ("allowed", "needed"),
    [
        ({"class_allow_list": ["nvflare"]}, ["fedmed.X"]),
        ({"class_allow_list": ["fedmed", "nvflare."]}, []),
        ({"class_allow_list": ["*"]}, []),
        ({"class_allow_list": ["fedmed.Xy"]}, ["fedmed.X", "nvflare.Y"]),
        ({"class_list_enforcement_mode": "warn", "class_allow_list": []}, []),
    ],
)
def test_the_list_of_classes_is_read_as_nvflare_reads_it(make_kit, allowed, needed):
    kit = make_kit()
    (kit / "local" / "resources.json").write_text(json.dumps({**SAFE, **allowed}))
    results = list(check_kit(read_kit(kit), "hospital_k", ["fedmed.X", "nvflare.Y"]))
    results = [finding for finding in results if finding.kind != "wide_list"]
    assert [finding.kind for finding in results] == ["classes"] * len(needed)
    assert all(f"'{name}'" in finding.text for name, finding in zip(needed, results, strict=True))


def test_nvflare_sends_logs_unless_told_not_to_and_a_job_brings_its_own_limits(make_kit):
    kit = make_kit()
    (kit / "local" / "resources.json").write_text("{}")
    (kit / "local" / "privacy.json").unlink()
    kinds = [finding.kind for finding in check_kit(read_kit(kit), "hospital_k")]
    assert kinds == ["logs", "jobs", "limits", "messages", "wide_list"]


@pytest.mark.parametrize("parts", [[], PARTS[:1], PARTS[1:], PARTS[::-1], [{"path": "x.Y"}, *PARTS], [OFF, PARTS[1]]])
def test_a_kit_without_walls_against_configurations_that_read_is_told(make_kit, parts):
    kit = make_kit()
    (kit / "local" / "resources.json").write_text(json.dumps({**SAFE, "components": [*parts, MESSAGES]}))
    (finding,) = check_kit(read_kit(kit), "hospital_k")
    assert finding.kind == "jobs" and all(json.dumps(part) in finding.text for part in PARTS)


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"components": PARTS}, "messages", MESSAGES["path"]),
        ({"components": [*PARTS, {**MESSAGES, "disabled": True}]}, "messages", "restart"),
        ({"class_allow_list": [*job_classes(), "nvflare.app_common.ccwf.CyclicClientController"]}, "wide_list", "ccwf"),
        ({"class_allow_list": ["*"]}, "wide_list", "'class_allow_list' lets jobs load *,"),
        ({"class_list_enforcement_mode": "warn"}, "wide_list", "enforce"),
    ],
)
def test_a_kit_that_was_made_before_messages_and_classes_were_closed_is_told(make_kit, changed, kind, said):
    kit = make_kit()
    (kit / "local" / "resources.json").write_text(json.dumps({**SAFE, **changed}))
    (finding,) = check_kit(read_kit(kit), "hospital_k", [TO_SERVER])
    assert (finding.kind, finding.level) == (kind, "problem") and said in finding.text


@pytest.mark.parametrize(
    ("rights", "kinds"),
    [
        ({"lead": {"submit_job": "any", "byoc": "none"}, "member": {"view": "any"}}, ["code"]),
        ({"lead": {"byoc": "any"}, "member": "none"}, []),
        ({"lead": "any"}, []),
        ({}, []),  # another policy than a file
    ],
)
def test_a_job_with_code_needs_a_kit_that_lets_it(make_kit, rights, kinds):
    kit = make_kit()
    (kit / "local" / "authorization.json.default").write_text(json.dumps({"permissions": rights}))
    results = check_kit(read_kit(kit), "hospital_k", ["fedmed.X"], own_code=True)
    assert [finding.kind for finding in results] == kinds

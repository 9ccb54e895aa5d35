"""The image and the trial federation of containers/: what a hospital's administrator looks at first."""

import re
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "containers"
TEXT = re.sub(r"\\\n|^#.*\n", "", (FOLDER / "Containerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
STAGES = [stage.splitlines() for stage in re.split(r"(?m)^(?=FROM )", TEXT)[1:]]
IGNORED = (CHECKOUT / ".containerignore").read_text(encoding="utf-8").splitlines()
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["services"]


def instructions(stage: list[str], name: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in stage if line.startswith(f"{name} ")]


def test_the_last_stage_runs_as_a_fixed_user_has_a_check_and_no_build_tools():
    last = STAGES[-1]
    assert len(STAGES) == 2 and re.fullmatch(r"[1-9]\d+:[1-9]\d+", instructions(last, "USER")[-1])
    assert all(instructions(last, name) for name in ("HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT"))
    assert not re.search(r"\b(pip|apt|apt-get|gcc|make|curl|wget|ADD)\b", "\n".join(last))
    assert "uninstall --yes pip" in (FOLDER / "install.sh").read_text(encoding="utf-8")


def test_what_is_copied_exists_and_is_let_into_the_build():
    given = [line.split()[:-1] for stage in STAGES for line in instructions(stage, "COPY") if "--from=" not in line]
    paths = [path for words in given for path in words if not path.startswith("--")]
    assert len(paths) > 8
    for path in paths:
        assert (CHECKOUT / path).exists() and f"!{path.split('/')[0]}" in IGNORED, path


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_read_only_without_rights_and_images_cannot_be_written(name):
    service = SERVICES[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["healthcheck"]["test"]
    assert service["security_opt"] == ["no-new-privileges:true"] and "privileged" not in service
    data = [volume for volume in service["volumes"] if ":/data" in volume]
    assert all(volume.endswith(":/data:ro") for volume in data) and bool(data) == name.startswith("hospital")

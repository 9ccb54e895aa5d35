"""One rule for the name of a site, wherever it is first written."""

import pytest
from pydantic import TypeAdapter, ValidationError

from fedmed.errors import SiteConfigError
from fedmed.files import CHECKOUT
from fedmed.jobs.study import Site
from fedmed.provisioning.kits import Federation
from fedmed.provisioning.project_file import read_project
from fedmed.settings.site import load_file
from fedmed.site_names import name_fault
from tests.commands import fedmed

EXAMPLE = CHECKOUT / "site_configs" / "project.yml"
SAID = "is not a site's name: letters a–z, digits, _, and after the first also -"


@pytest.mark.parametrize("name", ["clinic.a", "clinic@a", "clinic a", "-a", "klinik_süd", "", "a" * 201, "a/b"])
def test_a_name_that_nvflare_cannot_use_is_refused_wherever_it_is_written_first(name, tmp_path, capsys):
    assert SAID in name_fault(name)
    with pytest.raises(ValidationError):
        TypeAdapter(Site).validate_python(name)
    assert fedmed("prepare", "ct")([tmp_path, f"--site={name}"]) == 2
    assert SAID in capsys.readouterr().err


def test_a_project_of_kits_names_a_site_that_cannot_be(tmp_path):
    text = EXAMPLE.read_text()
    assert "name: hospital_b" in text
    (tmp_path / "project.yml").write_text(text.replace("name: hospital_b", "name: hospital.b"))
    with pytest.raises(SiteConfigError, match=f"'hospital.b' {SAID}"):
        Federation.open(tmp_path / "made").provision(read_project(tmp_path / "project.yml"))
    assert not (tmp_path / "made").exists()


def test_a_sites_own_settings_name_it_so(tmp_path):
    path = tmp_path / "clinic.a.yaml"
    path.write_text("demo: chest_ct_tiny\n")
    with pytest.raises(SiteConfigError, match=f"clinic.a.yaml: 'clinic.a' {SAID}.*write another name as 'site'"):
        load_file(path)
    path.write_text("site: clinic a\ndemo: chest_ct_tiny\n")
    with pytest.raises(SiteConfigError, match=f"'clinic a' {SAID}"):
        load_file(path)


@pytest.mark.parametrize("name", ["ct_north", "Site-1", "_a", "7"])
def test_names_in_use_stay_valid(name):
    assert name_fault(name) == "" and TypeAdapter(Site).validate_python(name) == name

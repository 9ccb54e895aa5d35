"""A bundle that somebody gives runs nothing: what it would run, its digest, and what is read of it."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.digests import DIGESTS, read_digests, read_key, sign, signer, whole_digest, write_digests
from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.bundles.given_bundle import open_given, settings_of
from fedmed.bundles.infer import infer_image
from fedmed.errors import BundleError
from fedmed_demo import demo_site


@pytest.fixture
def given(exported_bundle, tmp_path):
    """Return a function: changes the files of an exported bundle, writes its digests anew, and returns it."""
    root = shutil.copytree(exported_bundle, tmp_path / "given" / exported_bundle.name)

    def given(change=lambda config, meta: None):
        paths = root / "configs" / "inference.yaml", root / "configs" / "metadata.json"
        config, meta = yaml.safe_load(paths[0].read_text()), json.loads(paths[1].read_text())
        change(config, meta)
        paths[0].write_text(yaml.safe_dump(config, sort_keys=False))
        paths[1].write_text(json.dumps(meta))
        write_digests(root, read_digests(root)["made_of"])
        return root

    return given


@pytest.fixture
def ran(tmp_path):
    """A file that hostile bundles make; its absence shows that nothing of them ran."""
    return SimpleNamespace(path=tmp_path / "ran", code=f"$__import__('os').mknod({str(tmp_path / 'ran')!r})")


def test_an_exported_bundle_is_opened_as_it_is_and_infers_the_same(given, tmp_path, fedmed_home):
    root = given()
    opened = open_given(root, tmp_path / "place")
    assert opened.name == root.name and opened != root
    image = sorted((demo_site("chest_ct_tiny", "ct_north", fedmed_home) / "images").iterdir())[0]
    masks = [np.asarray(infer_image(folder, image, device="cpu").dataobj) for folder in (root, opened)]
    assert np.array_equal(*masks)
    local = {path.name for path in (opened / "configs").iterdir()}
    assert local == {"inference.yaml", "metadata.json", "federation.yaml"}
    assert not (opened / "models" / "model.ts").exists()


def test_an_installed_bundle_is_this_machines_own(exported_bundle, monkeypatch, tmp_path):
    root = tmp_path / "installed" / exported_bundle.name
    shutil.copytree(exported_bundle, root)
    monkeypatch.setenv("FEDMED_BUNDLES", str(root.parent))
    assert open_given(root, tmp_path / "place") == root
    assert open_given(exported_bundle, tmp_path / "place") != exported_bundle  # made of the checkout's of that name


EXPRESSIONS = {
    "network": lambda code: lambda config, meta: config.update(network_def=code),
    "new entry": lambda code: lambda config, meta: config.update(mine=code),
    "initialize": lambda code: lambda config, meta: config.update(initialize=[code]),
    "imports": lambda code: lambda config, meta: config["imports"].append(code),
    "setting": lambda code: lambda config, meta: config.update(threshold=code),
    "in a list": lambda code: lambda config, meta: config.update(pixdim=[1.0, 1.0, code]),
    "transform": lambda code: (
        lambda config, meta: config["preprocessing"]["transforms"].append(
            {"_target_": "Lambdad", "keys": "image", "func": code}
        )
    ),
    "callable": lambda code: (
        lambda config, meta: config.update(network_def={"_target_": "os.mknod", "path": code.split("'")[3]})
    ),
    "function of a transform": lambda code: (
        lambda config, meta: config.update(
            inferer={"_target_": "subprocess.run", "args": ["touch", code.split("'")[3]]}
        )
    ),
    "macro": lambda code: lambda config, meta: config.update(classes="%/etc/passwd"),
    "reference": lambda code: lambda config, meta: config.update(threshold="@imports"),
    "metadata": lambda code: lambda config, meta: meta.update(authors=code),
    "deep in the metadata": lambda code: lambda config, meta: meta["changelog"].update({"9": {"_target_": "os.mknod"}}),
    "its own place": lambda code: lambda config, meta: config.update(bundle_root="elsewhere"),
    "a path": lambda code: lambda config, meta: config.update(image_bands="secret.pt"),
    "a path in a text": lambda code: lambda config, meta: config.update(classes=["../secret"]),
}


@pytest.mark.parametrize("how", EXPRESSIONS)
def test_whatever_would_run_or_read_is_refused_with_the_digest_and_the_signer(given, ran, tmp_path, how):
    root = given(EXPRESSIONS[how](ran.code))
    with pytest.raises(BundleError, match=f"Its digest is {whole_digest(root)}, signed by nobody.*--trust") as refused:
        open_given(root, tmp_path / "place")
    assert "is not what the installed bundle" in str(refused.value) or "configs/metadata.json:" in str(refused.value)
    assert not ran.path.exists()


def test_monai_alone_would_run_it(given, ran, tmp_path, fedmed_home):
    """Else the tests here could not fail."""
    root = given(EXPRESSIONS["network"](ran.code))
    image = sorted((demo_site("chest_ct_tiny", "ct_north", fedmed_home) / "images").iterdir())[0]
    with pytest.raises(BundleError, match="fails at inference"):
        infer_image(root, image, device="cpu")
    assert ran.path.exists()


def test_its_own_package_is_not_imported(given, ran, tmp_path, fedmed_home):
    root = given()
    for path in root.glob("covid_ct/*.py"):
        path.write_text(f"{ran.code.removeprefix('$')}\n" + path.read_text())
    write_digests(root, read_digests(root)["made_of"])
    opened = open_given(root, tmp_path / "place")
    assert (opened / "covid_ct").resolve() == SHIPPED_BUNDLES / "covid_ct_segmentation" / "covid_ct"
    image = sorted((demo_site("chest_ct_tiny", "ct_north", fedmed_home) / "images").iterdir())[0]
    infer_image(opened, image, device="cpu")
    assert not ran.path.exists()


def test_weights_that_would_run_code_are_refused_when_they_are_read(given, ran, tmp_path, fedmed_home):
    class Hostile:
        def __reduce__(self):
            return (eval, (ran.code.removeprefix("$"),))

    root = given()
    torch.save({"model": Hostile()}, root / "models" / "model.pt")
    write_digests(root, read_digests(root)["made_of"])
    opened = open_given(root, tmp_path / "place")
    image = sorted((demo_site("chest_ct_tiny", "ct_north", fedmed_home) / "images").iterdir())[0]
    with pytest.raises(BundleError, match="not a file of weights"):
        infer_image(opened, image, device="cpu")
    assert not ran.path.exists()


def test_torchscript_is_code_and_not_opened(given, tmp_path):
    root = given()
    (root / "models" / "model.pt").unlink()
    (root / DIGESTS).unlink()
    with pytest.raises(BundleError, match="TorchScript is code.*--trust"):
        open_given(root, tmp_path / "place")


@pytest.fixture
def kit(tmp_path):
    """Return a function: name -> (a kit with a key and certificate of that name, the root certificate)."""
    root_key = rsa.generate_private_key(65537, 2048)

    def named(name):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def certificate(name, key, issuer):
        now = datetime.now(UTC)
        made = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(issuer)).serial_number(7)
        made = made.not_valid_before(now).not_valid_after(now + timedelta(1)).public_key(key.public_key())
        return made.sign(root_key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def kit(name):
        folder, key = tmp_path / "kit" / name / "startup", rsa.generate_private_key(65537, 2048)
        folder.mkdir(parents=True)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "client.key").write_bytes(private)
        (folder / "client.crt").write_bytes(certificate(name, key, "study"))
        return folder.parent, certificate("study", root_key, "study")

    return kit


def test_the_signer_counts_where_this_machine_knows_the_federation(given, kit, tmp_path, fedmed_home, monkeypatch):
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path / "home"))
    root, (folder, root_certificate) = given(), kit("hospital_a")
    assert signer(root) == "nobody"
    sign(root, *read_key(folder))
    assert signer(root).startswith("somebody whose certificate says 'hospital_a', which no root certificate in")
    (tmp_path / "home" / "signers").mkdir(parents=True)
    (tmp_path / "home" / "signers" / "study.pem").write_bytes(root_certificate)
    assert signer(root).startswith("'hospital_a', to whom ") and signer(root).endswith("has issued the certificate")
    assert open_given(root, tmp_path / "place").name == root.name
    (root / "covid_ct" / "more.py").write_text("print()")
    assert signer(root) == "nobody: its signature is not of these files"
    (root / "covid_ct" / "more.py").unlink()
    write_digests(root, {"bundle": "another", "overlays": []})
    assert signer(root) == "nobody: its signature is not of these files"
    with pytest.raises(BundleError, match="signed by nobody: its signature is not of these files"):
        open_given(root, tmp_path / "again")


def test_a_kit_without_a_key_signs_nothing(tmp_path):
    with pytest.raises(BundleError, match="holds no key to sign with"):
        read_key(tmp_path)


def test_a_bundle_of_others_is_refused(given, tmp_path):
    root = given(lambda config, meta: meta.pop("federation"))
    (root / DIGESTS).unlink()
    with pytest.raises(BundleError, match="it was not exported by FedMed. Its digest is"):
        open_given(root, tmp_path / "place")


def test_one_of_an_earlier_fedmed_has_no_digests_and_is_opened(given, tmp_path):
    root = given()
    (root / DIGESTS).unlink()
    assert (open_given(root, tmp_path / "place") / "models" / "model.pt").is_file()


def test_a_trusted_digest_opens_that_bundle_and_no_changed_one(given, ran, tmp_path, caplog):
    root = given(EXPRESSIONS["network"](ran.code))
    digest = whole_digest(root)
    assert open_given(root, tmp_path / "place", [digest[:16]]).joinpath("covid_ct/transforms.py").is_file()
    assert f"runs code of its own. Digest: {digest}; signed by nobody" in caplog.text
    (root / "covid_ct" / "transforms.py").write_text("")
    for trusted in ([digest], [digest[:8]], [""]):
        with pytest.raises(BundleError, match="--trust"):
            open_given(root, tmp_path / "again", trusted)


def test_what_python_compiled_is_not_part_of_a_trusted_bundle(given, ran, tmp_path):
    root = given(EXPRESSIONS["network"](ran.code))
    digest = whole_digest(root)
    (root / "covid_ct" / "__pycache__").mkdir()
    (root / "covid_ct" / "__pycache__" / "transforms.cpython-311.pyc").write_bytes(b"other code")
    assert not list(open_given(root, tmp_path / "place", [digest]).rglob("*.pyc"))


@pytest.mark.parametrize("name", ["models/model.pt", "configs/inference.yaml", "docs/README.md"])
def test_flipped_bytes_are_named(given, tmp_path, name):
    root = given()
    content = bytearray((root / name).read_bytes())
    content[len(content) // 2] ^= 255
    (root / name).write_bytes(content)
    with pytest.raises(BundleError, match=f"not as it was exported, damaged or changed: {name}"):
        open_given(root, tmp_path / "place")


def test_words_of_the_site_for_which_it_was_made_are_taken():
    bundle = Bundle("instrument_segmentation")
    local = yaml.safe_load(bundle.config_file("inference").read_text())
    facts = {
        "site_words": {"procedure": "Nephrektomie (links/rechts)"},
        "indicator_vector": [0.5] * 512,
        "site_index": None,
    }
    assert settings_of({**local, **facts}, local, "x", bundle) == facts
    for change in ({"site_words": {"procedure": "$1"}}, {"site_words": {"_target_": "x"}}, {"indicator_path": "x.pt"}):
        with pytest.raises(BundleError, match="is not what the installed bundle 'instrument_segmentation'"):
            settings_of({**local, **change}, local, "x", bundle)


def test_plain_settings_of_the_run_are_taken(given, tmp_path):
    changes = {"threshold": 0.25, "image_gamma": 1.5, "image_bands": [1.0, 0.5], "classes": ["covid_region"]}
    opened = open_given(given(lambda config, meta: config.update(changes)), tmp_path / "place")
    made = yaml.safe_load((opened / "configs" / "inference.yaml").read_text())
    assert {key: made[key] for key in changes} == changes

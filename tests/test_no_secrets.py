"""What must not be in the repository: keys, certificates, tokens and startup kits."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.shipped import CHECKOUT

SECRET_NAMES = re.compile(
    r"(^|/)(startup|transfer|prod_\d+)/|(^|/)(id_(rsa|dsa|ecdsa|ed25519)|\.env|\.netrc|\.pypirc|kubeconfig|credentials)$"
    r"|(^|/)(fed_(client|server|admin)\.json|signature\.json|cert\.json|rootCA\.\w+|\.__nvfl_.*)$"
    r"|\.(key|pem|crt|cer|der|csr|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg|zip|tar|tgz|tar\.gz)$",
    re.IGNORECASE,
)
SECRET_CONTENT = re.compile(
    rb"-----BEGIN [A-Z ]*(PRIVATE KEY|CERTIFICATE)-----|LS0tLS1CRUdJTi[0-9A-Za-z+/]|\bAKIA[0-9A-Z]{16}\b"
    rb"|\bgh[pousr]_[0-9A-Za-z]{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}|\bhf_[0-9A-Za-z]{30,}|\bxox[abprs]-[\w-]{10,}"
    rb"|\bsk-[0-9A-Za-z_-]{30,}|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"
    rb"|(?i:password|passwd|secret|api_?key|access_?token)[\"']?\s*[:=]\s*[\"'][^\"'\s{}$<]{8,}[\"']"
)
# One of these words is in all of it, in small letters; where none is, the slow search need not look.
SECRET_WORDS = [
    *(b"-----begin ", b"ls0tls1crudjti", b"akia", b"github_pat_", b"glpat-", b"hf_", b"xox", b"sk-", b"eyj"),
    *(b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"password", b"passwd", b"secret", b"apikey", b"api_key"),
    *(b"accesstoken", b"access_token"),
]


def tracked() -> list[Path]:
    """Files that the repository holds or would hold if everything were added."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = [CHECKOUT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


def secret_in(content: bytes) -> re.Match[bytes] | None:
    """Return what looks like a secret."""
    lower = content.lower()
    return SECRET_CONTENT.search(content) if any(word in lower for word in SECRET_WORDS) else None


def test_the_repository_holds_no_secret():
    for path in tracked():
        name = path.relative_to(CHECKOUT).as_posix()
        assert not SECRET_NAMES.search(name), f"{name}: looks like a key, a certificate or a part of a startup kit"
        hit = secret_in(path.read_bytes())
        assert not hit, f"{name}: holds what looks like a key, a certificate or a token: {hit.group()[:20]}"


@pytest.mark.parametrize(
    "content",
    [
        b"-----BEGIN " + b"RSA PRIVATE KEY-----",
        b"-----BEGIN " + b"CERTIFICATE-----",
        b'"root_cert": "LS0tLS1' + b'CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"',
        b"token = gh" + b"p_" + b"a1" * 18,
        b"pass" + b"word: 'correct-horse'",
        b"ANOTHER_PASS" + b"WD = 'correct-horse'",
        b'"client_sec' + b'ret": "correct-horse"',
        *(b"%s = 'correct-horse'" % name for name in (b"api" + b"Key", b"API" + b"_KEY", b"access" + b"_token")),
        b"access" + b"Token: 'correct-horse'",
        *(b"gh" + letter + b"_" + b"a1" * 18 for letter in (b"o", b"u", b"s", b"r")),
        *(start + b"A1" * 18 for start in (b"gl" + b"pat-", b"h" + b"f_", b"s" + b"k-", b"xo" + b"xb-")),
        b"AK" + b"IA" + b"A1" * 8,
        b"github" + b"_pat_" + b"a1" * 15,
        b".".join([b"ey" + b"J" + b"a1" * 9, b"ey" + b"J" + b"a1" * 9, b"a1" * 9]),
    ],
)
def test_a_secret_is_found(content):
    assert secret_in(content)


KIT = [
    *("prod_00/hospital_a/startup/client.key", "prod_00/hospital_a/startup/client.crt", "prod_00/x/local/privacy.json"),
    *("prod_12/hospital_a.zip", "hospital_a/startup/fed_client.json", "hospital_a/startup/signature.json"),
    *("kits/hospital_a/local/fedmed_site.yaml", "study/state/cert.json"),
    *("site_configs/rootCA.pem", "jobs/tiny/.__nvfl_sig.json", "jobs/tiny/app_server/.__nvfl_submitter.crt"),
    *("admin@lead.org/transfer/0a1b/workspace/log.txt", "hospital_a.p12", ".env", "hospital_a/startup/startup.tgz"),
]


@pytest.mark.parametrize("folder", ["", "site_configs/", "my_study/", "workspace/my_study/"])
def test_git_ignores_startup_kits_wherever_they_are_made(folder):
    tracked()  # skips where there is no git
    names = "".join(f"{folder}{name}\n" for name in KIT)
    command = ["git", "check-ignore", "--no-index", "--stdin", "--verbose", "--non-matching"]
    said = subprocess.run(command, cwd=CHECKOUT, input=names, capture_output=True, text=True).stdout
    seen = [line.partition("\t") for line in said.splitlines()]
    assert len(seen) == len(KIT)
    assert not [name for rule, _, name in seen if rule == "::"]


def test_nothing_that_the_repository_holds_is_ignored():
    tracked()
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    assert not subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True).stdout

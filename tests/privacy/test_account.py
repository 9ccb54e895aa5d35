"""The account against closed forms and Opacus' own numbers, and its file against everything that may happen to it."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from opacus.accountants import RDPAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from fedmed.errors import PrivacyError
from fedmed.privacy.protection import PrivacyAccount, epsilon
from fedmed.settings.privacy import Privacy

DELTA = 1e-5


def exact(spent, delta):
    """n Gaussian mechanisms are one, with the squares of 1/sigma added up; its exact curve: Balle and Wang 2018."""
    mu = math.sqrt(sum(n * (2 / noise) ** 2 for noise, n in spent))

    def excess(eps):
        return norm.cdf(mu / 2 - eps / mu) - math.exp(eps + norm.logcdf(-mu / 2 - eps / mu)) - delta

    return brentq(excess, 0, 10_000)


@pytest.fixture
def privacy(tmp_path):
    noise = {"clip_norm": 1.0, "noise_multiplier": 2.0, "allowed_metrics": ()}
    return lambda **values: Privacy(account=tmp_path / "a/b.json", **{**noise, **values})


@pytest.mark.parametrize("noise", [0.5, 2.0, 8.0, 40.0, 200.0])
@pytest.mark.parametrize("answers", [1, 14, 50])
def test_the_account_is_a_tight_upper_bound(noise, answers):
    true = exact([(noise, answers)], DELTA)
    assert true <= epsilon([(noise, answers)], DELTA) <= 1.14 * true + 0.002


def test_the_account_equals_opacus_at_half_the_multiplier():
    accountant = RDPAccountant()
    for _ in range(14):
        accountant.step(noise_multiplier=1.0, sample_rate=1.0)
    assert epsilon([(2.0, 14)], DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert epsilon([(2.0, 1)], DELTA) == pytest.approx(4.7285, abs=1e-4)  # sigma 1 at sensitivity 1, by Opacus 1.6.0


def test_the_account_never_exceeds_the_textbook_bound_for_one_answer():
    eps = 0.5
    sigma = math.sqrt(2 * math.log(1.25 / DELTA)) / eps  # Dwork and Roth 2014, Theorem A.1
    assert epsilon([(2 * sigma, 1)], DELTA) < eps


def test_answers_with_different_noise_add_up():
    mixed = [(2.0, 3), (8.0, 10)]
    assert exact(mixed, DELTA) <= epsilon(mixed, DELTA) <= 1.14 * exact(mixed, DELTA)
    assert epsilon(mixed, DELTA) > max(epsilon([part], DELTA) for part in mixed)
    assert epsilon([], DELTA) == epsilon([(2.0, 0)], DELTA) == 0


def test_what_was_spent_outlives_the_job_and_stops_the_next_one(privacy):
    first = PrivacyAccount(privacy())
    assert [first.spend() for _ in range(2)] == pytest.approx([epsilon([(2.0, n)], DELTA) for n in (1, 2)])
    other = PrivacyAccount(privacy(noise_multiplier=4.0))  # another job, and the site has changed its noise
    assert other.spend() == pytest.approx(epsilon([(2.0, 2), (4.0, 1)], DELTA))
    before = first.path.read_bytes()
    strict = PrivacyAccount(privacy(max_epsilon=first.epsilon() + 0.01))
    with pytest.raises(PrivacyError, match=r"ε = 9\.\d+, above 'privacy.max_epsilon'.*nothing is sent.*b\.json"):
        strict.spend()
    assert first.path.read_bytes() == before and first.spent() == [(2.0, 2), (4.0, 1)]
    assert not list(first.path.parent.glob("*.tmp"))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"answers_with_noise": [{"noise_multiplier": -1, "answers": 3}]}', '{"answers": 1}']
)
def test_a_damaged_account_stops_the_site(privacy, text):
    account = PrivacyAccount(privacy())
    account.path.parent.mkdir()
    account.path.write_text(text)
    with pytest.raises(PrivacyError, match=r"b\.json is damaged.*nothing is sent.*backup"):
        account.spend()
    assert account.path.read_text() == text


def test_a_number_that_changed_by_itself_stops_the_site(privacy):
    account = PrivacyAccount(privacy())
    for _ in range(3):
        account.spend()
    account.path.write_text(account.path.read_text().replace('"answers": 3', '"answers": 1'))
    with pytest.raises(PrivacyError, match=r"b\.json is damaged.*not what was written.*nothing is sent"):
        account.spend()


def test_a_place_that_cannot_be_written_stops_the_site(privacy, tmp_path):
    (tmp_path / "a").write_text("a file, not a folder")
    with pytest.raises(PrivacyError, match="cannot be written.*nothing is sent"):
        PrivacyAccount(privacy()).spend()


def test_jobs_that_answer_at_the_same_time_are_all_counted(privacy):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: PrivacyAccount(privacy()).spend(), range(12)))
    entry = json.loads(privacy().account.read_text())["answers_with_noise"]
    assert [e["answers"] for e in entry] == [12]

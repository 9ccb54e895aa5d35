"""Proxy that gRPC takes, by its own rules."""

import pytest

from fedmed.checks.site_check import check_proxy

PROXY = "http://user:secret@proxy.hospital.org:3128"


def said(host="fed.example.org", **environment):
    return [finding.text for finding in check_proxy(host, 8002, environment)]


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_the_proxy_and_how_to_except_the_server_are_told(variable):
    (text,) = said(**{variable: PROXY})
    assert f"{variable} is set" in text and "fed.example.org, port 8002" in text and "proxy.hospital.org:3128" in text
    assert "export no_grpc_proxy=fed.example.org" in text and "secret" not in text


@pytest.mark.parametrize(
    "excepted",
    [
        {"no_proxy": "fed.example.org"},
        {"no_proxy": "localhost, .example.ORG"},
        {"no_grpc_proxy": "fed.example.org", "no_proxy": "other"},
        {"grpc_proxy": ""},  # set, and none
    ],
)
def test_an_excepted_server_is_reached_directly(excepted):
    assert not said(https_proxy=PROXY, **excepted)


@pytest.mark.parametrize(
    "useless",
    [
        {"no_proxy": "*"},
        {"no_proxy": "fed.example.org:8002"},
        {"NO_PROXY": "fed.example.org"},
        {"no_grpc_proxy": "other", "no_proxy": "fed.example.org"},
        {"no_grpc_proxy": "", "no_proxy": "fed.example.org"},
    ],
)
def test_what_grpc_does_not_take_for_an_exception_is_none(useless):
    assert len(said(https_proxy=PROXY, **useless)) == 1


def test_addresses_are_excepted_by_their_network_and_capital_letters_name_no_proxy():
    assert not said("10.1.2.3", https_proxy=PROXY, no_proxy="10.0.0.0/8")
    assert said("10.1.2.3", https_proxy=PROXY, no_proxy="192.168.0.0/16")
    assert not said() and not said(HTTPS_PROXY=PROXY, all_proxy=PROXY)

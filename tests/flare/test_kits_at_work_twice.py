"""Kits that count as started twice; on real kits: tests/e2e/test_faults.py."""

import logging
from types import SimpleNamespace

import pytest
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint

from fedmed.flare import lost_processes as kits_at_work_twice
from fedmed.flare.lost_processes import AT_SITE, SECONDS, watch_server, watch_site


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets; NVFlare's classes are as before afterwards."""
    time = SimpleNamespace(now=0.0)
    monkeypatch.setattr(kits_at_work_twice, "time", SimpleNamespace(monotonic=lambda: time.now))
    add = SfmEndpoint.add_connection
    monkeypatch.setattr(SfmEndpoint, "add_connection", getattr(add, "__wrapped__", add))
    monkeypatch.setattr(ConnManager, "close_connection", lambda self, connection: None)
    return time


def connection(peer):
    place = SimpleNamespace(close=lambda: None, get_conn_properties=lambda: {"peer_addr": peer})
    return SimpleNamespace(conn=place, get_name=lambda: peer)


def connect(clock, name, seconds):
    watch_server()
    endpoint = SfmEndpoint(Endpoint(name))
    for number in range(4):
        clock.now += seconds
        endpoint.add_connection(connection(f"ipv4:10.0.0.{number % 2}:4"))
    assert len(endpoint.connections) == 1, "NVFlare still does its own part"


def test_two_places_that_push_each_other_out_are_named(clock, caplog):
    connect(clock, "ct_north", 20)
    assert [record.name for record in caplog.records if record.levelno == logging.WARNING] == ["fedmed.server"]
    assert "site 'ct_north' connects" in caplog.text and "from ipv4:10.0.0.0:4 and from ipv4:10.0.0.1:4" in caplog.text


@pytest.mark.parametrize(("name", "seconds"), [("ct_north", SECONDS), ("ct_north.6f96", 20)])
def test_a_site_that_starts_anew_now_and_then_and_the_process_of_a_job_are_not(clock, caplog, name, seconds):
    connect(clock, name, seconds)
    assert "again and again" not in caplog.text


@pytest.mark.parametrize(
    ("peer", "stopped", "reported"), [("server", False, 1), ("server", True, 0), ("ct_north.6f96", False, 0)]
)
def test_a_site_notices_that_the_server_ends_its_connections(clock, caplog, peer, stopped, reported):
    watch_site()
    known = SimpleNamespace(sfm_endpoint=SimpleNamespace(endpoint=Endpoint(peer)))
    manager = SimpleNamespace(sfm_conns={"CN1": known}, stopped=stopped)
    for _ in range(4):
        clock.now += 40
        ConnManager.close_connection(manager, SimpleNamespace(name="CN1"))
        ConnManager.close_connection(manager, SimpleNamespace(name="CN2"))  # closed before it was known whose it is
    assert [record.getMessage() for record in caplog.records].count(AT_SITE) == reported

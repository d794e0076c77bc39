"""Services as an image declares them: what they may say, and that what is stored comes back."""

import json
from dataclasses import replace

import pytest

from holdfast.errors import BadInput
from holdfast.records.limits import Limits, Network
from holdfast.records.network import NetworkPolicy
from holdfast.records.services import MOST_SERVICES, ServiceSpec, read_services, services_to_wire
from holdfast.records.spec import SessionSpec

WEB = {"command": "python3 -m http.server 8000", "port": 8000}
WHOLE = {
    "command": "exec ide",
    "port": 8765,
    "ready": "/healthz",
    "title": "Editor",
    "idle_seconds": 60,
    "start_seconds": 20,
    "memory_mb": 1500,
    "remove": ["~/.local/share/ide.sock", "/tmp/.X1-lock"],
    "env": {"A": "1"},
}


def test_defaults() -> None:
    (web,) = read_services({"web": WEB})
    assert web == ServiceSpec(name="web", command="python3 -m http.server 8000", port=8000, title="web")
    assert (web.ready, web.idle_seconds, web.start_seconds, web.memory_mb) == ("tcp", 1800, 60, None)


def test_what_is_stored_comes_back() -> None:
    services = read_services({"ide": WHOLE, "web": WEB}, strict=True)
    assert [one.name for one in services] == ["ide", "web"]
    assert services[0].remove == ("~/.local/share/ide.sock", "/tmp/.X1-lock")
    assert read_services(json.loads(json.dumps(services_to_wire(services)))) == services


def test_a_session_has_a_copy_of_it() -> None:
    spec = SessionSpec(Limits(1, 512, 100, 100), NetworkPolicy(Network.NONE), writable_root=False, env={})
    assert SessionSpec.from_json(spec.to_json()) == spec
    spec = replace(spec, services=read_services({"ide": WHOLE}))
    assert SessionSpec.from_json(spec.to_json()) == spec


def test_a_session_of_an_earlier_version_has_none() -> None:
    spec = SessionSpec(Limits(1, 512, 100, 100), NetworkPolicy(Network.NONE), writable_root=False, env={})
    fields = json.loads(spec.to_json())
    del fields["services"]
    assert SessionSpec.from_json(json.dumps(fields)).services == ()


def test_keys_of_a_later_version_are_left_out_but_refused_in_a_recipe() -> None:
    table = {"web": {**WEB, "later": True}}
    assert read_services(table) == read_services({"web": WEB})
    with pytest.raises(BadInput, match=r"services\.web\.later: there is no such key; the keys are command, port"):
        read_services(table, strict=True)


@pytest.mark.parametrize("name", ["terminal", "Web", "1web", "a--b", "p-x", "", "a" * 31, "web-", "a_b"])
def test_names_that_no_service_has(name: str) -> None:
    with pytest.raises(BadInput, match=r"^services\.") as caught:
        read_services({name: WEB})
    assert f"services.{name}:" in caught.value.message


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"command": None}, "command"),
        ({"command": " "}, "command"),
        ({"command": "a\0b"}, "command"),
        ({"command": "x" * 8193}, "command"),
        ({"command": ["a"]}, "command"),
        ({"port": None}, "port"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"port": True}, "port"),
        ({"port": "80"}, "port"),
        ({"ready": "healthz"}, "ready"),
        ({"ready": "/a b"}, "ready"),
        ({"ready": "/a\r\nX: y"}, "ready"),
        ({"ready": "http://other/"}, "ready"),
        ({"title": "two\nlines"}, "title"),
        ({"idle_seconds": 0}, "idle_seconds"),
        ({"start_seconds": 601}, "start_seconds"),
        ({"memory_mb": 0}, "memory_mb"),
        ({"remove": "/tmp/x"}, "remove"),
        ({"remove": ["tmp/x"]}, "remove"),
        ({"remove": ["/"]}, "remove"),
        ({"remove": ["~/"]}, "remove"),
        ({"remove": ["~"]}, "remove"),
        ({"remove": ["~root/x"]}, "remove"),
        ({"remove": ["/tmp/../etc"]}, "remove"),
        ({"remove": ["/x"] * 21}, "remove"),
        ({"env": {"HOLDFAST_TOKEN": "1"}}, "env"),
        ({"env": {"A": 1}}, "env.A"),
        ({"env": {"A=B": "1"}}, "env"),
    ],
)
def test_what_makes_no_sense(change: dict[str, object], key: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_services({"web": {**WEB, **change}})
    assert caught.value.message.startswith(f"services.web.{key}: ")


def test_two_services_do_not_share_a_port() -> None:
    with pytest.raises(BadInput, match=r"services\.a\.port: another service has 8000"):
        read_services({"a": WEB, "b": WEB})


def test_there_are_bounds() -> None:
    many = {f"s{number}": {**WEB, "port": 1000 + number} for number in range(MOST_SERVICES)}
    assert len(read_services(many)) == MOST_SERVICES
    with pytest.raises(BadInput, match="at most 16"):
        read_services({**many, "more": {**WEB, "port": 9999}})
    large = {f"s{number}": {"command": "x" * 8000, "port": 1000 + number} for number in range(5)}
    with pytest.raises(BadInput, match="32 KB together"):
        read_services(large)


@pytest.mark.parametrize("table", [None, [], "x", {"web": "x"}, {"web": []}])
def test_other_shapes(table: object) -> None:
    with pytest.raises(BadInput, match=r"^services"):
        read_services(table)

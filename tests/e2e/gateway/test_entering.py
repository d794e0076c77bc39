"""Who gets into a session's address, and who does not."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jwt
import pytest

from support.daemons.daemon import DaemonProcess
from support.gateway.visitor import FETCHES, NAVIGATES, Site, cookie_of, soon

OTHER = 3001


def code(answer: Any) -> str:
    found: str = answer.json()["error"]["code"]
    return found


def test_a_link_lets_a_browser_in_once(site: Site) -> None:
    link = site.link(path="/page?x=1")
    assert "#ticket=" in link["url"], "the secret is where no log sees it"
    door = site.ask("/.holdfast/enter", headers=NAVIGATES)
    assert door.status_code == 200 and "set-cookie" not in door.headers
    answer = site.hand_in(link["url"])
    assert (answer.status_code, answer.headers["location"]) == (303, "/page?x=1")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-hf=") and "Path=/; HttpOnly; Secure; SameSite=Lax" in cookie
    assert "inside" in site.go("/page", cookie=cookie_of(answer)).text
    again = site.hand_in(link["url"])
    assert again.status_code == 403 and "set-cookie" not in again.headers
    assert "no longer good" in again.text


def test_in_a_frame_the_cookie_is_the_frames(site: Site) -> None:
    answer = site.hand_in(site.link()["url"], dest="iframe")
    assert "SameSite=None; Partitioned" in answer.headers["set-cookie"]


def test_who_is_in_and_loads_the_page_again_stays_in(site: Site) -> None:
    url = site.link()["url"]
    cookie = cookie_of(site.hand_in(url))
    host = site.host()
    ticket = url.partition("#ticket=")[2]
    headers = {**NAVIGATES, "Origin": f"http://{host}", "Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
    again = site.ask("/.holdfast/enter", method="POST", headers=headers, data={"ticket": ticket})
    assert (again.status_code, again.headers["location"]) == (303, "/")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost"])
def test_a_link_is_handed_in_by_the_addresss_own_page(site: Site, origin: str) -> None:
    link = site.link()
    assert site.hand_in(link["url"], origin=origin).status_code == 403
    assert site.hand_in(link["url"]).status_code == 303, "it is still good"


@pytest.mark.parametrize("place", ["//evil.example/x", "/\\evil.example", "https://evil.example", "\\/evil.example"])
def test_a_link_leads_to_its_own_host(site: Site, place: str) -> None:
    answer = site.hand_in(site.link(path=place)["url"])
    location = answer.headers["location"]
    assert location.startswith("/") and location[1:2] not in ("/", "\\")


def test_nobody_gets_in_without_anything(site: Site) -> None:
    page = site.ask("/page", headers=NAVIGATES)
    assert page.status_code == 401 and "You need a link" in page.text
    assert site.session_id not in page.text and "sandbox" in page.headers["content-security-policy"]
    assert code(site.ask("/page")) == "unauthorized"
    nobody = Site(site.daemon, "ses_01aaaaaaaaaaaaaaaaaaaaaaaa")
    assert code(nobody.ask("/page")) == "unauthorized", "whether there is such a session is not told"
    assert code(site.ask(headers={"Cookie": "__Host-hf=made-up"})) == "unauthorized"


def test_a_link_is_for_one_port_of_one_session(site: Site, daemon: DaemonProcess) -> None:
    url = site.link()["url"]
    ticket = url.partition("#ticket=")[2]
    for host in (site.host(OTHER), Site(daemon, "ses_01aaaaaaaaaaaaaaaaaaaaaaaa").host()):
        answer = site.hand_in(f"http://{host}/.holdfast/enter#ticket={ticket}")
        assert answer.status_code == 403
    cookie = cookie_of(site.hand_in(url))
    assert code(site.fetch(cookie=cookie, label=OTHER)) == "unauthorized"
    elsewhere = Site(daemon, "ses_01aaaaaaaaaaaaaaaaaaaaaaaa")
    assert code(elsewhere.fetch(cookie=cookie)) == "unauthorized"


def test_pages_of_others_cannot_use_the_cookie(site: Site) -> None:
    cookie = site.enter()
    foreign = {**FETCHES, "Sec-Fetch-Site": "cross-site", "Origin": site.origin(OTHER)}
    assert code(site.fetch(cookie=cookie, headers=foreign)) == "forbidden"
    assert code(site.ask(method="POST", headers={"Cookie": cookie})) == "forbidden"
    assert site.go("/page", cookie=cookie, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_a_revoked_link_locks_out_who_came_by_it(site: Site) -> None:
    link = site.link(name="for-ada")
    cookie = cookie_of(site.hand_in(link["url"]))
    assert site.go("/page", cookie=cookie).status_code == 200
    listed = {one["id"]: one for one in site.api("GET", "/links").json()["links"]}
    assert listed[link["id"]]["name"] == "for-ada" and listed[link["id"]]["used_at"]
    assert "url" not in listed[link["id"]]
    assert site.api("DELETE", f"/links/{link['id']}").status_code == 204
    assert site.go("/page", cookie=cookie).status_code == 401
    assert code(site.api("DELETE", f"/links/{link['id']}")) == "link_not_found"


def test_a_removed_key_locks_out_its_guests(site: Site, daemon: DaemonProcess) -> None:
    with daemon.client() as client:
        key = client.post("/v1/keys", json={"name": "guest", "scope": "admin"}).json()["key"]
        cookie = cookie_of(site.hand_in(site.link(key=key)["url"]))
        late = site.link(key=key)
        assert site.go("/page", cookie=cookie).status_code == 200
        assert client.delete("/v1/keys/guest").status_code == 204
    assert site.go("/page", cookie=cookie).status_code == 401
    assert site.hand_in(late["url"]).status_code == 403
    assert code(site.by_key(key=key)) == "unauthorized"


def test_keys_come_in_with_their_scope_and_owner(site: Site, daemon: DaemonProcess) -> None:
    assert site.by_key("/page").status_code == 200
    with daemon.client() as client:
        for name, scope in (("looks", "read"), ("other", "use")):
            client.delete(f"/v1/keys/{name}")
            key = client.post("/v1/keys", json={"name": name, "scope": scope}).json()["key"]
            answer = site.by_key(key=key)
            assert code(answer) == {"looks": "forbidden", "other": "session_not_found"}[name]
    assert code(site.by_key(key="hf_wrong")) == "unauthorized"


def test_two_first_requests_get_cookies_of_their_own(site: Site) -> None:
    urls = [site.link()["url"] for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        cookies = list(pool.map(lambda url: cookie_of(site.hand_in(url)), urls))
    assert len(set(cookies)) == 8


def test_of_many_who_hand_in_one_link_one_gets_in(site: Site) -> None:
    url = site.link()["url"]
    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(lambda _: site.hand_in(url).status_code, range(8)))
    assert statuses == [303] + [403] * 7


# -- tokens of the operator's own programs -----------------------------------------------------------------------------


def secret(site: Site) -> str:
    found: str = site.api("GET", "/gateway-secret").json()["secret"]
    return found


def token(site: Site, algorithm: str = "HS256", signed_by: str | None = None, **claims: object) -> str:
    whole = {"sub": "ada", "sid": site.session_id, "exp": soon(60), **claims}
    left = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(left, secret(site) if signed_by is None else signed_by, algorithm=algorithm)


def test_a_token_is_taken_out_of_the_address_at_once(site: Site) -> None:
    answer = site.ask(f"/page?a=1&token={token(site)}&b=2", headers=NAVIGATES)
    assert (answer.status_code, answer.headers["location"]) == (303, "/page?a=1&b=2")
    cookie = cookie_of(answer)
    assert site.go("/page", cookie=cookie).status_code == 200
    again = site.go(f"/page?token={token(site)}", cookie=cookie)
    assert (again.status_code, again.headers["location"], "set-cookie" in again.headers) == (303, "/page", False)


def test_a_program_hands_a_token_in(site: Site) -> None:
    headers = {"Authorization": f"Bearer {token(site)}"}
    answer = site.ask("/.holdfast/enter", method="POST", headers=headers)
    assert answer.status_code == 200 and answer.json() == {"entered": True}
    assert site.fetch(cookie=cookie_of(answer)).status_code == 200


def test_a_token_of_the_programs_own_is_left_alone(site: Site) -> None:
    cookie = site.enter()
    whole = jwt.encode({"sid": "their own"}, "a secret of theirs, which is long enough", algorithm="HS256")
    for theirs in ("theirs", whole):
        assert site.go(f"/?token={theirs}", cookie=cookie).json()["path"] == f"/?token={theirs}"
    assert code(site.ask("/?token=theirs")) == "unauthorized"


def test_tokens_that_are_not_good(site: Site, daemon: DaemonProcess) -> None:
    with daemon.client() as client:
        other = Site(daemon, client.post("/v1/sessions", json={}).json()["id"])
    bad = {
        "of another session": token(other),
        "for another session": token(site, sid=other.session_id),
        "without a session": token(site, sid=None),
        "without an end": token(site, exp=None),
        "without a subject": token(site, sub=None),
        "that has expired": token(site, exp=soon(-5)),
        "of another algorithm": token(site, algorithm="HS512"),
        "unsigned": token(site, algorithm="none", signed_by=""),
        "signed by the key": token(site, signed_by=daemon.key.ljust(32, "x")),
        "that is none": "a.b.c",
    }
    for what, one in bad.items():
        answer = site.ask(f"/page?token={one}")
        assert (what, answer.status_code, code(answer)) == (what, 401, "unauthorized")
        answer = site.ask("/.holdfast/enter", method="POST", headers={"Authorization": f"Bearer {one}"})
        assert (what, answer.status_code) == (what, 401)
    other.api("DELETE", "")


def test_the_secret_is_for_admins(site: Site, daemon: DaemonProcess) -> None:
    with daemon.client() as client:
        client.delete("/v1/keys/user")
        key = client.post("/v1/keys", json={"name": "user", "scope": "use", "owner": "root"}).json()["key"]
    assert code(site.api("GET", "/gateway-secret", key=key)) == "forbidden"
    assert site.link(key=key)


# -- public links ------------------------------------------------------------------------------------------------------


def test_a_public_link_lets_anybody_in(site: Site) -> None:
    link = site.link(public=True, path="/page")
    host = link["url"].split("/")[2]
    assert host.startswith("p-") and len(host.partition(".")[0]) <= 63
    assert "inside" in site.ask("/page", host=host).text
    preflight = site.ask("/x", host=host, method="OPTIONS", headers={"Origin": "http://evil.example"})
    assert preflight.json()["method"] == "OPTIONS", "the program decides who else may ask"
    assert site.api("DELETE", f"/links/{link['id']}").status_code == 204
    assert code(site.ask("/page", host=host)) == "unauthorized"


def test_a_public_link_is_of_its_session(site: Site) -> None:
    host = site.link(public=True)["url"].split("/")[2]
    other = host.replace(site.session_id.replace("_", "-"), "ses-01aaaaaaaaaaaaaaaaaaaaaaaa")
    assert code(site.ask("/page", host=other)) == "unauthorized"


def test_public_links_are_off_by_default() -> None:
    with DaemonProcess(driver="process") as plain, plain.client() as client:
        id = client.post("/v1/sessions", json={}).json()["id"]
        answer = client.post(f"/v1/sessions/{id}/ports/3000/link", json={"public": True})
        assert answer.status_code == 403 and "public_links" in answer.text


# -- the API's own names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "x.localhost", ""]
)
@pytest.mark.parametrize("path", ["/healthz", "/v1/sessions", "/docs", "/metrics", "/"])
def test_the_api_answers_to_its_own_names_only(site: Site, host: str, path: str) -> None:
    headers = {"Host": host, "Authorization": f"Bearer {site.daemon.key}"}
    answer = site.pages.get(f"{site.daemon.url}{path}", headers=headers)
    assert (answer.status_code, code(answer)) == (421, "misdirected")
    assert host not in answer.text or not host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]:1", "holdfast.localhost:8080"])
def test_its_own_names(site: Site, host: str) -> None:
    assert site.pages.get(f"{site.daemon.url}/healthz", headers={"Host": host}).status_code == 200


def test_no_part_of_the_api_is_at_a_sessions_address(site: Site) -> None:
    for path in ("/v1/sessions", "/metrics", "/docs", "/healthz", "/openapi.json"):
        answer = site.ask(path, headers={"Authorization": f"Bearer {site.daemon.key}"})
        assert code(answer) == "unauthorized", "the API's key in the program's own header is nothing to us"
        assert site.by_key(path).json()["path"] == path, "it goes to the program"

"""Which requests are part of git's smart HTTP, and that the server sees what was checked and nothing else."""

import pytest

from holdfast.broker.git.smart_http import GitRequest, NotGit, parse


@pytest.mark.parametrize(
    ("method", "path", "query", "target"),
    [
        ("GET", "h/a/b.git/info/refs", "service=git-upload-pack", "/a/b.git/info/refs?service=git-upload-pack"),
        ("GET", "h/b/info/refs", "service=git-receive-pack", "/b/info/refs?service=git-receive-pack"),
        ("POST", "h/a/b/c.git/git-upload-pack", "", "/a/b/c.git/git-upload-pack"),
        ("POST", "h:8443/a/git-receive-pack", "", "/a/git-receive-pack"),
        ("POST", "h/my%20project/%C3%A4/git-receive-pack", "", "/my%20project/%C3%A4/git-receive-pack"),
        ("POST", "h/%67it/git-receive-pack", "", "/git/git-receive-pack"),
    ],
)
def test_what_goes_through(method: str, path: str, query: str, target: str) -> None:
    assert parse(method, path, query).target == target


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "h/a/b.git/info/refs", ""),  # the dumb protocol
        ("GET", "h/a/b.git/info/refs", "service=git-upload-archive"),
        ("GET", "h/a/b.git/info/refs", "service=git-upload-pack&x=1"),
        ("GET", "h/a/b.git/HEAD", ""),
        ("GET", "h/a/b.git/git-upload-pack", ""),
        ("POST", "h/a/b.git/info/refs", "service=git-upload-pack"),
        ("POST", "h/a/b.git/info/lfs/objects/batch", ""),
        ("POST", "h/a/b.git/git-upload-pack", "x=1"),
        ("POST", "h/api/v4/projects", ""),
        ("DELETE", "h/a/b.git/git-upload-pack", ""),
        ("GET", "h/info/refs", "service=git-upload-pack"),
        ("POST", "h/git-upload-pack", ""),
        ("POST", "h", ""),
        ("POST", "", ""),
        ("POST", "h/../other/git-upload-pack", ""),
        ("POST", "h/a/%2e%2e/b/git-upload-pack", ""),
        ("POST", "h/a%2f..%2fb/git-upload-pack", ""),
        ("POST", "h/a/./b/git-upload-pack", ""),
        ("POST", "h/a//b/git-upload-pack", ""),
        ("POST", "h/a%3fx/git-upload-pack", ""),
        ("POST", "h/a%23x/git-upload-pack", ""),
        ("POST", "h/a%5cb/git-upload-pack", ""),
        ("POST", "h/a%252e/git-upload-pack", ""),
        ("POST", "h/a%0d%0ab/git-upload-pack", ""),
        ("POST", "h/a%00/git-upload-pack", ""),
        ("POST", "h/%ff/git-upload-pack", ""),
    ],
)
def test_what_does_not(method: str, path: str, query: str) -> None:
    with pytest.raises(NotGit):
        parse(method, path, query)


def test_what_is_known_of_it() -> None:
    found = parse("GET", "h/a/b.git/info/refs", "service=git-receive-pack")
    assert found == GitRequest("h", "a/b.git", "git-receive-pack", asks_for_refs=True)

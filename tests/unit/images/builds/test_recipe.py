"""Recipes: what they may say, what their hash covers, and that what ships makes sense."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import BadInput
from holdfast.images.builds import dockerfile, recipe
from holdfast.images.builds.recipe import load
from holdfast.records.services import SERVICES_LABEL, read_services

ROOT = Path(__file__).parents[4]


def write(directory: Path, text: str, name: str = "mine.toml") -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def refuse(path: str) -> str:
    with pytest.raises(BadInput) as caught:
        load(path)
    return caught.value.message


def test_what_ships_is_in_order_and_pinned() -> None:
    assert recipe.shipped() == ["base", "python", "node", "agent", "desktop", "ide", "browser"]
    assert [one.name for one in load("agent").chain()] == ["base", "python", "node", "agent"]
    assert [one.name for one in load("browser").chain()] == ["base", "python", "node", "desktop", "browser"]
    assert len({load(name).digest for name in recipe.shipped()}) == 7


def test_the_agents_recipe_has_its_tools() -> None:
    chain = load("agent").chain()
    packages = {package for one in chain for package in one.packages}
    assert {"git", "gh", "ripgrep", "ca-certificates", "python3"} <= packages
    names = {one.rpartition("@")[0] for one in load("agent").npm}
    assert names == {"opencode-ai", "@earendil-works/pi-coding-agent", "sandbox-agent", "bun"}


def test_several_recipes_in_one_image(tmp_path: Path) -> None:
    found = load(write(tmp_path, 'from = "agent"\nwith = ["ide", "browser", "desktop"]\nenv = { DISPLAY = ":9" }'))
    names = [one.name for one in found.chain()]
    agent = [one.name for one in load("agent").chain()]
    assert names == [*agent, "agent-ide", "agent-ide-desktop", "agent-ide-desktop-browser", "mine"]
    assert [one.digest for one in found.chain()[: len(agent)]] == [one.digest for one in load("agent").chain()]
    assert found.services == (*load("ide").services, *load("browser").services)
    assert found.env == {**load("browser").env, "DISPLAY": ":9"}
    ide = found.chain()[len(agent)]
    assert (ide.commands, ide.files, ide.build_packages) == (
        load("ide").commands,
        load("ide").files,
        load("ide").build_packages,
    )
    assert ide.digest != load("ide").digest, "it is another image"
    plain = load(write(tmp_path, 'from = "agent"\nenv = { DISPLAY = ":9" }'))
    assert plain.digest != found.digest


def test_recipes_that_do_not_go_together(tmp_path: Path) -> None:
    write(tmp_path, 'suite = "trixie"', "other.toml")
    write(tmp_path, 'from = "node"\n[services.web]\ncommand = "x"\nport = 8765', "web.toml")
    assert "with: takes a from" in refuse(write(tmp_path, 'with = ["ide"]'))
    assert "with[0]: other begins with nothing" in refuse(write(tmp_path, 'from = "base"\nwith = ["./other.toml"]'))
    assert "port: another service has 8765" in refuse(write(tmp_path, 'from = "ide"\nwith = ["./web.toml"]'))
    assert "comes back to itself" in refuse(write(tmp_path, 'from = "base"\nwith = ["./mine.toml"]'))
    assert "there is no recipe absent" in refuse(write(tmp_path, 'from = "base"\nwith = ["absent"]'))


def test_services_that_ship() -> None:
    (ide,), (desktop,), (browser,) = (load(name).services for name in ("ide", "desktop", "browser"))
    assert (ide.name, ide.port, ide.ready, ide.idle_seconds, ide.memory_mb) == ("ide", 8765, "/healthz", 1800, 1536)
    assert ide.remove == ("~/.local/share/code-server/code-server-ipc.sock",)
    assert (desktop.name, desktop.port, desktop.ready, desktop.idle_seconds) == ("desktop", 5901, "tcp", 1800)
    assert desktop.remove == ("/tmp/.X1-lock", "/tmp/.X11-unix/X1")
    assert replace(browser, title=desktop.title, memory_mb=desktop.memory_mb, remove=desktop.remove) == desktop
    assert browser.memory_mb == 1536 and set(browser.remove) > set(desktop.remove)
    assert not load("agent").services


@pytest.mark.parametrize("name", recipe.shipped())
def test_dockerfiles_say_what_the_recipes_say(name: str) -> None:
    shown = (ROOT / "images" / name / "Dockerfile").read_text()
    assert shown == dockerfile.text(load(name)), f"make it anew: holdfast image dockerfile {name}"
    for one in load(name).chain():
        lines = [line.strip() for command in one.commands for line in command.splitlines()]
        for word in (*one.packages, *one.build_packages, *one.pip, *one.npm, *lines):
            assert word in shown


def test_a_dockerfile_removes_build_packages_in_the_layer_that_has_them(tmp_path: Path) -> None:
    text = """
        from = "node"
        build_packages = ["g++", "make"]
        npm = ["b@0.0.1"]
        commands = ["cd /opt", "false || true"]
    """
    shown = dockerfile.text(load(write(tmp_path, text)))
    layer = shown.partition("# mine\n")[2].partition("\n# the session's user")[0]
    assert layer.count("RUN ") == 1
    install = "install --yes --no-install-recommends g++ make"
    wanted = [install, "b@0.0.1", "(\ncd /opt\n)", "(\nfalse || true\n)", "purge"]
    assert sorted(wanted, key=layer.index) == wanted
    body = layer.partition("sh -eu\n")[2].rpartition("\nEND_OF_COMMAND")[0]
    assert subprocess.run(["sh", "-n"], input=body, text=True, check=False).returncode == 0


def test_a_whole_recipe(tmp_path: Path) -> None:
    (tmp_path / "motd").write_bytes(b"\0\xff")
    text = """
        from = "./parent.toml"
        name = "other"
        packages = ["git", "libfoo1:amd64=1:2.0-1+b1~x"]
        pip = ["black[d]==24.1.0"]
        npm = ["@scope/a@1.2.3-rc.1", "b@0.0.1"]
        env = { B = "mine", C = "a b" }
        commands = ["echo one"]
        [[files]]
        path = "/etc/motd"
        source = "motd"
        [[files]]
        path = "/usr/bin/x"
        content = "#!/bin/sh\\n"
        mode = "0755"
    """
    write(tmp_path, 'suite = "trixie"\nuser = "dev"\nenv = { A = "1", B = "2" }', "parent.toml")
    found = load(write(tmp_path, text))
    assert (found.name, found.suite, found.user) == ("other", "trixie", "dev")
    assert found.env == {"A": "1", "B": "mine", "C": "a b"}
    assert [(file.path, file.content, file.mode) for file in found.files] == [
        ("/etc/motd", b"\0\xff", 0o644),
        ("/usr/bin/x", b"#!/bin/sh\n", 0o755),
    ]
    assert found.parent is not None and found.parent.name == "parent"


@pytest.mark.parametrize(
    "change",
    [
        'suite = "trixie"',
        'variant = "minbase"',
        'packages = ["git"]',
        'from = "base"\nbuild_packages = ["git"]',
        'pip = ["a==1"]',
        'npm = ["a@1.0.0"]',
        'env = { A = "1" }',
        'commands = ["true"]',
        'user = "dev"',
        '[[files]]\npath = "/a"\ncontent = ""',
        'from = "base"',
        '[services.web]\ncommand = "x"\nport = 80',
    ],
)
def test_the_hash_covers_it(tmp_path: Path, change: str) -> None:
    assert load(write(tmp_path, "")).digest != load(write(tmp_path, change)).digest


def test_the_hash_knows_build_packages_from_packages(tmp_path: Path) -> None:
    texts = ('from = "base"', 'from = "base"\npackages = ["git"]', 'from = "base"\nbuild_packages = ["git"]')
    assert len({load(write(tmp_path, text)).digest for text in texts}) == 3


def test_the_hash_covers_files_and_parents_but_not_names(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one")
    write(tmp_path, '[[files]]\npath = "/a"\nsource = "file"', "parent.toml")
    child = write(tmp_path, 'from = "parent.toml"')
    before = load(child)
    assert load(write(tmp_path, 'from = "parent.toml"\nname = "x"', "x.toml")).digest == before.digest
    (tmp_path / "file").write_text("two")
    after = load(child)
    assert before.parent and after.parent
    assert before.parent.digest != after.parent.digest
    assert before.digest != after.digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services = 1", "services: must be tables"),
        ("[services.web]\nport = 80", "services.web.command: must be text"),
        ('[services.web]\ncommand = "x"\nport = 80\nextra = 1', "services.web.extra: there is no such key"),
        ("x = 1", "x: there is no such key; the keys are from,"),
        ("a = [", "is not valid TOML"),
        ('packages = "git"', "packages: must be a list of texts"),
        ('packages = ["git; rm -rf /"]', "packages[0]"),
        ('packages = ["-oX=y"]', "packages[0]"),
        ('from = "base"\nbuild_packages = ["-oX=y"]', "build_packages[0]"),
        ('build_packages = ["make"]', "build_packages: is for a recipe with a from"),
        ('pip = ["requests"]', "pip[0]: 'requests' must be pinned"),
        ('pip = ["requests>=1"]', "pip[0]"),
        ('npm = ["left-pad"]', "npm[0]: 'left-pad' must be pinned"),
        ('npm = ["left-pad@^1.0.0"]', "npm[0]"),
        ('npm = ["left-pad@latest"]', "npm[0]"),
        ('name = "Host!"', "name:"),
        ('suite = "../x"', "suite:"),
        ('variant = "huge"', "variant: must be one of"),
        ('env = { "A=B" = "1" }', "env.A=B"),
        ('env = { HOLDFAST_TOKEN = "1" }', "env.HOLDFAST_TOKEN"),
        ("env = { A = 1 }", "env: must be a table of texts"),
        ('user = "Root Toor"', "user:"),
        ('commands = ["a\\u0000b"]', "commands[0]: must not contain a NUL"),
        ('[[files]]\npath = "etc/motd"\ncontent = ""', "files[0].path"),
        ('[[files]]\npath = "/a/../b"\ncontent = ""', "files[0].path"),
        ('[[files]]\npath = "/a"', "files[0]: must have either"),
        ('[[files]]\npath = "/a"\ncontent = ""\nsource = "x"', "files[0]: must have either"),
        ('[[files]]\npath = "/a"\nsource = "absent"', "files[0].source: absent cannot be read"),
        ('[[files]]\npath = "/a"\ncontent = ""\nmode = "4755"', "files[0].mode"),
        ('[[files]]\npath = "/a"\ncontent = ""\nmode = 493', "files[0].mode"),
        ('from = "absent"', "from: there is no recipe absent; there are agent, base"),
        ('from = "./mine.toml"', "comes back to itself"),
        ('from = "base"\nsuite = "trixie"', "suite: is said by the recipe that begins"),
    ],
)
def test_what_makes_no_sense(tmp_path: Path, text: str, message: str) -> None:
    said = refuse(write(tmp_path, text))
    assert message in said
    assert "mine.toml" in said


def test_services_are_those_of_the_parent_and_ones_own(tmp_path: Path) -> None:
    parent = '[services.a]\ncommand = "a"\nport = 1001\n[services.b]\ncommand = "b"\nport = 1002'
    write(tmp_path, parent, "parent.toml")
    child = load(write(tmp_path, 'from = "parent.toml"\n[services.b]\ncommand = "mine"\nport = 1003'))
    assert [(one.name, one.command, one.port) for one in child.services] == [("a", "a", 1001), ("b", "mine", 1003)]
    clash = refuse(write(tmp_path, 'from = "parent.toml"\n[services.c]\ncommand = "c"\nport = 1001'))
    assert "mine.toml: services.a.port: another service has 1001" in clash


def test_a_recipe_without_services_has_the_hash_that_it_always_had(tmp_path: Path) -> None:
    assert load(write(tmp_path, "")).digest == load(write(tmp_path, "[services]")).digest


def test_a_dockerfile_declares_services_in_a_label(tmp_path: Path) -> None:
    text = dockerfile.text(load(write(tmp_path, '[services.web]\ncommand = "echo \\"$HOME\\""\nport = 80')))
    (line,) = [line for line in text.splitlines() if line.startswith("LABEL ")]
    name, _, value = line.removeprefix("LABEL ").partition("=")
    assert name == SERVICES_LABEL
    said = value[1:-1].replace("\\$", "$").replace('\\"', '"').replace("\\\\", "\\")
    (web,) = read_services(json.loads(said))
    assert web.command == 'echo "$HOME"'


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    assert "there is no recipe absent; there are agent, base, browser, desktop, ide, node, python, or" in refuse(
        "absent"
    )
    assert "there is no recipe" in refuse(str(tmp_path / "absent.toml"))
    assert "cannot be read" in refuse(f"{tmp_path}/")

"""The script that finishes an image: nothing of a recipe is taken for the shell's own, and nothing lent stays."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from holdfast.images.builds.log import BuildLog
from holdfast.images.builds.recipe import Recipe, RecipeFile
from holdfast.images.builds.script import MIRRORS, Lent, script

NASTY = """a 'b' "c" $(touch /tmp/owned) `touch /tmp/owned` \\ $HOME"""


def run(
    tmp_path: Path, recipe: Recipe, lent: Lent, accounts: str = "", programs: Path = Path("/usr/bin")
) -> tuple[Path, str]:
    """The script with a ``chroot`` that only calls the program; so what it runs is what it would run inside.

    ``programs`` are found before others, inside and outside.
    """
    root, tools, files = tmp_path / "root", tmp_path / "tools", tmp_path / "files"
    inside = [root / name for name in ("etc/apt/apt.conf.d", "etc/apt/sources.list.d", "bin", "usr/sbin")]
    for directory in (*inside, tools, files):
        directory.mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n" + accounts)
    (root / "etc/group").write_text("root:x:0:\n" + ("parent:x:1000:\n" if accounts else ""))
    (root / "bin/sh").write_text("")
    for name in ("etc/apt/sources.list", f"etc/apt/sources.list.d/0000{MIRRORS}", "etc/apt/apt.conf.d/99mmdebstrap"):
        (root / name).write_text("secret mirror")
    (tools / "chroot").write_text(f'#!/bin/sh\ncd "$1"; shift; PATH={programs}:/usr/bin:/bin exec "$@"\n')
    (tools / "chown").write_text("#!/bin/sh\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    for number, file in enumerate(recipe.files):
        (files / str(number)).write_bytes(file.content)
    # env -i hides our chroot from itself: it is called by its path
    text = script(recipe, files, lent).replace(' chroot "$root"', f' {tools}/chroot "$root"')
    done = subprocess.run(
        ["sh", "-c", text, "finish", str(root)],
        env={"PATH": f"{programs}:{tools}:{os.environ['PATH']}", "MMDEBSTRAP_APT_CONFIG": "/dev/null"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return root, done.stdout


def test_texts_are_texts(tmp_path: Path) -> None:
    target = tmp_path / "target dir" / "a'b"
    recipe = Recipe(
        "x",
        "here",
        env={"NASTY": NASTY},
        commands=['printf %s "$NASTY" >nasty', f"# {NASTY}\nset | grep -c ^SECRET= || true"],
        files=[RecipeFile(str(target), b"content\n", 0o750)],
    )
    root, said = run(tmp_path, recipe, Lent({"https_proxy": NASTY}, None))
    assert (root / "nasty").read_text() == NASTY
    assert target.read_text() == "content\n"
    assert target.stat().st_mode & 0o777 == 0o750
    assert "==> running printf" in said and f"==> writing {target}" in said
    assert not Path("/tmp/owned").exists()


def test_a_command_that_fails_ends_it(tmp_path: Path) -> None:
    text = script(Recipe("x", "here", commands=["false; true", "echo never"]), tmp_path, Lent({}, None))
    assert text.index("inside sh -euc 'false; true'") < text.index("echo never") < text.index("cleaning up")
    assert text.startswith("#!/bin/sh\nset -eu\n")


def test_what_was_lent_is_taken_back(tmp_path: Path) -> None:
    bundle = tmp_path / "authorities.crt"
    bundle.write_text("authorities")
    recipe = Recipe("x", "here", user="dev", commands=['test "$SSL_CERT_FILE" = /run/holdfast-build/ca.crt'])
    root, _ = run(tmp_path, recipe, Lent({}, bundle))
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert left == ["bin/sh", "etc/group", "etc/passwd"]
    assert not (root / "run/holdfast-build").exists()
    assert (root / "etc/passwd").read_text().splitlines()[-1] == "dev:x:1000:1000:dev:/workspace:/bin/sh"


def test_build_packages_go_and_take_along_only_what_came_with_them(tmp_path: Path) -> None:
    """With stand-ins for dpkg and apt, which keep the list of what is installed in a file."""
    installed, purged = tmp_path / "installed", tmp_path / "purged"
    installed.write_text("zlib1g\nmake\nlibc6:amd64\n")
    came = ["g++", "gcc", "cpp-12", "libgcc-12-dev:amd64"]
    recipe = Recipe("x", "here", Recipe("parent", "here"), build_packages=["g++", "make"], commands=["grep gcc $LIST"])
    fakes = {
        "dpkg-query": f"cat {installed}",
        "dpkg": f'test "$1" = --purge && shift && printf "%s\\n" "$@" >{purged}',
        "apt-get": f"printf '%s\\n' {' '.join(came)} >>{installed}",
    }
    recipe = replace(recipe, env={"LIST": str(installed), "PATH": f"{tmp_path / 'fakes'}:/usr/bin:/bin"})
    (tmp_path / "fakes").mkdir()
    for name, does in fakes.items():
        (tmp_path / "fakes" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "fakes" / name).chmod(0o755)
    root, said = run(tmp_path, recipe, Lent({}, None), programs=tmp_path / "fakes")
    assert sorted(purged.read_text().split()) == sorted(came), "make was there before, and stays"
    steps = ["installing g++, make", "running grep gcc", "removing g++, make", "cleaning up"]
    assert sorted(steps, key=said.index) == steps
    assert not (root / "run/holdfast-build").exists()


def test_the_user_has_the_name_of_the_recipe_and_not_of_its_parent(tmp_path: Path) -> None:
    accounts = "parent:x:1000:1000:parent:/workspace:/bin/bash\nother:x:1001:1001::/:/bin/sh\n"
    root, _ = run(tmp_path, Recipe("x", "here", user="dev"), Lent({}, None), accounts)
    users = (root / "etc/passwd").read_text().splitlines()
    assert [line.split(":")[0] for line in users] == ["root", "dev", "other"]
    assert users[1] == "dev:x:1000:1000:parent:/workspace:/bin/bash"
    assert (root / "etc/group").read_text() == "root:x:0:\ndev:x:1000:\n"


def test_the_log_has_all_and_shows_steps(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    with BuildLog(tmp_path / "log", "tiny", lambda image, step: told.append((image, step))) as log:
        for piece in (
            b"I: extracting arch",
            b"ives...\nI: using x\n==> own step\n",
            b"\xff bad\rlast part\n",
            b"x" * 5000,
        ):
            log.hear(piece)
        log.hear(b"\n" + b"".join(b"line %d\n" % number for number in range(20)))
    assert told == [("tiny", "extracting archives"), ("tiny", "own step")]
    assert log.tail().splitlines() == [f"line {number}" for number in range(8, 20)]
    assert (tmp_path / "log").read_bytes().startswith(b"I: extracting archives...\n")
    assert (tmp_path / "log").stat().st_size > 5000

"""``holdfast thread``: the conversations there are."""

from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import (
    ask,
    connection,
    do_each,
    harmless,
    plain,
    print_each,
    print_result,
    show_json,
    show_table,
    wants_json,
)
from holdfast.cli.sessions.ls import span
from holdfast.cli.threads.options import thread_options, wishes

if TYPE_CHECKING:
    from holdfast.sdk import Client, Line, Thread, ThreadEvent, ThreadInfo

HEADS = ("KEY", "OWNER", "AGENT", "SANDBOX", "SESSION", "LAST USED", "EVENTS", "PROBLEM")
LESS = ("EVENTS", "OWNER", "AGENT")
"""What goes first where a window has no room for all."""
OWNER = click.option("--owner", help="For admins: whose.")


@click.group("thread")
def command() -> None:
    """Make, list, look at, put to sleep and delete threads. `holdfast chat KEY` talks to one."""


@command.command("ls")
@click.argument("prefix", required=False)
@OWNER
@connection
def ls(prefix: str | None, owner: str | None) -> None:
    """List threads whose key begins with PREFIX, the last used first."""
    found = ask(lambda client: client.list_threads(prefix, owner=owner))
    now = datetime.now(UTC)
    rows = [row(info, now) for info in found]
    show_table(HEADS, rows, "no threads; `holdfast chat KEY` begins one", less=LESS, data={"threads": found})


def row(info: "ThreadInfo", now: datetime) -> tuple[str, ...]:
    return (
        info.key,
        info.owner,
        info.agent,
        info.sleep_state,
        info.session_id or "-",
        span(now - info.last_activity_at),
        str(info.last_seq),
        harmless(info.last_error or "-").replace("\n", " "),
    )


@command.command("resolve")
@click.argument("thread_key", metavar="KEY")
@click.option("--model", help="Which model the agent should use.")
@click.option("--channel", default="default", show_default=True, help="Another agent session in the same sandbox.")
@OWNER
@thread_options
@connection
def resolve(thread_key: str, model: str | None, channel: str, owner: str | None, **setup: Any) -> None:
    """Make sure that a thread can be talked to, before there is anything to say, and print its session's id.

    Makes the thread and its sandbox if there are none, wakes them, starts the agent. The options say how a new
    thread is set up, as for `holdfast chat`, or change that of one that is there.
    """
    options = wishes(setup) | ({"model": model} if model else {})
    found = ask(lambda client: client.thread(thread_key, owner=owner).resolve(channel=channel, options=options or None))
    if wants_json():
        show_json(found)
    else:
        click.echo(f"holdfast: {found.how}{f' ({harmless(found.why)})' if found.why else ''}", err=True)
        click.echo(found.session_id)


@command.command("show")
@click.argument("thread_key", metavar="KEY")
@OWNER
@connection
def show(thread_key: str, owner: str | None) -> None:
    """Show all that is known of a thread. Wakes nothing."""
    info = ask(lambda client: client.thread(thread_key, owner=owner).info())
    if wants_json():
        show_json(info)
        return
    for name, value in plain(info).items():
        if name == "channels":
            value = ", ".join(f"{one['channel']} ({one['status']})" for one in value)
        elif name == "options":
            value = ", ".join(f"{option}={given}" for option, given in value.items() if given)
        elif name == "preview_token" and value:
            value = "(with --json)"
        elif name == "usage" and value:
            value = f"{value['calls']} calls to models, {value['cost_usd']:.4f} USD"
        click.echo(f"{name.replace('_', ' ')}: {harmless('-' if value in (None, '') else str(value))}")


@command.command("log")
@click.argument("thread_key", metavar="KEY")
@click.option("--events", "as_events", is_flag=True, help="All events, and not only what was said.")
@click.option("--follow", "-f", is_flag=True, help="With --events: wait for what is yet to happen.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="With --events: from the event after this number.")
@click.option("--channel", default="default", show_default=True, help="Whose transcript.")
@OWNER
@connection
def log(thread_key: str, as_events: bool, follow: bool, after: int, channel: str, owner: str | None) -> None:
    """Print what was said in a thread; with --events, all that happened."""

    async def run(client: "Client") -> None:
        thread = client.thread(thread_key, owner=owner)
        if as_events or follow:
            async with aclosing(thread.events(after, follow=follow)) as events:
                async for event in events:
                    print_result(event, event_line(event))
            return
        for line in await thread.transcript(channel=channel):
            print_result(line, said(line))

    ask(run)


def said(line: "Line") -> str:
    who = line.author or line.role
    return f"{line.at.strftime('%Y-%m-%d %H:%M')} {harmless(who)}: {harmless(line.text.rstrip())}"


def event_line(event: "ThreadEvent") -> str:
    """Show number, time, kind, turn, and what it tells, separated by tabs."""
    import json

    words = (str(event.seq), event.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), event.kind, event.turn_id or "-")
    return "\t".join((*words, harmless(json.dumps(plain(event.data), ensure_ascii=False))))


@command.command("abort")
@click.argument("thread_key", metavar="KEY")
@click.option("--channel", default="default", show_default=True, help="Whose turn.")
@click.option("--queued", is_flag=True, help="Take back also the messages that wait there.")
@OWNER
@connection
def abort(thread_key: str, channel: str, queued: bool, owner: str | None) -> None:
    """End the turn that is running in a thread."""
    turn = ask(lambda client: client.thread(thread_key, owner=owner).abort(channel=channel, queued=queued))
    print_result({"turn": turn}, "no turn is running" if turn is None else turn.id)


@command.command("answer")
@click.argument("thread_key", metavar="KEY")
@click.argument("question_id", metavar="QUESTION")
@click.argument("answer_", metavar="ANSWER")
@OWNER
@connection
def answer(thread_key: str, question_id: str, answer_: str, owner: str | None) -> None:
    """Answer a question of a running turn, with the id of an option or any text.

    `holdfast thread log KEY --events` shows questions with their ids and options.
    """
    ask(lambda client: client.thread(thread_key, owner=owner).answer(question_id, answer_))
    if wants_json():
        show_json({"answered": question_id})


@command.command("pause")
@click.argument("thread_key", metavar="KEY")
@click.option("--hibernate", is_flag=True, help="Stop its sandbox, and keep its files only.")
@OWNER
@connection
def pause(thread_key: str, hibernate: bool, owner: str | None) -> None:
    """Put a thread's sandbox to sleep. The next message wakes it."""
    info = ask(lambda client: client.thread(thread_key, owner=owner).pause(hibernate=hibernate))
    print_result(info, info.sleep_state)


@command.command("rm")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@OWNER
@connection
def rm(keys: tuple[str, ...], owner: str | None) -> int:
    """Delete threads with their sandboxes, transcripts and files, and print their keys."""
    done, failed = ask(lambda client: do_each(keys, lambda key: _delete(client.thread(key, owner=owner))))
    return print_each({"deleted": done}, done, failed)


async def _delete(thread: "Thread") -> str:
    await thread.info()  # the API takes a thread that is not there for deleted; who types a key wants to hear of it
    await thread.delete()
    return thread.key

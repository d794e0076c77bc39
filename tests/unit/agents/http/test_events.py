"""Server-sent events out of bytes."""

from holdfast.agents.http import Parser, ServerSentEvent

STREAM = b": hello\n\nevent: message\nid: 1\ndata: {\ndata:  }\n\nid: 2\r\ndata:two\r\n\r\ndata: three\n\nid: 4\n\n"
EVENTS = [ServerSentEvent("1", "{\n }"), ServerSentEvent("2", "two"), ServerSentEvent("2", "three")]


def test_pieces_may_be_cut_anywhere() -> None:
    for cut in range(len(STREAM) + 1):
        parser = Parser()
        assert parser.feed(STREAM[:cut]) + parser.feed(STREAM[cut:]) == EVENTS
    parser = Parser()
    assert [event for at in range(len(STREAM)) for event in parser.feed(STREAM[at : at + 1])] == EVENTS


def test_what_is_too_long_is_skipped() -> None:
    parser = Parser(most=10)
    assert parser.feed(b"data: " + b"x" * 11 + b"\n\ndata: 1\n\n") == [ServerSentEvent("", "1")]
    assert parser.feed(b"data: 123456\ndata: 789012\n\ndata: 2\n\n") == [ServerSentEvent("", "2")]


def test_a_long_event_in_many_pieces_takes_time_in_proportion() -> None:
    parser = Parser()
    event = b"data: " + b"x" * (15 << 20) + b"\n\n"
    found = [one for at in range(0, len(event), 1000) for one in parser.feed(event[at : at + 1000])]
    assert [len(one.data) for one in found] == [15 << 20]

"""Nothing leaves a leader that does not know whether another one has taken its place."""

from slipstream.testing.driver import Driver, encode


def test_what_is_too_much_to_be_gathered_waits_as_well() -> None:
    """An answer that was made before must not leave with a large message either."""
    driver = Driver().start()
    reader, writer = driver.client(), driver.client()
    reader.subscribe("a")
    is_sure = False
    driver.engine.output.may_answer = lambda: is_sure
    for _ in range(20):
        writer.session.receive(encode("a", b"x" * 900_000))
    assert reader.take() == []
    is_sure = True
    driver.finish()
    assert len(reader.take()) == 20


def test_a_connection_that_is_closed_meanwhile_is_told_nothing() -> None:
    driver = Driver().start()
    client = driver.client()
    client.take()
    before = bytes(client.transport.written)
    driver.engine.output.may_answer = lambda: False
    client.session.put_line(b"stale\r\n")
    client.session.close("Server Shutdown")
    assert bytes(client.transport.written) == before

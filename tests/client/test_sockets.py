"""Sockets that are not simply dialled: through one's own tunnel, from one's own address."""

import asyncio
import socket

import pytest

import slipstream
from slipstream.client import ConnectError


async def dial(host: str, port: int) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, (host, port))
    return made


async def test_a_socket_of_ones_own_is_used_each_time(server_url: str) -> None:
    asked: list[tuple[str, int]] = []

    async def tunnel(host: str, port: int) -> socket.socket:
        asked.append((host, port))
        real = server_url.rpartition(":")[2]
        return await dial("127.0.0.1", int(real))

    async with await slipstream.connect("nats://far.example:4222", open_socket=tunnel) as nc:
        await nc.flush()
        await nc.reconnect()
        await nc.flush()
    assert asked == [("far.example", 4222)] * 2


async def test_a_tunnel_that_fails_is_a_failed_connect(server_url: str) -> None:
    async def broken(host: str, port: int) -> socket.socket:
        raise ZeroDivisionError("no tunnel")

    with pytest.raises(ConnectError, match=r"cannot be reached: .*no tunnel"):
        await slipstream.connect(server_url, open_socket=broken)


async def test_our_side_has_the_address_we_choose(server_url: str) -> None:
    async with await slipstream.connect(server_url, local_address="127.0.0.7") as nc:
        assert nc.server_info.client_ip == "127.0.0.7"

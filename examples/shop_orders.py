"""Typed orders: what is published and what is consumed are objects, on the wire they are JSON.

Run ``slipstream serve``, then ``python examples/shop_orders.py [url]``.
"""

import asyncio
import sys
from dataclasses import dataclass

import slipstream


@dataclass
class Order:
    """What a shop has sold."""

    order_id: int
    item: str = ""


async def main(url: str) -> None:
    """Publish orders, and process them."""
    async with slipstream.connect(url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="SHOP_ORDERS", subjects=["orders.>"])
        for number in range(1, 11):
            ack = await js.publish(f"orders.new.{number}", Order(number, f"item {number}"))
            print(f"order {number} stored as {ack.sequence}")

        consumer = await stream.create_or_update_consumer(durable_name="order_processor")
        async with consumer.messages(type=Order, stop_after=10) as messages:
            async for message in messages:
                order = message.decode(Order)
                print(f"processing order {order.order_id}: {order.item}")
                await message.ack()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))

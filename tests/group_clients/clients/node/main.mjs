// nats.js as a person would use it: publishes numbered messages and consumes them at the same time.
//
// `node main.mjs STREAM URLS`; what it says and what it is told is in tests/group_clients.

import { writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const ANSWER_MAX = 500; // ms
const PAUSE = 10; // between two messages
const AGAIN = 20; // after an error
const BATCH = 32;

let stopped = false;

// An event, with its time in microseconds.
function say(event, ...words) {
  const now = Math.round((performance.timeOrigin + performance.now()) * 1000);
  writeSync(1, `${[event, now, ...words].join(" ")}\n`);
}

function oneLine(error) {
  return String(error).replaceAll("\n", " ");
}

// Says what becomes of the connection, which is made again for as long as it takes.
async function watch(nc) {
  for await (const status of nc.status()) {
    if (status.type === "disconnect") say("disconnected");
    else if (status.type === "reconnect") say("reconnected", status.server);
    else say("note", status.type, oneLine(status.error ?? ""));
  }
}

// One message after the other, each with its id until it is acknowledged.
async function publish(js, stream) {
  let number = 0;
  for (; !stopped; number++) {
    for (let tries = 1; ; tries++) {
      try {
        const options = { msgID: String(number), timeout: ANSWER_MAX };
        const ack = await js.publish(`${stream}.s`, String(number), options);
        say("acknowledged", number, ack.seq, tries, ack.duplicate ? 1 : 0);
        break;
      } catch (error) {
        say("refused", number, oneLine(error));
        await sleep(AGAIN);
      }
    }
    await sleep(PAUSE);
  }
  say("stopped", number);
}

// Take messages in batches, and settle each with a double acknowledgement.
async function consume(js, stream) {
  const consumer = await js.consumers.get(stream, "C");
  for (;;) {
    say("asked");
    try {
      const messages = await consumer.fetch({ max_messages: BATCH, expires: 1000 });
      for await (const message of messages) await settle(message);
    } catch (error) {
      say("note", oneLine(error));
      await sleep(AGAIN);
    }
  }
}

async function settle(message) {
  const number = message.string();
  say("delivered", number, message.info.streamSequence, message.info.deliveryCount);
  try {
    if (await message.ackAck({ timeout: ANSWER_MAX })) say("settled", number);
    else say("unsettled", number, "the server has said no");
  } catch (error) {
    say("unsettled", number, oneLine(error));
  }
}

// Publish until a line comes, and consume until there will be no more of them.
const [stream, urls] = process.argv.slice(2);
const nc = await connect({ servers: urls.split(","), maxReconnectAttempts: -1 });
watch(nc);
const js = jetstream(nc);
publish(js, stream);
consume(js, stream);
process.stdin.on("data", () => (stopped = true));
process.stdin.on("end", () => process.exit(0));

//! async-nats as a person would use it: publishes numbered messages and consumes them at the same time.
//!
//! `client STREAM URLS`; what it says and what it is told is in tests/group_clients.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::{self, context::Context, message::PublishMessage};
use async_nats::{ConnectOptions, Error, Event};
use futures::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{sleep, timeout};

const ANSWER_MAX: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(10); // between two messages
const AGAIN: Duration = Duration::from_millis(20); // after an error
const BATCH: usize = 32;
const EXPIRES: Duration = Duration::from_secs(1);

static STOPPED: AtomicBool = AtomicBool::new(false);

/// An event, with its time in microseconds.
fn say(event: &str, words: impl Display) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    let line = format!("{event} {} {words}\n", now.as_micros());
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

fn one_line(error: impl Display) -> String {
    error.to_string().replace('\n', " ")
}

/// A connection that is made again for as long as it takes.
async fn connect(urls: &str) -> Result<async_nats::Client, Error> {
    let options = ConnectOptions::new().event_callback(|event| async move {
        match event {
            Event::Connected => say("reconnected", ""),
            Event::Disconnected => say("disconnected", ""),
            other => say("note", one_line(other)),
        }
    });
    let urls: Vec<&str> = urls.split(',').collect();
    Ok(options.connect(urls).await?)
}

async fn publish_one(js: &Context, stream: &str, number: u64) -> Result<(u64, u8), Error> {
    let body = number.to_string();
    let message = PublishMessage::build().message_id(&body).payload(body.clone().into());
    let ack = js.send_publish(format!("{stream}.s"), message).await?;
    let done = timeout(ANSWER_MAX, async { ack.await }).await??;
    Ok((done.sequence, done.duplicate.into()))
}

/// One message after the other, each with its id until it is acknowledged.
async fn publish(js: Context, stream: String) {
    let mut number = 0;
    while !STOPPED.load(Ordering::Relaxed) {
        for tries in 1.. {
            match publish_one(&js, &stream, number).await {
                Ok((sequence, is_double)) => {
                    say("acknowledged", format!("{number} {sequence} {tries} {is_double}"));
                    break;
                }
                Err(error) => say("refused", format!("{number} {}", one_line(error))),
            }
            sleep(AGAIN).await;
        }
        number += 1;
        sleep(PAUSE).await;
    }
    say("stopped", number);
}

/// Take messages in batches, and settle each with a double acknowledgement.
async fn consume(js: Context, stream: String) -> Result<(), Error> {
    let consumer: jetstream::consumer::PullConsumer = js.get_stream(&stream).await?.get_consumer("C").await?;
    loop {
        say("asked", "");
        let batch = consumer.batch().max_messages(BATCH).expires(EXPIRES);
        let mut messages = match batch.messages().await {
            Ok(messages) => messages,
            Err(error) => {
                say("note", one_line(error));
                sleep(AGAIN).await;
                continue;
            }
        };
        // Where the connection has ended it would wait for 5 s more.
        while let Ok(Some(next)) = timeout(EXPIRES + ANSWER_MAX, messages.next()).await {
            match next {
                Ok(message) => settle(message).await?,
                Err(error) => say("note", one_line(error)),
            }
        }
    }
}

async fn settle(message: jetstream::Message) -> Result<(), Error> {
    let about = message.info()?;
    let number = String::from_utf8_lossy(&message.payload).into_owned();
    say("delivered", format!("{number} {} {}", about.stream_sequence, about.delivered));
    match timeout(ANSWER_MAX, message.double_ack()).await {
        Ok(Ok(())) => say("settled", number),
        Ok(Err(error)) => say("unsettled", format!("{number} {}", one_line(error))),
        Err(error) => say("unsettled", format!("{number} {error}")),
    }
    Ok(())
}

/// Publish until a line comes, and consume until there will be no more of them.
#[tokio::main]
async fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().collect();
    let client = connect(&words[2]).await?;
    let js = jetstream::context::ContextBuilder::new().timeout(ANSWER_MAX).build(client);
    tokio::spawn(publish(js.clone(), words[1].clone()));
    let consuming = tokio::spawn(consume(js, words[1].clone()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let told = async {
        while let Ok(Some(_)) = lines.next_line().await {
            STOPPED.store(true, Ordering::Relaxed);
        }
    };
    tokio::select! {
        () = told => std::process::exit(0),
        ended = consuming => ended?,
    }
}

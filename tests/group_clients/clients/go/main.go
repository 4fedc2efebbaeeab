// nats.go as a person would use it: publishes numbered messages and consumes them at the same time.
//
// `client STREAM URLS`; what it says and what it is told is in tests/group_clients.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	answerMax = 500 * time.Millisecond
	pause     = 10 * time.Millisecond // between two messages
	again     = 20 * time.Millisecond // after an error
	batch     = 32
)

var stopped atomic.Bool

// say prints an event, with its time in microseconds.
func say(event string, words ...any) {
	line := append([]any{event, time.Now().UnixMicro()}, words...)
	fmt.Fprintln(os.Stdout, line...)
}

func oneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func btoi(is bool) int {
	if is {
		return 1
	}
	return 0
}

// must ends the program for what a person could not go on after.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// connect gives a connection that is made again for as long as it takes.
func connect(urls string) *nats.Conn {
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { say("disconnected") }),
		nats.ReconnectHandler(func(nc *nats.Conn) { say("reconnected", nc.ConnectedUrl()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { say("note", oneLine(err)) }))
	must(err)
	return nc
}

// publish sends one message after the other, each with its id until it is acknowledged.
func publish(js jetstream.JetStream, stream string) {
	number := 0
	for ; !stopped.Load(); number++ {
		body := strconv.Itoa(number)
		for tries := 1; ; tries++ {
			ctx, cancel := context.WithTimeout(context.Background(), answerMax)
			ack, err := js.Publish(ctx, stream+".s", []byte(body), jetstream.WithMsgID(body))
			cancel()
			if err == nil {
				say("acknowledged", number, ack.Sequence, tries, btoi(ack.Duplicate))
				break
			}
			say("refused", number, oneLine(err))
			time.Sleep(again)
		}
		time.Sleep(pause)
	}
	say("stopped", number)
}

// consume takes messages in batches, and settles each with a double acknowledgement.
func consume(js jetstream.JetStream, stream string) {
	consumer, err := js.Consumer(context.Background(), stream, "C")
	must(err)
	for {
		say("asked")
		messages, err := consumer.Fetch(batch, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			say("note", oneLine(err))
			time.Sleep(again)
			continue
		}
		for message := range messages.Messages() {
			settle(message)
		}
		if err := messages.Error(); err != nil {
			say("note", oneLine(err))
			time.Sleep(again)
		}
	}
}

func settle(message jetstream.Msg) {
	about, err := message.Metadata()
	must(err)
	number := string(message.Data())
	say("delivered", number, about.Sequence.Stream, about.NumDelivered)
	ctx, cancel := context.WithTimeout(context.Background(), answerMax)
	defer cancel()
	if err = message.DoubleAck(ctx); err == nil {
		say("settled", number)
	} else {
		say("unsettled", number, oneLine(err))
	}
}

// main publishes until a line comes, and consumes until there will be no more of them.
func main() {
	nc := connect(os.Args[2])
	js, err := jetstream.New(nc)
	must(err)
	go publish(js, os.Args[1])
	go consume(js, os.Args[1])
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		stopped.Store(true)
	}
}

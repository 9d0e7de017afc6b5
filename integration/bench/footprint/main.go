// Command footprint measures what documents cost the servers that hold them.
//
//	go run ./integration/bench/footprint -what stores                 # the embedded Redis beside miniredis
//	go run ./integration/bench/footprint -what nats                   # what nats-server keeps
//	go run ./integration/bench/footprint -what nats -n 100000 -settle 15s
//
// Run it from the folder of the module.
//
// stores: one store with -n documents of 256 bytes that have a TTL of their own, filled
// and used by package store and package sink. A time is the CPU time of one operation in this
// process, which is both server and client. The heap is what is live after a collection.
//
// nats: a nats-server of its own, with JetStream on disk. "came and went": lapse's processor
// runs in this process, -n documents are written and expire, the log is purged as truncation
// does it, and the events age out; the figures are those of nats-server after each of that,
// less those of before the first document. "kept": -n messages as large as events of
// documents of 256 bytes are published to a stream, with and without ids and subjects of
// their own. The heap is what is live after a collection that the program asks for.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "footprint:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	what := flag.String("what", "stores", "stores or nats")
	numbers := flag.String("n", "100000,1000000", "numbers of documents")
	settle := flag.Duration("settle", 150*time.Second, "how long nats-server is left alone before a figure: it lets go of an index two minutes after its last use")
	flag.Parse()
	var counts []int
	for text := range strings.SplitSeq(*numbers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < perCommit {
			return fmt.Errorf("-n %s: use numbers of at least %d with commas between them", text, perCommit)
		}
		counts = append(counts, n)
	}
	switch *what {
	case "stores":
		return measureStores(ctx, os.Stdout, counts)
	case "nats":
		for _, n := range counts {
			if err := measureNATS(ctx, os.Stdout, n, *settle); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("-what %s: use stores or nats", *what)
}

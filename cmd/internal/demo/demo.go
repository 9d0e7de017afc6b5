// Package demo is "lapse demo": a lapse of its own, with everything embedded and its data in a
// temporary directory, in which documents come and go. [Run] starts it (lapse.go), writes to it
// (traffic.go) and prints what happens (report.go).
package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
)

// Options say how to run the demo.
type Options struct {
	Version    string        // as serve.Options has it
	HTTPListen string        // address of the console; defaultHTTP if it is free, or any, if empty
	Rate       int           // writes a second
	For        time.Duration // when to end; 0: when ctx is done
}

// defaultHTTP is the address of the console, if nobody else has it.
const defaultHTTP = "127.0.0.1:7070"

// Run runs the demo until ctx is done or its time is over, and removes its data.
func Run(ctx context.Context, opts Options, streams output.Streams) error {
	if opts.For > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, opts.For)
		defer stop()
	}
	l, err := start(ctx, opts, streams)
	if err != nil {
		return err
	}
	err = play(ctx, l, opts, streams)
	if stopErr := l.stop(); stopErr != nil {
		return stopErr
	}
	if ctx.Err() != nil {
		return nil // what failed did so because of the end
	}
	return err
}

// play writes and prints, until ctx is done or one of the two cannot go on.
func play(ctx context.Context, l *lapse, opts Options, streams output.Streams) error {
	if l.at.NATS == "" {
		return nil // it was told to stop while it was starting
	}
	c, err := client.Connect(client.Options{
		Server: l.at.NATS,
		Notice: func(text string) { _, _ = fmt.Fprintln(streams.Err, "lapse: "+text) },
	})
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := newTraffic(ctx, c)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(streams.Out, welcome(l, opts)); err != nil {
		return err
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-l.ended:
			stop(fmt.Errorf("lapse has ended"))
		case <-ctx.Done():
		}
	}()
	var seen tally
	var running sync.WaitGroup
	running.Go(func() { t.run(ctx, opts.Rate, &seen) })
	running.Go(func() { stop(seen.watch(ctx, c)) })
	running.Go(func() { stop(seen.print(ctx, c, streams.Out)) })
	running.Wait()
	return context.Cause(ctx)
}

// welcome tells what runs, and what to do with it.
func welcome(l *lapse, opts Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
A lapse of its own, with NATS and Redis in this process. Its data is in %s until it ends.

    %s/    the console, in a browser
`, l.dir, l.at.HTTP)
	if opts.HTTPListen == "" && !strings.HasSuffix(l.at.HTTP, defaultHTTP) {
		fmt.Fprintf(&b, "    (The usual port, %s, is taken.)\n", defaultHTTP)
	}
	fmt.Fprintf(&b, `
%d writes a second go to four collections:

    carts       default TTL %d s; a change renews a cart, a checkout deletes it
    sessions    each with a TTL of its own, %d to %d s; some are renewed
    readings    default TTL %d s; most of the writes, and sometimes one that is not valid
    mail        messages to mail.send, each delivered at its time, %d to %d s later

Type in another terminal:

`, opts.Rate, seconds(cartTTL), seconds(shortestSession), seconds(longestSession), seconds(readingTTL), seconds(soonestMail), seconds(latestMail))
	lapse := program()
	for _, command := range []string{
		"watch carts", "watch --due mail.send", "collections", "forecast sessions --within 2m", `put carts mine '{"item":"tea"}' --ttl 5`,
		"config carts --default-ttl 10 --dry-run",
	} {
		fmt.Fprintf(&b, "    %s %s --server %s\n", lapse, command, l.at.NATS)
	}
	fmt.Fprintf(&b, "    curl -N '%s/v1/events?collection=carts'\n\nCtrl-C ends it.\n\n", l.at.HTTP)
	return b.String()
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// program is how the user calls lapse.
func program() string {
	if _, err := exec.LookPath("lapse"); err == nil {
		return "lapse"
	}
	self, err := os.Executable()
	if err != nil || strings.Contains(self, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/lapse"
	}
	return self
}

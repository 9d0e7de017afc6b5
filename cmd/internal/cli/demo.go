package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/cmd/internal/web"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// demoCommand is lapse serve on a directory that goes, and with documents that come and go.
type demoCommand struct {
	Rate   int    `default:"50" placeholder:"N"`
	For    Period `placeholder:"TIME"`
	Listen string `name:"http-listen" env:"LAPSE_HTTP_LISTEN" group:"http" placeholder:"HOST:PORT"`
}

// demoHTTP is the address of the console of a demo, if nobody else has it.
const demoHTTP = "127.0.0.1:7070"

// demoCollections are the collections of a demo.
var demoCollections = []struct{ name, config, about string }{
	{
		"carts", `{"defaultTtl":15,"warnBefore":[5]}`,
		"default TTL 15 s; a change renews a cart, a checkout deletes it",
	},
	{"sessions", `{"defaultTtl":-1}`, "each with a TTL of its own, 10 to 120 s; some are renewed"},
	{"readings", `{"defaultTtl":5}`, "default TTL 5 s; most of the writes, and sometimes one that is not valid"},
	{"mail", `{"defaultTtl":-1}`, "messages to mail.send, each delivered at its time, 2 to 20 s later"},
}

// Run runs the command: until ctx is done or its time is over. Then it removes the data.
func (c *demoCommand) Run(ctx context.Context, streams output.Streams) error {
	if c.Rate < 1 || c.Rate > 1000 {
		return output.Usagef("--rate %d is not valid: use a number from 1 to 1000", c.Rate)
	}
	if c.For < 0 {
		return output.Usagef("--for %s is not valid: use a duration over 0, such as 10m", time.Duration(c.For))
	}
	if c.For > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(c.For))
		defer stop()
	}
	listen := c.Listen
	if listen == "" {
		listen = freeAddress(demoHTTP)
	}
	dir, err := os.MkdirTemp("", "lapse-demo-")
	if err != nil {
		return err
	}
	release, _, _ := version()
	serving, end := context.WithCancel(context.WithoutCancel(ctx)) // the writes end first
	ended := make(chan struct{})
	var served error // once ended is closed
	go func() {
		defer close(ended)
		served = serve.Run(serving, serve.Options{
			Version:    release,
			Logger:     slog.New(slog.NewTextHandler(streams.Err, &slog.HandlerOptions{Level: slog.LevelWarn})),
			NATSListen: "127.0.0.1:0", NATSSync: time.Minute, Data: dir,
			HTTP: web.Options{Listen: listen}, ReadyFile: filepath.Join(dir, "ready"),
			Processor: processor.Options{Prefix: wire.DefaultPrefix},
		})
	}()
	err = c.play(ctx, dir, ended, streams)
	end()
	<-ended
	if removeErr := os.RemoveAll(dir); removeErr != nil {
		return errors.Join(served, fmt.Errorf("remove the data of the demo: %w", removeErr))
	}
	if served != nil || ctx.Err() != nil {
		return served // what else failed did so because of the end
	}
	return err
}

// freeAddress is the address, or one with any port if somebody else listens there.
func freeAddress(address string) string {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close()
	return address
}

// demo is a demo under way.
type demo struct {
	conn *client.Client
	rate int

	// What has happened since the last line of figures.
	mu       sync.Mutex
	written  int
	rejected int
	failed   error // the last write that had no outcome
	late     []time.Duration
}

// play writes documents and prints figures, until ctx is done, lapse has ended, or something fails.
func (c *demoCommand) play(ctx context.Context, dir string, ended <-chan struct{}, streams output.Streams) error {
	at, err := ready(ctx, filepath.Join(dir, "ready"), ended)
	if err != nil || at.NATS == "" {
		return err
	}
	conn, err := client.Connect(client.Options{Server: at.NATS, Notice: streams.Notice})
	if err != nil {
		return err
	}
	defer conn.Close()
	d := &demo{conn: conn, rate: c.Rate}
	for _, one := range demoCollections {
		m := client.Message{Subject: wire.DefaultPrefix.Config(one.name), Body: []byte(one.config)}
		if _, err := conn.Write(ctx, m); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(streams.Out, c.welcome(dir, at)); err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error {
		select {
		case <-ended:
			return errors.New("lapse has ended")
		case <-ctx.Done():
			return nil
		}
	})
	running.Go(func() error { return d.write(ctx) })
	running.Go(func() error { return conn.Watch(ctx, client.WatchOptions{}, d.expired) })
	running.Go(func() error { return d.print(ctx, streams) })
	return running.Wait()
}

// addresses are those of a ready file. They are empty if lapse has ended before it was ready.
type addresses struct{ NATS, HTTP string }

// ready waits until lapse has written its ready file, has ended, or ctx is done.
func ready(ctx context.Context, file string, ended <-chan struct{}) (at addresses, err error) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		content, err := os.ReadFile(file)
		if err == nil {
			return at, json.Unmarshal(content, &at)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return at, err
		}
		select {
		case <-again.C:
		case <-ended:
			return at, nil
		case <-ctx.Done():
			return at, nil
		}
	}
}

// welcome tells what runs, and what to do with it.
func (c *demoCommand) welcome(dir string, at addresses) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
A lapse of its own, with NATS and Redis in this process. Its data is in %s until it ends.

    %s/    the console, in a browser
`, dir, at.HTTP)
	if c.Listen == "" && !strings.HasSuffix(at.HTTP, demoHTTP) {
		fmt.Fprintf(&b, "    (The usual port, %s, is taken.)\n", demoHTTP)
	}
	fmt.Fprintf(&b, "\n%d writes a second go to four collections:\n\n", c.Rate)
	for _, one := range demoCollections {
		fmt.Fprintf(&b, "    %-10s  %s\n", one.name, one.about)
	}
	b.WriteString("\nType in another terminal:\n\n")
	lapse := program()
	for _, command := range []string{
		"watch carts", "watch --due mail.send", "collections", "forecast sessions --within 2m",
		`put carts mine '{"item":"tea"}' --ttl 5`, "config carts --default-ttl 10 --dry-run",
	} {
		fmt.Fprintf(&b, "    %s %s --server %s\n", lapse, command, at.NATS)
	}
	fmt.Fprintf(&b, "    curl -N '%s/v1/events?collection=carts'\n\nCtrl-C ends it.\n\n", at.HTTP)
	return b.String()
}

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

// write writes at the rate until ctx is done, and waits for 16 outcomes at a time at most. If lapse does not keep up,
// it
// writes less.
func (d *demo) write(ctx context.Context) error {
	var writes errgroup.Group
	writes.SetLimit(16)
	next := time.NewTicker(time.Second / time.Duration(d.rate))
	defer next.Stop()
	for n := 1; ctx.Err() == nil; n++ {
		m := demoWrite(n, time.Now())
		writes.Go(func() error {
			result, err := d.conn.Write(ctx, m)
			d.mu.Lock()
			defer d.mu.Unlock()
			switch {
			case ctx.Err() != nil:
			case err != nil:
				d.failed = err
			case result.Outcome.Status >= wire.StatusBadRequest:
				d.rejected++
			default:
				d.written++
			}
			return nil
		})
		select {
		case <-next.C:
		case <-ctx.Done():
		}
	}
	return writes.Wait()
}

// demoWrite is the write with a number: of twenty, thirteen are readings, four are about carts, two about a session,
// and
// one is a message. What it changes was written a few writes before, so that it is still there at one write a second.
func demoWrite(n int, now time.Time) client.Message {
	message := func(op wire.Op, collection, id string, number int, body any) client.Message {
		m := client.Message{Subject: wire.DefaultPrefix.Write(op, collection, fmt.Sprintf("%s-%d", id, number))}
		if op.HasBody() {
			m.Body, _ = json.Marshal(body) // these bodies cannot fail
		}
		return m
	}
	oneOf := func(texts ...string) string { return texts[rand.IntN(len(texts))] }
	goods := oneOf("tea", "coffee", "bread", "butter", "jam", "honey", "milk", "oats")
	cart := map[string]any{"item": goods, "count": 1 + rand.IntN(4)}
	switch n % 20 {
	case 3, 13:
		return message(wire.Create, "carts", "cart", n, cart)
	case 6:
		return message(wire.Patch, "carts", "cart", n-3, cart)
	case 16:
		op := wire.Patch
		if n%40 == 16 {
			op = wire.Delete
		}
		return message(op, "carts", "cart", n-3, cart)
	case 0:
		session := map[string]any{"device": oneOf("phone", "tablet", "laptop"), "ttl": 10 + rand.IntN(110)}
		return message(wire.Upsert, "sessions", "session", n, session)
	case 5:
		if n > 5 {
			return message(wire.Touch, "sessions", "session", n-5, nil)
		}
	case 10:
		mail := map[string]any{"to": fmt.Sprintf("customer-%d@example.com", n), "about": goods}
		m := message(wire.Create, "mail", "mail", n, mail)
		m.Target = "mail.send"
		m.ExpiresAt = now.Add(2*time.Second + rand.N(18*time.Second)).UTC().Format(time.RFC3339Nano)
		return m
	}
	room := oneOf("cellar", "kitchen", "attic", "greenhouse")
	reading := map[string]any{"room": room, "celsius": float64(150+rand.IntN(100)) / 10}
	if n%200 == 199 {
		reading = map[string]any{"ttl": 0.5}
	}
	return message(wire.Upsert, "readings", room, n, reading)
}

// expired counts an expiry event, and how late it has come.
func (d *demo) expired(n client.Notification) error {
	late := time.Since(time.UnixMilli(int64(n.Expired.ExpiredAt)))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.late = append(d.late, late)
	return nil
}

// print prints a line of figures every three seconds, until ctx is done.
func (d *demo) print(ctx context.Context, streams output.Streams) error {
	again := time.NewTicker(3 * time.Second)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		found, err := d.conn.Collections(ctx, wire.CollectionsRequest{})
		live := int64(0)
		for _, one := range found.Collections {
			live += one.Live
		}
		text := fmt.Sprintf(", %d live", live)
		if err != nil {
			text = ""
		}
		if _, err := fmt.Fprintln(streams.Out, d.line(text)); err != nil {
			return err
		}
	}
}

// line tells what has happened, and begins to count anew.
func (d *demo) line(live string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := fmt.Sprintf("%s  %d written, %d rejected, %d expired", time.Now().Format(time.TimeOnly),
		d.written, d.rejected, len(d.late))
	if len(d.late) > 0 {
		slices.Sort(d.late)
		milliseconds := func(i int) string { return strconv.FormatInt(d.late[i].Milliseconds(), 10) + " ms" }
		line += fmt.Sprintf(" (half of the events at most %s late, all at most %s)", milliseconds(len(d.late)/2),
			milliseconds(len(d.late)-1))
	}
	line += live
	if d.failed != nil {
		line += ", failed: " + d.failed.Error()
	}
	d.written, d.rejected, d.failed, d.late = 0, 0, nil, d.late[:0]
	return line
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/embedded"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	window     = 5 * time.Second // in which ids are kept: the default is two minutes
	longWindow = time.Hour       // all ids are within it
)

// natsServer is a nats-server process, and a connection to it.
type natsServer struct {
	cmd     *exec.Cmd
	dir     string
	profile string // URL of its heap profile
	nc      *nats.Conn
	js      jetstream.JetStream
	took    time.Duration // from its start until JetStream answered
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func startNATS(ctx context.Context, binary, dir string) (*natsServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	profile, err := freePort()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: 127.0.0.1:%d\nprof_port: %d\njetstream { store_dir: %q }\n", port, profile, filepath.Join(dir, "data"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	s := &natsServer{dir: dir, profile: fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/heap?gc=1&debug=1", profile)}
	s.cmd = exec.Command(binary, "-c", config)
	if s.cmd.Stderr, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for limit := time.After(5 * time.Minute); ; {
		if s.nc, err = nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port)); err == nil {
			if s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(8192), jetstream.WithDefaultTimeout(time.Minute)); err == nil {
				if _, err = s.js.AccountInfo(ctx); err == nil {
					s.took = time.Since(began)
					return s, nil
				}
			}
			s.nc.Close()
		}
		select {
		case <-limit:
			s.stop()
			return nil, fmt.Errorf("nats-server does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *natsServer) stop() {
	s.nc.Close()
	_ = s.cmd.Process.Signal(os.Interrupt)
	_ = s.cmd.Wait()
}

// use is what a server uses, in bytes.
type use struct{ heap, resident, disk int64 }

func (u use) less(v use) use { return use{u.heap - v.heap, u.resident - v.resident, u.disk - v.disk} }

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

func (s *natsServer) use() (u use, err error) {
	reply, err := http.Get(s.profile)
	if err != nil {
		return u, err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return u, err
	}
	found := heapAlloc.FindSubmatch(text)
	if found == nil {
		return u, errors.New("nats-server does not tell its heap")
	}
	u.heap, _ = strconv.ParseInt(string(found[1]), 10, 64)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		return u, err
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(status))[1], 10, 64)
	u.resident = pages * int64(os.Getpagesize())
	err = filepath.Walk(filepath.Join(s.dir, "data"), func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			u.disk += info.Size()
		}
		return nil // a file may go meanwhile
	})
	return u, err
}

// natsRig makes servers.
type natsRig struct {
	out    io.Writer
	dir    string
	binary string
	n      int
	settle time.Duration
	made   int
}

func measureNATS(ctx context.Context, out io.Writer, n int, settle time.Duration) error {
	dir, err := os.MkdirTemp("", "footprint")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &natsRig{out: out, dir: dir, binary: filepath.Join(dir, "nats-server"), n: n, settle: settle}
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", r.binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		return fmt.Errorf("build nats-server: %w: %s", err, text)
	}
	fmt.Fprintf(out, "%d documents; bytes of nats-server for each\n%-58s %8s %8s %8s\n", n, "", "heap", "resident", "disk")
	if err := r.cameAndWent(ctx); err != nil {
		return err
	}
	for _, v := range []variant{
		{"kept: few subjects, no ids, as lapse has it", false, false, window},
		{"kept: a subject each, no ids", true, false, window},
		{"kept: few subjects, an id each", false, true, window},
		{"kept: few subjects, an id each, in the ids' window", false, true, longWindow},
	} {
		if err := r.kept(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

func (r *natsRig) server(ctx context.Context) (*natsServer, error) {
	r.made++
	dir := filepath.Join(r.dir, strconv.Itoa(r.made))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return startNATS(ctx, r.binary, dir)
}

// report prints what a server uses more than before, for each document.
func (r *natsRig) report(ctx context.Context, s *natsServer, before use, what string, settle time.Duration) error {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	now, err := s.use()
	if err != nil {
		return err
	}
	more, n := now.less(before), float64(r.n)
	_, err = fmt.Fprintf(r.out, "%-58s %8.1f %8.1f %8.1f\n", what, float64(more.heap)/n, float64(more.resident)/n, float64(more.disk)/n)
	return err
}

// cameAndWent measures documents that lapse has let expire.
func (r *natsRig) cameAndWent(ctx context.Context) error {
	s, err := r.server(ctx)
	if err != nil {
		return err
	}
	defer func() { s.stop() }()
	store := embedded.New(nil)
	defer store.Close()
	client := redis.NewClient(&redis.Options{Dialer: store.Dial, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	ids := window
	p, err := processor.New(s.nc, client, processor.Options{OpenCollections: true, DuplicateWindow: &ids})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	defer func() { stop(); <-ended }()
	if err := until(ctx, p.Ready); err != nil {
		return err
	}
	prefix := wire.DefaultPrefix
	if _, err := s.js.Publish(ctx, prefix.Config(collection), []byte(`{"defaultTtl":1}`)); err != nil {
		return err
	}
	before, err := s.use()
	if err != nil {
		return err
	}
	body := []byte(`{"text":"` + strings.Repeat("x", bodyBytes-len(`{"text":""}`)) + `"}`)
	err = r.publish(ctx, s, func(i int) *nats.Msg {
		return &nats.Msg{Subject: prefix.Write(wire.Upsert, collection, id(i)), Data: body}
	})
	if err != nil {
		return err
	}
	return r.went(ctx, s, before)
}

// went measures documents that expire, after each step by which the server forgets them.
func (r *natsRig) went(ctx context.Context, s *natsServer, before use) error {
	prefix := wire.DefaultPrefix
	events, err := s.js.Stream(ctx, prefix.EventsStream())
	if err != nil {
		return err
	}
	err = until(ctx, func() error {
		info, err := events.Info(ctx)
		if err == nil && info.State.Msgs < uint64(r.n) {
			err = fmt.Errorf("%d events", info.State.Msgs)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.report(ctx, s, before, "came and went: log and event are there, and the ids", 0); err != nil {
		return err
	}
	if err := r.report(ctx, s, before, "… the ids' window is past", window+r.settle); err != nil {
		return err
	}
	log, err := s.js.Stream(ctx, prefix.LogStream())
	if err != nil {
		return err
	}
	info, err := log.Info(ctx)
	if err != nil {
		return err
	}
	if err := log.Purge(ctx, jetstream.WithPurgeSequence(info.State.LastSeq)); err != nil {
		return err
	}
	if err := r.report(ctx, s, before, "… the log is purged", r.settle); err != nil {
		return err
	}
	config := events.CachedInfo().Config
	config.MaxAge, config.Duplicates = window, window
	if _, err := s.js.UpdateStream(ctx, config); err != nil {
		return err
	}
	err = until(ctx, func() error {
		info, err := events.Info(ctx)
		if err == nil && info.State.Msgs > 100 {
			err = fmt.Errorf("%d events", info.State.Msgs)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.report(ctx, s, before, "… and the events have aged out", r.settle)
}

// variant is a way to keep events.
type variant struct {
	what          string
	subjects, ids bool          // each has one of its own; without, the stream changes subjects as that of lapse does
	window        time.Duration // in which ids are kept
}

// kept measures messages that a stream keeps, and how long nats-server takes to start with them.
func (r *natsRig) kept(ctx context.Context, v variant) error {
	s, err := r.server(ctx)
	if err != nil {
		return err
	}
	defer func() { s.stop() }()
	config := jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"e.>"}, Duplicates: v.window, Storage: jetstream.FileStorage}
	if !v.subjects {
		from, to := wire.Prefix("e").EventTransform()
		config.SubjectTransform = &jetstream.SubjectTransformConfig{Source: from, Destination: to}
	}
	if _, err = s.js.CreateStream(ctx, config); err != nil {
		return err
	}
	before, err := s.use()
	if err != nil {
		return err
	}
	body := []byte(strings.Repeat("x", bodyBytes+200))
	err = r.publish(ctx, s, func(i int) *nats.Msg {
		m := &nats.Msg{Subject: "e.expired.orders." + id(i), Data: body, Header: nats.Header{
			"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"}, "ce-source": {"/lapse/1700000000000/collections/orders"},
			"ce-subject": {id(i)}, "ce-id": {"orders/" + id(i) + "/" + strconv.Itoa(i)}, "ce-time": {"2026-01-01T00:00:00.000Z"}, "content-type": {"application/json"},
		}}
		if v.ids {
			m.Header.Set("Nats-Msg-Id", m.Header.Get("ce-id"))
		}
		return m
	})
	if err != nil {
		return err
	}
	if err := r.report(ctx, s, before, v.what, window+r.settle); err != nil {
		return err
	}
	s.stop()
	again, err := startNATS(ctx, r.binary, s.dir)
	if err != nil {
		return err
	}
	s = again
	return r.report(ctx, s, before, fmt.Sprintf("… after a restart, which took %.1f s", s.took.Seconds()), 0)
}

// publish publishes n messages, and waits until they are acknowledged.
func (r *natsRig) publish(ctx context.Context, s *natsServer, message func(i int) *nats.Msg) error {
	for i := range r.n {
		if _, err := s.js.PublishMsgAsync(message(i), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until tries until there is no error, for half an hour.
func until(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

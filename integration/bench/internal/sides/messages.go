package sides

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
)

// schedules is the stream of Schedules.
const schedules = "SCHEDULES"

// Schedules starts a stream of NATS with message schedules, and a consumer of what they deliver.
func Schedules(r *rig.Rig) Opener {
	return func(ctx context.Context, receipts *load.Receipts) (*Side, error) {
		srv, err := r.StartNATS(ctx)
		if err != nil {
			return nil, err
		}
		s := &Side{Usage: func() func(string) []time.Duration { return r.Usage(srv.Process) }, Memory: srv.Memory, Done: srv.Stop}
		stream, err := srv.JS.CreateStream(ctx, jetstream.StreamConfig{Name: schedules, Subjects: []string{"at.*", "due.*"}, AllowMsgSchedules: true, AllowMsgTTL: true})
		if err != nil {
			srv.Stop()
			return nil, err
		}
		consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"due.*"}})
		if err != nil {
			srv.Stop()
			return nil, err
		}
		times := newTimes(receipts)
		receiving, err := consumer.Consume(func(m jetstream.Msg) { times.got(strings.TrimPrefix(m.Subject(), "due."), time.Now()) }, jetstream.PullMaxMessages(2000))
		if err != nil {
			srv.Stop()
			return nil, err
		}
		s.Done = func() { receiving.Stop(); srv.Stop() }
		s.Write, s.Flush = load.Writer(srv.JS, func(ld load.Load, i, ttl int) *nats.Msg {
			at := times.set(ld, i, ttl)
			return &nats.Msg{Subject: "at." + ld.ID(i), Data: ld.Body(i), Header: nats.Header{
				"Nats-Schedule": {"@at " + at.UTC().Format(time.RFC3339Nano)}, "Nats-Schedule-Target": {"due." + ld.ID(i)},
			}}
		})
		return s, nil
	}
}

// Beanstalkd starts beanstalkd, without a log on disk, and a worker that reserves and deletes jobs.
func Beanstalkd(r *rig.Rig) Opener {
	return func(ctx context.Context, receipts *load.Receipts) (*Side, error) {
		srv, err := r.StartBeanstalkd(ctx)
		if err != nil {
			return nil, err
		}
		puts, works, err := func() (puts, works net.Conn, err error) {
			if puts, err = srv.Dial(ctx); err == nil {
				works, err = srv.Dial(ctx)
			}
			return puts, works, err
		}()
		if err != nil {
			srv.Stop()
			return nil, err
		}
		s := &Side{Usage: func() func(string) []time.Duration { return r.Usage(srv.Process) }, Memory: srv.Memory}
		s.Done = func() { _, _ = puts.Close(), works.Close(); srv.Stop() }
		times := newTimes(receipts)
		go work(works, times)
		in, out := bufio.NewReader(puts), bufio.NewWriter(puts)
		s.Write = func(ld load.Load, from, to, ttl int) error {
			const atOnce = 1000 // or the replies fill the connection
			for ; from < to; from += atOnce {
				n := min(atOnce, to-from)
				for i := from; i < from+n; i++ {
					body := append([]byte(ld.ID(i)+" "), ld.Body(i)...)
					times.set(ld, i, ttl)
					_, _ = fmt.Fprintf(out, "put 0 %d 60 %d\r\n%s\r\n", ttl, len(body), body)
				}
				if err := out.Flush(); err != nil {
					return err
				}
				for range n {
					if reply, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(reply, "INSERTED") {
						return fmt.Errorf("beanstalkd replies %q to a put: %w", reply, err)
					}
				}
			}
			return nil
		}
		s.Flush = func() error { return nil }
		return s, nil
	}
}

// work reserves jobs, one at a time, and deletes them, until the connection ends.
func work(conn net.Conn, times *times) {
	in, ask := bufio.NewReader(conn), "reserve\r\n"
	for {
		if _, err := io.WriteString(conn, ask); err != nil {
			return
		}
		var job, size int
		for {
			reply, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if reply == "DELETED\r\n" {
				continue
			}
			if _, err := fmt.Sscanf(reply, "RESERVED %d %d", &job, &size); err != nil {
				times.receipts.Fail(fmt.Errorf("beanstalkd replies %q to a reserve: %w", reply, err))
				return
			}
			break
		}
		at := time.Now()
		body := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		id, _, _ := strings.Cut(string(body), " ")
		times.got(id, at)
		ask = fmt.Sprintf("delete %d\r\nreserve\r\n", job)
	}
}

// times are the instants at which messages are to be delivered.
type times struct {
	receipts   *load.Receipts
	real, warm []atomic.Int64 // Unix nanoseconds
}

func newTimes(r *load.Receipts) *times {
	return &times{r, make([]atomic.Int64, r.N), make([]atomic.Int64, r.Warm.N)}
}

// set notes and returns the instant of a message.
func (t *times) set(ld load.Load, i, ttl int) time.Time {
	at, of := time.Now().Add(time.Duration(ttl)*time.Second), t.real
	if ld.Warming() {
		of = t.warm
	}
	of[i].Store(at.UnixNano())
	return at
}

// got notes that the message with an id was received.
func (t *times) got(id string, at time.Time) {
	i, warmed, err := load.Index(id)
	switch {
	case err != nil:
		t.receipts.Fail(err)
	case warmed:
		t.receipts.Warm.Got(i, time.Unix(0, t.warm[i].Load()), at)
	default:
		t.receipts.Got(i, time.Unix(0, t.real[i].Load()), at)
	}
}

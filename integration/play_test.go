package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink"
	embeddedredis "github.com/seed18712806/lapse/sink/embedded"
	"github.com/seed18712806/lapse/sink/wire"
)

// stage is a nats-server and a redis-server on which many scenarios are played at a time,
// each under its own prefix.
type stage struct {
	nats, redis string
	plays       atomic.Int64
	again       sync.Mutex // held while a scenario is played again
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{
		nats:  harness.StartNATS(t, harness.NATSOptions{}).URL(),
		redis: harness.StartRedis(t, harness.RedisOptions{}).Address(),
	}
}

// play is one performance of a scenario, on a processor of its own. It has many fields,
// since each part of it (send, watch, judge) leaves results that the next ones need.
type play struct {
	scenario
	prefix wire.Prefix
	mini   *embeddedredis.Server // nil if it is played on the stage's redis-server
	nc     *nats.Conn
	js     jetstream.JetStream
	reader *sink.Reader
	log    synced // the log of the processor

	mu       sync.Mutex
	findings []string // each difference between lapse and what the contract wants

	replies []chan wire.Outcome // for each line
	acks    []jetstream.PubAckFuture
	inbox   string
	sentAt  []time.Time
	last    time.Time // when the last line was sent

	seqs     []uint64    // for each line; 0 for the line "end"
	stamps   []wire.Time // for each line
	outcomes []wire.Outcome
	result   oracle.Result
	reads    int
}

func (p *play) finding(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.findings = append(p.findings, fmt.Sprintf(format, args...))
}

// synced is a log in memory, safe for concurrent use.
type synced struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *synced) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// play plays a scenario, on an embedded Redis of its own or on the stage's redis-server. It
// returns an error if it could not play the scenario; the faults of lapse are findings.
func (st *stage) play(ctx context.Context, s scenario, mini bool) (p *play, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	p = &play{scenario: s, prefix: wire.Prefix(fmt.Sprintf("h%d", st.plays.Add(1)))}
	if p.nc, err = nats.Connect(st.nats, nats.Timeout(harness.Limit)); err != nil {
		return p, err
	}
	defer p.nc.Close()
	if p.js, err = jetstream.New(p.nc, jetstream.WithDefaultTimeout(harness.Limit)); err != nil {
		return p, err
	}
	opts := &redis.Options{Addr: st.redis, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: time.Minute}
	if mini {
		p.mini = embeddedredis.New(nil)
		defer p.mini.Close()
		opts.Dialer = p.mini.Dial
	}
	client := redis.NewClient(opts)
	defer client.Close()
	if p.reader, err = sink.NewReader(client, sink.ReaderOptions{Prefix: p.prefix, Shards: 1}); err != nil {
		return p, err
	}
	window, events := duplicateWindow, int64(64<<20) // by default many at once would reserve more than the server has
	proc, err := processor.New(p.nc, client, processor.Options{
		Prefix: p.prefix, OpenCollections: true, DuplicateWindow: &window, EventsMaxBytes: &events,
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
	})
	if err != nil {
		return p, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- proc.Run(running) }()
	defer func() {
		stop()
		if e := <-ended; e != nil {
			p.finding("the processor ended: %v", e)
			err = errors.Join(err, e)
		}
		if strings.Contains(p.log.String(), "level=ERROR") {
			p.finding("the processor logged an error: %s", p.log.String())
		}
		err = errors.Join(err, p.remove(context.WithoutCancel(ctx)))
	}()
	if err := poll.Until(ctx, harness.Limit, func(context.Context) error { return proc.Ready() }); err != nil {
		return p, fmt.Errorf("ready: %w", err)
	}
	return p, p.perform(ctx)
}

// perform sends the lines while it reads, and then judges.
func (p *play) perform(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { p.watch(watching) })
	err := p.sendAll(ctx)
	stop()
	watcher.Wait()
	if err == nil {
		err = p.judge(ctx)
	}
	if err == nil && p.mini != nil {
		err = p.deadlines(ctx)
	}
	return err
}

// sendAll sends each line at its time, and collects acknowledgements, stamps and outcomes.
func (p *play) sendAll(ctx context.Context) error {
	p.inbox = p.nc.NewInbox()
	for range p.steps {
		p.replies = append(p.replies, make(chan wire.Outcome, 1))
	}
	sub, err := p.nc.Subscribe(p.inbox+".*", p.reply)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	p.outcomes = make([]wire.Outcome, len(p.steps))
	p.last = time.Now()
	for i := range p.steps {
		if err := p.send(ctx, i); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	p.seqs, p.stamps = make([]uint64, len(p.steps)), make([]wire.Time, len(p.steps))
	for i, st := range p.steps {
		if st.subject == end {
			continue
		}
		if p.seqs[i], err = p.acked(ctx, i); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
		if !p.outcome(i, harness.Limit) {
			p.finding("line %d: no outcome", i+1)
		}
	}
	log, err := stored.Read(ctx, p.js, p.prefix.LogStream(), 1)
	if err != nil {
		return err
	}
	for i, seq := range p.seqs {
		if seq > 0 {
			p.stamps[i] = log[seq-1].At
		}
	}
	return nil
}

// reply receives an outcome.
func (p *play) reply(msg *nats.Msg) {
	line, err := strconv.Atoi(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:])
	var o wire.Outcome
	if err = errors.Join(err, json.Unmarshal(msg.Data, &o)); err != nil {
		p.finding("outcome %s on %s: %v", msg.Data, msg.Subject, err)
		return
	}
	select {
	case p.replies[line-1] <- o:
	default:
		p.finding("line %d: a second outcome: %s", line, msg.Data)
	}
}

// outcome waits for the outcome of a line, and stores it.
func (p *play) outcome(i int, limit time.Duration) bool {
	if p.outcomes[i].Status != 0 {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case p.outcomes[i] = <-p.replies[i]:
		return true
	case <-timer.C:
		return false
	}
}

// acked waits for the acknowledgement of a line, and returns its sequence.
func (p *play) acked(ctx context.Context, i int) (uint64, error) {
	select {
	case ack := <-p.acks[i].Ok():
		ok := *ack
		return ok.Sequence, nil
	case err := <-p.acks[i].Err():
		return 0, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// send waits for the time of a line, and sends it.
func (p *play) send(ctx context.Context, i int) error {
	st := p.steps[i]
	at := p.last
	if st.of > 0 {
		at = p.sentAt[st.of-1]
		if p.outcome(st.of-1, time.Second) && p.outcomes[st.of-1].Ts != 0 {
			at = time.UnixMilli(int64(p.outcomes[st.of-1].Ts))
		}
	}
	msg := &nats.Msg{Subject: string(p.prefix) + "." + st.subject, Data: []byte(st.body), Header: nats.Header{}}
	for name, values := range st.header {
		for _, v := range values {
			if m := etagPattern.FindStringSubmatch(v); m != nil {
				line, _ := strconv.Atoi(m[1])
				seq, err := p.acked(ctx, line-1)
				if err != nil {
					return err
				}
				p.acks[line-1] = settled(seq)
				v = strconv.FormatUint(seq, 10)
			}
			v = instantPattern.ReplaceAllStringFunc(v, func(after string) string {
				ms, _ := strconv.Atoi(after[1:])
				return wire.Time(at.UnixMilli() + int64(st.after+ms)).String()
			})
			msg.Header.Add(name, v)
		}
	}
	msg.Header.Set(wire.HeaderReplyTo, fmt.Sprintf("%s.%d", p.inbox, i+1))
	timer := time.NewTimer(time.Until(at.Add(time.Duration(st.after) * time.Millisecond)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.last = time.Now()
	p.sentAt = append(p.sentAt, p.last)
	if st.subject == end {
		p.acks = append(p.acks, nil)
		return nil
	}
	ack, err := p.js.PublishMsgAsync(msg)
	p.acks = append(p.acks, ack)
	return err
}

// settledAck is an acknowledgement that acked has already received.
type settledAck struct {
	jetstream.PubAckFuture
	ok chan *jetstream.PubAck
}

func (a settledAck) Ok() <-chan *jetstream.PubAck { return a.ok }
func (a settledAck) Err() <-chan error            { return nil }

func settled(seq uint64) jetstream.PubAckFuture {
	const often = 64
	a := settledAck{ok: make(chan *jetstream.PubAck, often)}
	for range often {
		a.ok <- &jetstream.PubAck{Sequence: seq}
	}
	return a
}

// watch reads all the time, and records each document that is read at or after its deadline.
func (p *play) watch(ctx context.Context) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		began := now()
		page, err := p.reader.List(ctx, collectionName(i%collections), sink.ListOptions{})
		if err != nil {
			continue // the play ends, or the shard has no state yet
		}
		p.reads++
		for _, d := range page.Documents {
			if d.ExpiresAt != nil && *d.ExpiresAt <= began {
				p.finding("list at %s returned %s version %s, which expired at %s", began, d.ID, d.Etag, d.ExpiresAt)
			}
		}
		began = now()
		for _, d := range page.Documents {
			d, err := p.reader.Get(ctx, collectionName(i%collections), d.ID)
			if err == nil && d.ExpiresAt != nil && *d.ExpiresAt <= began {
				p.finding("get at %s returned %s version %s, which expired at %s", began, d.ID, d.Etag, d.ExpiresAt)
			}
		}
	}
}

// judge compares events, reads and outcomes with the oracle.
func (p *play) judge(ctx context.Context) error {
	result, diff, err := oracle.Check(ctx, oracle.Options{
		NATS: p.nc, Reads: []readers.Reads{readers.ByReader(p.reader)}, Limit: 3 * time.Minute,
		Settings: oracle.Settings{Prefix: p.prefix},
	})
	p.result = result
	if err != nil {
		return fmt.Errorf("oracle: %w", err)
	}
	if len(diff) > 0 {
		p.finding("%s", diff)
	}
	codes := map[uint64][]int{}
	for _, r := range result.Model.Rejections {
		codes[r.Seq] = r.Codes
	}
	for i, seq := range p.seqs {
		if seq == 0 {
			continue
		}
		got, want := p.outcomes[i], result.Model.Outcomes[seq]
		if allowed, rejected := codes[seq]; rejected {
			if !slices.Contains(allowed, got.Status) || got.Error == "" || got.Etag != 0 {
				p.finding("line %d: outcome %+v, want one of %v with a reason", i+1, got, allowed)
			}
			continue
		}
		if got.Status != want.Status || got.Error != "" || (got.Warning != "") != (want.Warning != "") ||
			!strings.Contains(got.Warning, want.Warning) {
			p.finding("line %d: outcome %+v, want %+v", i+1, got, want)
		}
		if !strings.HasPrefix(p.steps[i].subject, "tick") && got.Status != wire.StatusNoContent &&
			(got.Etag != want.Etag || got.Ts != want.Ts || (got.ExpiresAt == nil) != (want.ExpiresAt == nil) ||
				got.ExpiresAt != nil && *got.ExpiresAt != *want.ExpiresAt) {
			p.finding("line %d: outcome %+v, want %+v", i+1, got, want)
		}
	}
	return nil
}

// deadlines sets the clock of the embedded Redis to just before, at and just after the deadline of
// each remaining document, and checks whether it can be read.
func (p *play) deadlines(ctx context.Context) error {
	live := p.result.Model.Live(now())
	for name, d := range live {
		if d.ExpiresAt == nil || *d.ExpiresAt < now()+10_000 {
			continue // it may expire meanwhile by the real clock
		}
		for offset, there := range map[wire.Time]bool{-1: true, 0: false, 1: false} {
			at := *d.ExpiresAt + offset
			p.mini.SetTime(time.UnixMilli(int64(at)))
			_, err := p.reader.Get(ctx, name.Collection, name.ID)
			if err != nil && !errors.Is(err, sink.ErrNotFound) {
				return err
			}
			if found := err == nil; found != there {
				p.finding("get %s %d ms from its deadline: found %v, want %v", name, offset, found, there)
			}
			count, err := p.reader.Count(ctx, name.Collection)
			if errors.Is(err, sink.ErrUnavailable) {
				continue // lapse builds its index
			}
			if err != nil {
				return err
			}
			want := int64(0)
			for n, other := range live {
				if n.Collection == name.Collection && (other.ExpiresAt == nil || *other.ExpiresAt > at) {
					want++
				}
			}
			if count.Live != want {
				p.finding("count %s at %s: %d live, want %d", name.Collection, at, count.Live, want)
			}
		}
	}
	return nil
}

// remove deletes the streams and the bucket of the play.
func (p *play) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return errors.Join(
		p.js.DeleteStream(ctx, p.prefix.LogStream()),
		p.js.DeleteStream(ctx, p.prefix.EventsStream()),
		p.js.DeleteKeyValue(ctx, p.prefix.CheckpointBucket()),
	)
}

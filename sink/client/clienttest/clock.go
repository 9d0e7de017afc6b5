package clienttest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// tickEvery is how often the clock of the log moves on once it is ahead.
const tickEvery = 20 * time.Millisecond

// clock is the clock of the log. The server stamps what clients publish with the time of the
// machine. But a message can be put into the store of a stream with any stamp, and the server
// gives its store to those who restore a stream from a backup.
type clock struct {
	l     *Lapse
	store server.StreamStore

	mu      sync.Mutex
	ahead   time.Duration
	done    chan struct{} // closed at the end
	ticking sync.WaitGroup
}

// newClock deletes the log and restores it at once, with the same messages. Nobody may use it
// meanwhile.
func newClock(l *Lapse) (*clock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	name := wire.DefaultPrefix.LogStream()
	stream, err := l.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	var messages []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
		msg, err := stream.GetMsg(ctx, seq)
		if err != nil {
			return nil, err
		}
		messages = append(messages, msg)
	}
	text, err := json.Marshal(info.Config)
	if err != nil {
		return nil, err
	}
	meta := server.FileStreamInfo{Created: info.Created}
	if err := json.Unmarshal(text, &meta.StreamConfig); err != nil {
		return nil, err
	}
	backup, err := backup(meta)
	if err != nil {
		return nil, err
	}
	if err := l.js.DeleteStream(ctx, name); err != nil {
		return nil, err
	}
	restored, err := l.server.GlobalAccount().RestoreStream(&meta.StreamConfig, backup)
	if err != nil {
		return nil, err
	}
	c := &clock{l: l, store: restored.Store(), done: make(chan struct{})}
	for _, m := range messages {
		if err := c.store.StoreRawMsg(m.Subject, encode(m.Header), m.Data, m.Sequence, m.Time.UnixNano(), 0,
			false); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// encode writes a header as the server stores it.
func encode(h nats.Header) []byte {
	if len(h) == 0 {
		return nil
	}
	b := []byte("NATS/1.0\r\n")
	for name, values := range h {
		for _, value := range values {
			b = fmt.Appendf(b, "%s: %s\r\n", name, value)
		}
	}
	return append(b, "\r\n"...)
}

// backup is the backup of a stream without messages.
func backup(meta server.FileStreamInfo) (*bytes.Buffer, error) {
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	compressed := s2.NewWriter(&b)
	archive := tar.NewWriter(compressed)
	err = archive.WriteHeader(&tar.Header{Name: server.JetStreamMetaFile, Mode: 0o600, Size: int64(len(text)),
		Typeflag: tar.TypeReg})
	if err == nil {
		_, err = archive.Write(text)
	}
	return &b, errors.Join(err, archive.Close(), compressed.Close())
}

// now is what the clock shows.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// advance sets the clock ahead.
func (c *clock) advance(d time.Duration) error {
	c.mu.Lock()
	first := c.ahead == 0
	c.ahead += d
	c.mu.Unlock()
	if first {
		c.ticking.Go(func() {
			tick := time.NewTicker(tickEvery)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_ = c.tick() // the next one comes soon
				case <-c.done:
					return
				}
			}
		})
	}
	return c.tick()
}

// tick moves log time on.
func (c *clock) tick() error {
	for {
		c.mu.Lock()
		at := time.Now().Add(c.ahead)
		c.l.redis.SetTime(at)
		var state server.StreamState
		c.store.FastState(&state)
		err := c.store.StoreRawMsg(wire.DefaultPrefix.Log(0, 1).Tick(), nil, nil, state.LastSeq+1, at.UnixNano(), 0, false)
		c.mu.Unlock()
		if errors.Is(err, server.ErrSequenceMismatch) {
			continue // a client was faster
		}
		if err == nil {
			// The server tells consumers of messages that are published.
			err = c.l.nc.Publish(wire.DefaultPrefix.Log(0, 1).Tick(), nil)
		}
		return err
	}
}

func (c *clock) stop() {
	close(c.done)
	c.ticking.Wait()
}

// Now is the time of the log's clock, by which documents expire.
func (l *Lapse) Now() time.Time { return l.clock.now() }

// Advance lets time pass without waiting for it. When it returns, everything that is due by
// then has expired, and its events are published.
func (l *Lapse) Advance(d time.Duration) {
	if d <= 0 || d > maxLead {
		l.fail(fmt.Errorf("clienttest: time cannot advance by %s: use a duration over 0 and up to 250 years", d))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := l.clock.advance(d)
	if err == nil {
		err = l.settle(ctx)
	}
	if err != nil {
		l.fail(fmt.Errorf("clienttest: advance by %s: %w", d, err))
	}
}

// settle waits until lapse has applied all messages that are in the log now, and has published
// the events of all that is due. The drop of a collection that does not exist changes nothing,
// and all shards have applied it when its outcome comes.
func (l *Lapse) settle(ctx context.Context) error {
	if _, err := l.client.Write(ctx, client.Message{Subject: wire.DefaultPrefix.Drop("clienttest")}); err != nil {
		return err
	}
	return until(func(ctx context.Context) error {
		for req := (wire.CollectionsRequest{}); ; {
			page, err := l.client.Collections(ctx, req)
			if err != nil {
				return err
			}
			for _, one := range page.Collections {
				if n := one.Expired; n > 0 {
					return fmt.Errorf("the events of %d documents of %s are not published", n, one.Name)
				}
			}
			if req.Continuation = page.Continuation; req.Continuation == "" {
				return nil
			}
		}
	})
}

// Expire lets time pass until a document has expired, and its event, or the message that it is, is
// published. The document must exist and must be one that expires.
func (l *Lapse) Expire(collection, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	doc, err := l.client.Get(ctx, collection, id)
	if err == nil && doc.ExpiresAt == nil {
		err = errors.New("it never expires")
	}
	if err != nil {
		l.fail(fmt.Errorf("clienttest: let %s/%s expire: %w", collection, id, err))
		return
	}
	if left := time.UnixMilli(int64(*doc.ExpiresAt)).Sub(l.Now()); left > 0 {
		if err := l.clock.advance(left); err != nil {
			l.fail(fmt.Errorf("clienttest: advance by %s: %w", left, err))
			return
		}
	}
	subject, next := wire.DefaultPrefix.Stored(wire.DefaultPrefix.Expired(collection, id)), uint64(1)
	if doc.Target != "" {
		subject = wire.DefaultPrefix.StoredDue(doc.Target)
	}
	err = until(func(ctx context.Context) error {
		events, err := l.js.Stream(ctx, wire.DefaultPrefix.EventsStream())
		if err != nil {
			return err
		}
		for {
			msg, err := events.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
			if err != nil {
				return fmt.Errorf("look for the event of version %s of %s/%s: %w", doc.Etag, collection, id, err)
			}
			next = msg.Sequence + 1
			event, err := wire.ParseAbout(wire.DefaultPrefix, msg.Subject, msg.Header)
			if err != nil || event.Collection == collection && event.ID == id && event.Seq == uint64(doc.Etag) {
				return err
			}
		}
	})
	if err != nil {
		l.fail(fmt.Errorf("clienttest: let %s/%s expire: %w", collection, id, err))
	}
}

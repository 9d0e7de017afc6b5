package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	askEvery = 250 * time.Millisecond
	// answerWithin is for how long an answer is waited for until the order is given once more: it may be lost with the
	// connection of the owner.
	answerWithin = 2 * time.Second
)

// SnapshotProgress is how far the snapshots of all shards are.
type SnapshotProgress struct {
	Shards  int    `json:"shards"`
	Done    int    `json:"done"`              // shards whose snapshot is stored
	Failure string `json:"failure,omitempty"` // why the last attempt of a shard has failed; it is tried again
	// Forgotten is of an order to forget that is done: absent otherwise.
	Forgotten *Forgotten `json:"forgotten,omitempty"`
}

// Forgotten is what an order to forget has left.
type Forgotten struct {
	Before wire.Time `json:"before"` // what had expired, or was deleted or overwritten by then, is gone, but for these:
	// Left are the places that may still have bytes of it: log, redis (its files), events.
	Left []string `json:"left"`
	// Until is when these have none any more, at the latest.
	Until wire.Time `json:"until,omitzero"`
}

// takeSnapshots orders a snapshot of every shard, and waits until all are stored or ctx is done. It calls
// progress when something has changed. A snapshot that fails is tried again.
func takeSnapshots(
	ctx context.Context, l *connection, forget bool, progress func(SnapshotProgress),
) (p SnapshotProgress, err error) {
	shards, err := readShards(ctx, l)
	if err != nil {
		return p, err
	}
	since := make([]int64, shards)
	for {
		now, done := SnapshotProgress{Shards: shards}, &Forgotten{Left: []string{}}
		for shard := range shards {
			if forget { // one instant for all: the shards share files
				since[shard] = since[0]
			}
			reply, err := ask(ctx, l, shard, wire.SnapshotOrder{Since: since[shard], Forget: forget})
			if err != nil {
				return p, err
			}
			since[shard] = reply.Since
			if reply.Done {
				now.Done++
			}
			done.add(reply)
			now.Failure = cmp.Or(now.Failure, reply.Failure)
		}
		if now != p {
			p = now
			progress(p)
		}
		if p.Done == p.Shards {
			if forget {
				p.Forgotten = done
			}
			return p, nil
		}
		select {
		case <-ctx.Done():
			return p, ctx.Err()
		case <-time.After(askEvery):
		}
	}
}

// add adds what a shard has left.
func (f *Forgotten) add(reply wire.SnapshotReply) {
	f.Before = wire.Time(reply.Since)
	for _, place := range reply.Left {
		if !slices.Contains(f.Left, place) {
			f.Left, f.Until = append(f.Left, place), reply.Until
		}
	}
}

// ask orders a snapshot of a shard, or asks whether it is stored. The owner of the shard may have
// just changed: then nobody answers for a moment, and the new one takes the order anew. An order may be given twice.
func ask(
	ctx context.Context, l *connection, shard int, order wire.SnapshotOrder,
) (reply wire.SnapshotReply, err error) {
	subject := l.Prefix.Snapshot(shard)
	body, err := json.Marshal(order)
	if err != nil {
		return reply, err
	}
	within, cancel := l.Within(ctx, subject)
	defer cancel()
	for {
		attempt, end := context.WithTimeout(within, answerWithin)
		m, err := l.NC.RequestWithContext(attempt, subject, body)
		late := attempt.Err() != nil && within.Err() == nil
		end()
		switch {
		case err == nil:
			if err := json.Unmarshal(m.Data, &reply); err != nil {
				return reply, fmt.Errorf("the reply of shard %d is not valid: %w", shard, err)
			}
			return reply, nil
		case denial(within) != nil:
			return reply, denial(within)
		case ctx.Err() != nil:
			return reply, ctx.Err()
		case late:
			continue
		case within.Err() != nil, !errors.Is(err, nats.ErrNoResponders):
			return reply, unavailable("the owner of shard %d does not answer (%s): lapse status shows which process it is",
				shard, err)
		}
		select {
		case <-within.Done():
			return reply, unavailable("no process owns shard %d: lapse status shows the processes", shard)
		case <-time.After(askEvery):
		}
	}
}

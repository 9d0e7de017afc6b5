package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/streams"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	between      = 10 * time.Millisecond // two attempts of Provision
	createFailed = 10049                 // the server's JSStreamCreateErrF
)

var (
	// errNoBucket means that the bucket does not exist.
	errNoBucket = errors.New("the bucket of members does not exist")
	// errConflict means that the lease is not at the revision that a change names.
	errConflict = errors.New("another change of the lease came first")
)

// entry is a lease as the bucket holds it. The lease is free if it has no owner. Revision
// 0 means that it never had one.
type entry struct {
	wire.Lease
	Revision uint64
}

// listed is the entry of a process.
type listed struct {
	wire.Member
	Revision uint64
	Stored   time.Time // by the server's clock
}

// bucket stores the leases of shards and the entries of members in a key-value
// bucket of JetStream ([wire.Prefix.MembersBucket]).
//
// A lease changes only by compare-and-set: [bucket.Change] names the revision that it
// replaces. All calls but [bucket.Provision] need the link to be up and have a limit.
type bucket struct {
	js       jetstream.JetStream
	link     *link
	limit    time.Duration
	prefix   wire.Prefix
	replicas int
}

// newBucket makes a bucket. JetStream has to answer each call within limit.
func newBucket(js jetstream.JetStream, link *link, limit time.Duration, prefix wire.Prefix, replicas int) *bucket {
	return &bucket{js: js, link: link, limit: limit, prefix: prefix, replicas: replicas}
}

// Name is the name of the bucket.
func (b *bucket) Name() string { return b.prefix.MembersBucket() }

// stream is the name of the bucket's stream.
func (b *bucket) stream() string { return "KV_" + b.Name() }

// subject is the subject of a key.
func (b *bucket) subject(key string) string { return "$KV." + b.Name() + "." + key }

// Provision creates the bucket if it is absent, until ctx is done. It repeats a request that
// gets no answer or is refused for now, like [streams.Again]. It also asks again
// if somebody seems to delete or create the bucket just now: then it may be absent and exist in
// turn, and the server may fail to create it while it removes the files of the former one.
func (b *bucket) Provision(ctx context.Context) (created bool, err error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, b.limit)
		created, err = b.provision(attempt)
		cancel()
		var refusal *jetstream.APIError
		meanwhile := streams.MayPass(err) || errors.Is(err, jetstream.ErrBucketNotFound) ||
			errors.As(err, &refusal) && refusal.ErrorCode == createFailed
		if !meanwhile && !errors.Is(err, context.DeadlineExceeded) || !backoff.Wait(ctx, between) {
			return created, err
		}
	}
}

// provision is one attempt of Provision.
func (b *bucket) provision(ctx context.Context) (created bool, err error) {
	_, err = b.js.KeyValue(ctx, b.Name())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      b.Name(),
			Description: "lapse: the processes, and which of them owns a shard",
			History:     1,
			Storage:     jetstream.FileStorage,
			Replicas:    max(b.replicas, 1),
		})
		created = err == nil
		if errors.Is(err, jetstream.ErrBucketExists) { // another process has just created it
			_, err = b.js.KeyValue(ctx, b.Name())
		}
	}
	if err != nil {
		return false, fmt.Errorf("provision bucket %s: %w", b.Name(), err)
	}
	return created, nil
}

// Recreate is Provision for a bucket that was deleted while the process runs.
func (b *bucket) Recreate(ctx context.Context) (created bool, err error) {
	err = b.link.Call(ctx, b.limit, func(ctx context.Context) (err error) {
		created, err = b.provision(ctx)
		return err
	})
	return created, err
}

// Lease reads a lease, from the leader of the bucket's stream.
func (b *bucket) Lease(ctx context.Context, shard int) (e entry, err error) {
	var body []byte
	err = b.link.Call(ctx, b.limit, func(ctx context.Context) (err error) {
		body, e.Revision, err = b.get(ctx, wire.LeaseKey(shard))
		return err
	})
	if err != nil {
		return entry{}, err
	}
	what := fmt.Sprintf("the lease of shard %d in bucket %s", shard, b.Name())
	if err := wire.CheckStored(what, body); errors.Is(err, wire.ErrFormat) {
		return entry{}, err
	}
	if json.Unmarshal(body, &e.Lease) != nil {
		e.Lease = wire.Lease{} // nobody had it yet, or somebody deleted or overwrote it, so it is free
	}
	e.Format = 0
	return e, nil
}

// get reads the value of a key. The revision is 0 if there is none.
func (b *bucket) get(ctx context.Context, key string) (body []byte, revision uint64, err error) {
	m, err := events.GetMessage(ctx, b.js.Conn(), b.stream(), map[string]any{"last_by_subj": b.subject(key)})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, 0, errNoBucket
	case err != nil || m == nil:
		return nil, 0, err
	}
	return m.Data, m.Seq, nil
}

// Change stores a lease in place of the one at a revision, and returns the new revision.
// It fails with errConflict if the lease is at another revision.
func (b *bucket) Change(ctx context.Context, shard int, l wire.Lease, revision uint64) (stored uint64, err error) {
	l.Format = wire.Format
	body, _ := json.Marshal(l) // it cannot fail
	err = b.link.Call(ctx, b.limit, func(ctx context.Context) (err error) {
		stored, err = b.publish(ctx, wire.LeaseKey(shard), body, jetstream.WithExpectLastSequencePerSubject(revision))
		return err
	})
	return stored, err
}

// Put stores the entry of a process.
func (b *bucket) Put(ctx context.Context, m wire.Member) error {
	m.Format = wire.Format
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return b.link.Call(ctx, b.limit, func(ctx context.Context) error {
		_, err := b.publish(ctx, wire.MemberKey(m.ID), body)
		return err
	})
}

// publish stores a value under a key.
func (b *bucket) publish(
	ctx context.Context, key string, body []byte, options ...jetstream.PublishOpt,
) (revision uint64, err error) {
	ack, err := b.js.PublishMsg(ctx, &nats.Msg{Subject: b.subject(key), Data: body, Header: nats.Header{}},
		append(options, jetstream.WithRetryAttempts(0))...)
	var refusal *jetstream.APIError
	switch {
	case err == nil:
		return ack.Sequence, nil
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		if _, err := b.js.Stream(ctx, b.stream()); errors.Is(err, jetstream.ErrStreamNotFound) {
			return 0, errNoBucket
		}
	case errors.As(err, &refusal):
		switch refusal.ErrorCode {
		// The server gives the second code also while another change is under way.
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return 0, errConflict
		}
	}
	return 0, err
}

// Members lists the entries of all processes, in the order in which they were stored. A
// replica that lags behind may answer: the list then lacks the latest entries.
func (b *bucket) Members(ctx context.Context) (list []listed, err error) {
	err = b.link.Call(ctx, b.limit, func(ctx context.Context) (err error) {
		list, err = b.members(ctx)
		return err
	})
	return list, err
}

// members is Members, without the limit.
func (b *bucket) members(ctx context.Context) (list []listed, err error) {
	messages, err := jetstreamext.GetLastMsgsFor(ctx, b.js, b.stream(), []string{b.subject(wire.MemberKey("*"))})
	if err != nil {
		return nil, err
	}
	for m, err := range messages {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			break
		}
		if err != nil {
			return nil, err
		}
		one := listed{Revision: m.Sequence, Stored: m.Time}
		if json.Unmarshal(m.Data, &one.Member) == nil && m.Subject == b.subject(wire.MemberKey(one.ID)) {
			what := "the entry of the process " + wire.Quote(one.Name) + " in bucket " + b.Name()
			if err := wire.CheckStored(what, m.Data); err != nil {
				return nil, err
			}
			one.Format = 0
			list = append(list, one)
		}
	}
	return list, nil
}

// Remove removes the entry of a process if it is at the revision or an earlier one; at any
// revision if that is 0. It purges, because a deletion by the key-value API leaves a marker.
func (b *bucket) Remove(ctx context.Context, id string, revision uint64) error {
	options := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(b.subject(wire.MemberKey(id)))}
	if revision > 0 {
		options = append(options, jetstream.WithPurgeSequence(revision+1))
	}
	return b.link.Call(ctx, b.limit, func(ctx context.Context) error {
		stream, err := b.js.Stream(ctx, b.stream())
		if err != nil {
			return err
		}
		return stream.Purge(ctx, options...)
	})
}

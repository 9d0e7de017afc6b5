// Package streams provisions what lapse keeps in JetStream: the log, the stream
// of events, and the bucket of checkpoints. What is absent is created; what is
// present is compared with what it has to be, and refused if it is not.
//
// What a fold of the log depends on is fixed when the log is created, and kept in
// its metadata: the number of partitions and the size of the largest body.
package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// ErrMismatch is wrapped by every refusal of what is present.
var ErrMismatch = errors.New("not the stream that lapse needs")

// Reserve is what an event or a rejection may need in a message beside the body:
// a body is at most the server's maximum payload less this.
const Reserve = 8 << 10

const (
	formatKey     = "lapse-format"
	partitionsKey = "lapse-partitions"
	maxBodyKey    = "lapse-max-body"
	logKey        = "lapse-log"
	format        = "1"
)

// Options say what to provision. What is nil is left as it is where a stream is
// present, and gets its default where one is created.
type Options struct {
	Prefix          wire.Prefix
	Partitions      int
	MaxPayload      int64 // of the server
	Replicas        int
	LogMaxAge       *time.Duration // for ever
	LogMaxBytes     *int64         // no limit
	EventsMaxAge    *time.Duration // 7 days
	DuplicateWindow *time.Duration // 2 minutes
	Logger          *slog.Logger
}

// Streams is what was provisioned.
type Streams struct {
	Log         jetstream.Stream
	Events      jetstream.Stream
	Checkpoints jetstream.KeyValue
	ID          string // identity of the log: when it was created, in Unix nanoseconds
	MaxBody     int    // of a write, in bytes
	Replicas    int    // of the stream of events
}

// Provision creates what is absent and checks what is present.
func Provision(ctx context.Context, js jetstream.JetStream, o Options) (*Streams, error) {
	const defaultEventsAge = 7 * 24 * time.Hour
	const defaultWindow = 2 * time.Minute
	window := orDefault(o.DuplicateWindow, defaultWindow)

	log, err := provision(ctx, js, o, jetstream.StreamConfig{
		Name:              o.Prefix.LogStream(),
		Description:       "lapse: writes, configuration and ticks, in one order",
		Subjects:          o.Prefix.LogSubjects(),
		AllowBatchPublish: fastBatches(ctx, js),
		MaxAge:            orDefault(o.LogMaxAge, 0),
		MaxBytes:          orDefault(o.LogMaxBytes, -1),
		Duplicates:        clamp(window, orDefault(o.LogMaxAge, 0)),
		Metadata: map[string]string{
			formatKey:     format,
			partitionsKey: strconv.Itoa(o.Partitions),
			maxBodyKey:    strconv.FormatInt(o.MaxPayload-Reserve, 10),
		},
	}, o.LogMaxAge, o.LogMaxBytes)
	if err != nil {
		return nil, err
	}
	s := &Streams{Log: log, ID: Identity(log.CachedInfo())}
	if s.MaxBody, err = strconv.Atoi(log.CachedInfo().Config.Metadata[maxBodyKey]); err != nil {
		return nil, mismatch(o.Prefix.LogStream(), "its metadata has no valid %s", maxBodyKey)
	}

	s.Events, err = provision(ctx, js, o, jetstream.StreamConfig{
		Name:        o.Prefix.EventsStream(),
		Description: "lapse: expiry events and rejections",
		Subjects:    o.Prefix.EventSubjects(),
		MaxAge:      orDefault(o.EventsMaxAge, defaultEventsAge),
		MaxBytes:    -1,
		Duplicates:  clamp(window, orDefault(o.EventsMaxAge, defaultEventsAge)),
		Metadata:    map[string]string{formatKey: format, logKey: s.ID},
	}, o.EventsMaxAge, nil)
	if err != nil {
		return nil, err
	}
	s.Replicas = s.Events.CachedInfo().Config.Replicas

	bucket := o.Prefix.CheckpointBucket()
	s.Checkpoints, err = js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		s.Checkpoints, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      bucket,
			Description: "lapse: per partition, up to where everything has been said",
			Replicas:    max(o.Replicas, 1),
		})
	}
	if err != nil {
		return nil, fmt.Errorf("provision bucket %s: %w", bucket, err)
	}
	return s, nil
}

// Identity tells a log from one that was made anew under its name: when it was
// created, in Unix nanoseconds.
func Identity(log *jetstream.StreamInfo) string {
	return strconv.FormatInt(log.Created.UnixNano(), 10)
}

func provision(ctx context.Context, js jetstream.JetStream, o Options, want jetstream.StreamConfig, maxAge *time.Duration, maxBytes *int64) (jetstream.Stream, error) {
	want.Storage = jetstream.FileStorage
	want.AllowDirect = true
	want.Replicas = max(o.Replicas, 1)
	want.Retention = jetstream.LimitsPolicy
	want.Discard = jetstream.DiscardOld

	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if stream, err = js.CreateStream(ctx, want); err == nil {
			o.Logger.Info("created stream", slog.String("stream", want.Name))
			return stream, nil
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // by another process, just now
			stream, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("provision stream %s: %w", want.Name, err)
	}
	have := stream.CachedInfo().Config
	if err := compare(have, want); err != nil {
		return nil, err
	}
	change := have
	if maxAge != nil {
		change.MaxAge = *maxAge
	}
	if maxBytes != nil {
		change.MaxBytes = *maxBytes
	}
	if o.DuplicateWindow != nil {
		change.Duplicates = *o.DuplicateWindow
	}
	change.Duplicates = clamp(change.Duplicates, change.MaxAge)
	if change.MaxAge == have.MaxAge && change.MaxBytes == have.MaxBytes && change.Duplicates == have.Duplicates {
		return stream, nil
	}
	if stream, err = js.UpdateStream(ctx, change); err != nil {
		return nil, fmt.Errorf("change the limits of stream %s: %w", want.Name, err)
	}
	o.Logger.Info("changed the limits of stream", slog.String("stream", want.Name),
		slog.Duration("max_age", change.MaxAge), slog.Int64("max_bytes", change.MaxBytes), slog.Duration("duplicate_window", change.Duplicates))
	return stream, nil
}

// fastBatches says whether the server takes fast batches of messages, which
// nats-server does from 2.14 on.
func fastBatches(ctx context.Context, js jetstream.JetStream) bool {
	const level = 4 // of the API
	info, err := js.AccountInfo(ctx)
	return err == nil && info.API.Level >= level
}

// compare says in what a stream that is present is not what is wanted. Limits, and
// what does not touch the fold, may differ.
func compare(have, want jetstream.StreamConfig) error {
	for _, key := range []string{formatKey, partitionsKey, logKey} {
		h, w := have.Metadata[key], want.Metadata[key]
		switch {
		case h == w:
		case key == partitionsKey && h != "":
			return mismatch(have.Name, "it was created with %s partitions, and %s were asked for: the number cannot be changed", h, w)
		case key == logKey && h != "":
			return mismatch(have.Name, "its events are of another log, one that was deleted or made anew: remove this stream and the bucket of checkpoints to begin anew, or restore the log")
		case h == "":
			return mismatch(have.Name, "it was not created by lapse (its metadata has no %s)", key)
		default:
			return mismatch(have.Name, "its %s is %s, and this version of lapse has %s", key, h, w)
		}
	}
	if !slices.Equal(sorted(have.Subjects), sorted(want.Subjects)) {
		return mismatch(have.Name, "its subjects are %v, and have to be %v", have.Subjects, want.Subjects)
	}
	switch {
	case have.SubjectTransform != nil:
		return mismatch(have.Name, "it rewrites subjects (subject_transform), and has to keep them")
	case have.Retention != want.Retention:
		return mismatch(have.Name, "its retention is %s, and has to be %s", have.Retention, want.Retention)
	case !have.AllowDirect:
		return mismatch(have.Name, "it does not allow direct access (allow_direct)")
	case have.NoAck:
		return mismatch(have.Name, "it does not acknowledge (no_ack)")
	case have.MaxMsgsPerSubject > 0:
		return mismatch(have.Name, "it keeps only %d messages of a subject", have.MaxMsgsPerSubject)
	case have.Storage != want.Storage:
		return mismatch(have.Name, "its storage is %s, and has to be %s", have.Storage, want.Storage)
	}
	return nil
}

func mismatch(stream, format string, args ...any) error {
	return fmt.Errorf("%w: stream %s: %s", ErrMismatch, stream, fmt.Sprintf(format, args...))
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// clamp keeps a duplicate window within the age of a stream, as the server demands.
func clamp(window, maxAge time.Duration) time.Duration {
	if maxAge > 0 && window > maxAge {
		return maxAge
	}
	return window
}

func orDefault[T any](p *T, d T) T {
	if p == nil {
		return d
	}
	return *p
}

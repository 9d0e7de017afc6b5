// Package streams provisions what lapse keeps in JetStream: the log, the stream of events
// and the bucket of checkpoints. It creates what is absent, and refuses a stream that is
// present and is not what lapse needs.
//
// With several shards there is a log for each, and a stream of configurations and drops that
// all of them source. NATS has to map the writes to the logs (shards.go).
//
// The log's metadata fixes what a fold of the log depends on, when the log is created: the
// number of shards, and the size and the depth of the largest body. What can change is a message of the log
// ([wire.LogRules], rules.go).
//
// Nobody can delete single messages of the logs and of the stream of configurations. So a sequence that is
// missing from the middle is a loss, unless a restore has left it or a person has decided (gaps.go).
//
// The flow, file by file: [Check] and [Provision] (streams.go) compare each stream with its
// configuration (config.go). A process locks a stream before it changes its configuration (change.go). Later the
// processor reads single messages, always from the leader of a stream (link.go).
package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// ErrMismatch is the kind of every refusal of a stream that is present.
var ErrMismatch = errors.New("not the stream that lapse needs")

// ErrStranger is the ErrMismatch of a stream that belongs to another one, which is gone or was made anew.
var ErrStranger = fmt.Errorf("%w", ErrMismatch)

// Reserve is the number of bytes that an event or a rejection may need in a message beside
// the body. A body has at most the server's maximum payload less this.
const Reserve = 8 << 10

// maxLevels is how many levels of objects and arrays within each other a body may have.
const maxLevels = 1000

// leastMessage is the size that an event without its document may need, and a rejection
// without its body.
const leastMessage = Reserve

// Keys of the streams' metadata.
const (
	maxBodyKey   = "lapse-max-body"
	maxLevelsKey = "lapse-max-levels"
	logKey       = "lapse-log"
	configsKey   = "lapse-config"
)

// Options say what to provision. A limit that is nil gets its default in a stream that is
// created, and does not change a stream that is present.
type Options struct {
	Prefix          wire.Prefix
	Shards          int   // 1 or more
	Shard           int   // whose log this process reads
	MaxPayload      int64 // of the server
	Replicas        int
	LogMaxAge       *time.Duration // no limit
	LogMaxBytes     *int64         // no limit
	EventsMaxAge    *time.Duration // 7 days, and at most EventsLongest
	EventsMaxBytes  *int64         // 4032 MiB; less, or no limit, where NATS has no room for that
	EventsLongest   time.Duration  // that events may be kept; no limit if it is 0
	Objects         bool           // whether snapshots are in an object store of JetStream
	DuplicateWindow *time.Duration // 2 minutes
	ReplyPrefixes   []string       // see [Streams.Rule]
	OpenCollections bool           // likewise
	Existing        bool           // create nothing: what is absent was deleted
	AsIs            bool           // change no limits, whatever the other options are
	Logger          *slog.Logger

	levels int // MaxLevels of a log that is created; maxLevels if 0
}

// sharded reports whether there are several shards.
func (o Options) sharded() bool { return o.Shards > 1 }

// log names the log that this process reads.
func (o Options) log() wire.Log { return o.Prefix.Log(o.Shard, o.Shards) }

// Streams are what was provisioned.
type Streams struct {
	nc          *nats.Conn
	Log         jetstream.Stream
	Configs     jetstream.Stream // of configurations and drops; nil if there is one shard
	Events      jetstream.Stream
	Checkpoints jetstream.KeyValue
	Snapshots   *Objects      // nil if they are elsewhere
	ID          string        // identity of the log: when it was created, in Unix nanoseconds
	MaxBody     int           // of a write, in bytes
	MaxLevels   int           // of objects and arrays within each other, in a body
	Former      []wire.Former // that the log continues

	compared map[string]*events.Stored // the last configuration and the last drop that CheckConfigs has compared
	lagged   time.Duration             // for how long CheckConfigs has waited for a message since it found all
}

// Identity is the [wire.Identity] of a log.
func Identity(log *jetstream.StreamInfo) string {
	return strconv.FormatInt(wire.Identity(log.Config.Metadata, log.Created), 10)
}

// Created is when the log was created, in Unix milliseconds.
func (s *Streams) Created() int64 {
	log := s.Log.CachedInfo()
	return wire.Identity(log.Config.Metadata, log.Created) / int64(time.Millisecond)
}

// Check refuses what [Provision] would refuse, and creates nothing.
func Check(ctx context.Context, js jetstream.JetStream, o Options) error {
	if o.MaxPayload <= leastMessage {
		return fmt.Errorf("the NATS server accepts messages of up to %d bytes: set its max_payload to more than %d",
			o.MaxPayload, leastMessage)
	}
	if err := checkServer(ctx, js); err != nil {
		return err
	}
	if err := checkOther(ctx, js, o); err != nil {
		return err
	}
	if err := checkBuckets(ctx, js, o); err != nil {
		return err
	}
	root, err := o.present(ctx, js)
	if err != nil {
		return err
	}
	id := ""
	if root != nil {
		id = Identity(root.CachedInfo())
	}
	events, err := present(ctx, js, o.eventsConfig(id))
	if err == nil && events != nil {
		err = o.checkAge(events.CachedInfo().Config)
	}
	if root == nil && events != nil {
		if root, err := o.present(ctx, js); root != nil || err != nil {
			return err // another process has just created both
		}
		return stranger(o.Prefix.EventsStream(), "the stream %s that these events are from does not exist: restore that "+
			"log, or remove this stream and the bucket of checkpoints to begin with a new log", o.Root())
	}
	return err
}

// checkAge refuses a stream that keeps events for too long, unless the options change that.
func (o Options) checkAge(have jetstream.StreamConfig) error {
	if o.AsIs || o.EventsMaxAge != nil || o.EventsLongest == 0 || have.MaxAge > 0 && have.MaxAge <= o.EventsLongest {
		return nil
	}
	age := "for ever"
	if have.MaxAge > 0 {
		age = "for " + have.MaxAge.String()
	}
	return mismatch(have.Name, "it keeps events %s, and --forget-within allows %s at most (7/8 of it): set "+
		"--events-max-age, which removes older events, or set --forget-within to more", age, o.EventsLongest)
}

// Root names the root: see [wire.Prefix.RootStream].
func (o Options) Root() string { return o.Prefix.RootStream(o.Shards) }

// present returns the root, nil if there is none. It checks the root and the log that are present.
func (o Options) present(ctx context.Context, js jetstream.JetStream) (root jetstream.Stream, err error) {
	if !o.sharded() {
		return present(ctx, js, o.logConfig(""))
	}
	root, err = present(ctx, js, o.configsConfig())
	if err != nil {
		return nil, err
	}
	if root == nil {
		name := o.log().Stream()
		if _, err := js.Stream(ctx, name); errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("look up stream %s: %w", name, err)
		}
		// Another process may have just created both.
		if root, err = present(ctx, js, o.configsConfig()); root == nil || err != nil {
			return nil, cmp.Or(err, stranger(o.Root(), "it does not exist, and the log %s sources it: restore it", name))
		}
	}
	_, err = present(ctx, js, o.logConfig(Identity(root.CachedInfo())))
	return root, err
}

// checkOther refuses a prefix whose log was created with one shard where the options have
// several, and the other way round.
func checkOther(ctx context.Context, js jetstream.JetStream, o Options) error {
	other, has := o.Prefix.ConfigStream(), "several shards, and the options have one"
	if o.sharded() {
		other, has = o.Prefix.LogStream(), fmt.Sprintf("one shard, and the options have %d", o.Shards)
	}
	_, err := js.Stream(ctx, other)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("look up stream %s: %w", other, err)
	}
	return otherShards(other, "the prefix has %s: use the number with which it was created, or copy the documents to "+
		"another prefix (lapse export, lapse import)", has)
}

// checkBuckets refuses buckets of a restore that was interrupted, and snapshots in another format.
func checkBuckets(ctx context.Context, js jetstream.JetStream, o Options) error {
	for _, name := range []string{o.Prefix.CheckpointStream(), o.Prefix.SnapshotStream()} {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", name, err)
		}
		switch have := stream.CachedInfo().Config.Metadata[wire.FormatKey]; {
		case have == wire.Restoring:
			return restoring(name)
		case o.Objects && name == o.Prefix.SnapshotStream():
			if err := checkFormat(name, have); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFormat refuses a stream that another version of lapse has made.
func checkFormat(stream, format string) error {
	if err := wire.CheckFormat("stream "+stream, format); err != nil {
		return Refuse(wire.ErrFormat, "", "%w", err)
	}
	return nil
}

func restoring(stream string) error {
	return mismatch(stream, "a backup is being restored into it, or was not restored to its end: run lapse restore "+
		"again with the same file")
}

// present returns the stream of a configuration, nil if there is none. A stream that does
// not match the configuration is an error.
func present(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", want.Name, err)
	}
	return stream, compare(stream.CachedInfo().Config, want)
}

// Provision creates what is absent and checks what is present. It creates nothing if it
// refuses a stream.
func Provision(ctx context.Context, js jetstream.JetStream, o Options) (*Streams, error) {
	if err := Check(ctx, js, o); err != nil {
		return nil, err
	}
	s := &Streams{nc: js.Conn()}
	root, err := s.provisionLog(ctx, js, o)
	if err != nil {
		return nil, err
	}
	if err := s.readLimits(); err != nil {
		return nil, err
	}
	events := o.eventsConfig(Identity(root))
	if s.Events, err = provision(ctx, js, o, events, o.EventsMaxAge, o.EventsMaxBytes); err != nil {
		return nil, err
	}
	if s.Checkpoints, err = provisionCheckpoints(ctx, js, o); err != nil {
		return nil, err
	}
	if o.Objects {
		s.Snapshots, err = provisionObjects(ctx, js, o)
	}
	return s, err
}

// readLimits reads the limits of the log from its metadata, and its identity.
func (s *Streams) readLimits() (err error) {
	log := s.Log.CachedInfo()
	s.ID = Identity(log)
	region, err := wire.ParseRegion(log.Config.Metadata)
	if err != nil {
		return mismatch(log.Config.Name, "%w", err)
	}
	s.Former = region.Former
	if s.MaxBody, err = strconv.Atoi(log.Config.Metadata[maxBodyKey]); err != nil {
		return mismatch(log.Config.Name, "its metadata has no valid %s", maxBodyKey)
	}
	s.MaxLevels, err = levels(log.Config)
	return err
}

// levels is the limit of levels that a log was created with.
func levels(c jetstream.StreamConfig) (int, error) {
	n, err := strconv.Atoi(c.Metadata[maxLevelsKey])
	if err != nil || n < 1 {
		return 0, mismatch(c.Name, "its metadata has no valid %s", maxLevelsKey)
	}
	return n, nil
}

// provisionLog provisions the log, and returns the root. With several shards the limits of a
// body are those of the root, so that all shards judge a configuration alike.
func (s *Streams) provisionLog(ctx context.Context, js jetstream.JetStream, o Options) (root *jetstream.StreamInfo,
	err error) {
	id := ""
	if o.sharded() {
		if s.Configs, err = provision(ctx, js, o, o.configsConfig(), nil, nil); err != nil {
			return nil, err
		}
		root = s.Configs.CachedInfo()
		id = Identity(root)
		maxBody, err := strconv.ParseInt(root.Config.Metadata[maxBodyKey], 10, 64)
		if err != nil {
			return nil, mismatch(o.Root(), "its metadata has no valid %s", maxBodyKey)
		}
		o.MaxPayload = maxBody + Reserve
		if o.levels, err = levels(root.Config); err != nil {
			return nil, err
		}
	}
	if s.Log, err = provision(ctx, js, o, o.logConfig(id), o.LogMaxAge, o.LogMaxBytes); err != nil {
		return nil, err
	}
	if root == nil {
		return s.Log.CachedInfo(), nil
	}
	return root, s.CheckConfigs(ctx)
}

func provisionCheckpoints(ctx context.Context, js jetstream.JetStream, o Options) (jetstream.KeyValue, error) {
	bucket := o.Prefix.CheckpointBucket()
	kv, err := js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if o.Existing {
			return nil, gone(o.Prefix.CheckpointStream())
		}
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      bucket,
			Description: "lapse: per shard, the place in the log up to which all outputs are published",
			Replicas:    max(o.Replicas, 1),
		})
	}
	if err != nil {
		return nil, fmt.Errorf("provision bucket %s: %w", bucket, err)
	}
	return kv, nil
}

// provision creates a stream, or checks the one that is present and changes its limits.
func provision(ctx context.Context, js jetstream.JetStream, o Options, want jetstream.StreamConfig,
	maxAge *time.Duration, maxBytes *int64) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if o.Existing {
			return nil, gone(want.Name)
		}
		create := js.CreateStream
		if want.Name == o.Prefix.EventsStream() && maxBytes == nil {
			create = func(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
				return createEvents(ctx, js, c)
			}
		}
		if stream, err = create(ctx, want); err == nil {
			o.Logger.Info("created stream", slog.String("stream", want.Name))
			return stream, nil
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process has just created it
			stream, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("provision stream %s: %w", want.Name, err)
	}
	if err := compare(stream.CachedInfo().Config, want); err != nil {
		return nil, err
	}
	return stream, limit(ctx, js, o, stream, maxAge, maxBytes)
}

// limit changes the limits of a stream that is present to those of the options.
func limit(ctx context.Context, js jetstream.JetStream, o Options, stream jetstream.Stream, maxAge *time.Duration,
	maxBytes *int64) error {
	name, changed := stream.CachedInfo().Config.Name, false
	err := changeStream(ctx, js, o.Prefix.CheckpointBucket(), stream, func(_ context.Context,
		info *jetstream.StreamInfo) (*jetstream.StreamConfig, error) {
		have := info.Config
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
			return nil, nil
		}
		changed = true
		return &change, nil
	})
	if err != nil {
		return fmt.Errorf("change the limits of stream %s: %w", name, err)
	}
	if c := stream.CachedInfo().Config; changed {
		o.Logger.Info("changed the limits of stream", slog.String("stream", name), slog.Duration("max_age", c.MaxAge),
			slog.Int64("max_bytes", c.MaxBytes), slog.Duration("duplicate_window", c.Duplicates))
	}
	return nil
}

// leastLevel is the level of the API of nats-server 2.14, whose streams accept fast batches of messages.
const leastLevel = 4

// checkServer refuses a server that is too old.
func checkServer(ctx context.Context, js jetstream.JetStream) error {
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return fmt.Errorf("ask the NATS server for its version: %w", err)
	}
	return judgeServer(js.Conn().ConnectedServerVersion(), info.API.Level)
}

func judgeServer(version string, level int) error {
	if level < leastLevel {
		return fmt.Errorf("nats-server %s is too old (its JetStream API has level %d): use 2.14 or newer, on all servers "+
			"of the cluster", version, level)
	}
	return nil
}

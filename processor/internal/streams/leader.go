package streams

import (
	"bytes"
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
)

// Stamp is the instant (Unix nanoseconds) at which the log stored a message. found is
// false if the log does not have the message any more. The leader of the log answers.
func (s *Streams) Stamp(ctx context.Context, seq uint64) (at int64, found bool, err error) {
	m, err := s.get(ctx, s.Log.CachedInfo().Config.Name, map[string]any{"seq": seq})
	if m == nil || err != nil {
		return 0, false, err
	}
	return m.Time.UnixNano(), true, nil
}

// Next is the sequence of the first message of the log after another, 0 if there is none. The leader of the
// log answers.
func (s *Streams) Next(ctx context.Context, after uint64) (uint64, error) {
	m, err := s.get(ctx, s.Log.CachedInfo().Config.Name, map[string]any{"seq": after + 1, "next_by_subj": ">"})
	if m == nil || err != nil {
		return 0, err
	}
	return m.Seq, nil
}

// Value is the value under a key of the bucket of checkpoints, nil if there is none or it
// was deleted. The revision is that of the last change, 0 if there was none. The leader of the
// bucket's stream answers. One that was deposed and does not know it may answer too: the value
// may be old, and a change of the revision is refused then.
func (s *Streams) Value(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	bucket := s.Checkpoints.Bucket()
	m, err := s.get(ctx, "KV_"+bucket, map[string]any{"last_by_subj": "$KV." + bucket + "." + key})
	switch {
	case m == nil || err != nil:
		return nil, 0, err
	case bytes.Contains(m.Header, []byte("KV-Operation:")):
		return nil, m.Seq, nil
	}
	return m.Data, m.Seq, nil
}

// Update stores a value in the bucket of checkpoints in place of the one at a revision; 0 if there is
// none.
func (s *Streams) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return s.Checkpoints.Update(ctx, key, value, revision)
}

// lastOf is the last message of a stream whose subject matches a filter, nil if there is none.
func (s *Streams) lastOf(ctx context.Context, stream jetstream.Stream, filter string) (*events.Stored, error) {
	return s.get(ctx, stream.CachedInfo().Config.Name, map[string]any{"last_by_subj": filter})
}

// Get asks the leader of a stream for a message, and returns nil if there is none.
func (s *Streams) Get(ctx context.Context, stream string, request any) (*events.Stored, error) {
	return events.GetMessage(ctx, s.nc, stream, request)
}

// get is Get.
func (s *Streams) get(ctx context.Context, stream string, request map[string]any) (*events.Stored, error) {
	return events.GetMessage(ctx, s.nc, stream, request)
}

package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
func (s *Streams) lastOf(ctx context.Context, stream jetstream.Stream, filter string) (*message, error) {
	return s.get(ctx, stream.CachedInfo().Config.Name, map[string]any{"last_by_subj": filter})
}

// message is a message as the leader of a stream returns it.
type message struct {
	Seq     uint64    `json:"seq"`
	Subject string    `json:"subject"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// get asks the leader of a stream for a message, and returns nil if there is none. The
// client library would use direct access, and ask a replica that may lag behind.
func (s *Streams) get(ctx context.Context, stream string, request map[string]any) (*message, error) {
	return get(ctx, s.nc, stream, request)
}

func get(ctx context.Context, nc *nats.Conn, stream string, request map[string]any) (*message, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	reply, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *message            `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, fmt.Errorf("decode the answer of stream %s: %w", stream, err)
	}
	if e := answer.Error; e != nil {
		switch e.ErrorCode {
		case jetstream.JSErrCodeMessageNotFound:
			return nil, nil
		case jetstream.JSErrCodeStreamNotFound:
			return nil, jetstream.ErrStreamNotFound
		}
		return nil, e
	}
	return answer.Message, nil
}

package streams_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG7_CheckOfARestoredLog: what a restored log has lost is refused, and one whose metadata cannot be
// read is not taken for one that was never restored.
func TestG7_CheckOfARestoredLog(t *testing.T) {
	created := time.Unix(1, 2)
	for _, tt := range []struct {
		restored string
		offset   uint64
		want     error
		says     string
	}{
		{"", 15, nil, ""},
		{wire.Restored{Identity: created.UnixNano(), End: 10, Next: 20}.String(), 10, nil, ""},
		{wire.Restored{Identity: created.UnixNano(), End: 10, Next: 20}.String(), 15, streams.ErrLogBehind,
			"restored from a backup that ends at sequence 10"},
		{"10 20", 15, nil, wire.RestoredKey + ` is "10 20"`},
	} {
		info := &jetstream.StreamInfo{Created: created, State: jetstream.StreamState{FirstSeq: 1, LastSeq: 30}}
		info.Config.Metadata = map[string]string{wire.RestoredKey: tt.restored}
		err := streams.CheckOffset(info, strconv.FormatInt(created.UnixNano(), 10), tt.offset)
		if (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) || tt.want != nil &&
			!errors.Is(err, tt.want) {
			t.Errorf("restored %q, offset %d: %v", tt.restored, tt.offset, err)
		}
	}
}

// TestG12_Offset: a shard goes on with the log that it has applied, if that has everything since. Else it is refused
// with what is missing.
func TestG12_Offset(t *testing.T) {
	created := time.Unix(1, 2)
	id := strconv.FormatInt(created.UnixNano(), 10)
	for _, tt := range []struct {
		id          string
		first, last uint64
		offset      uint64
		want        error
		says        string
	}{
		{id, 1, 30, 30, nil, ""},
		{id, 1, 30, 31, streams.ErrLogBehind, "the log ends at sequence 30, and was applied up to 31"},
		{id, 11, 30, 10, nil, ""},
		{id, 12, 30, 10, streams.ErrLogTruncated, "the log begins at sequence 12, and was applied up to 10"},
		{id, 31, 30, 30, nil, ""}, // it has no messages
		{"7", 1, 30, 30, streams.ErrLogChanged, "the log was created at 1970-01-01T00:00:01.000000002Z, and what is stored " +
			"was computed from the log that was created at 1970-01-01T00:00:00.000000007Z"},
	} {
		info := &jetstream.StreamInfo{Created: created, State: jetstream.StreamState{FirstSeq: tt.first, LastSeq: tt.last}}
		err := streams.CheckOffset(info, tt.id, tt.offset)
		if (err != nil) != (tt.want != nil) || tt.want != nil && (!errors.Is(err, tt.want) ||
			!strings.Contains(err.Error(), tt.says)) {
			t.Errorf("offset %d of a log from %d to %d: %v, want %v, %q", tt.offset, tt.first, tt.last, err, tt.want, tt.says)
		}
	}
}

// TestG12_Stamp: a log that has lost its end, or has grown again since, has not the message that somebody has seen. A
// message that was deleted tells nothing.
func TestG12_Stamp(t *testing.T) {
	seen := store.Stamp{Seq: 9, At: 5}
	for _, tt := range []struct {
		last  uint64
		at    int64
		found bool
		want  error
		says  string
	}{
		{9, 5, true, nil, ""},
		{12, 5, true, nil, ""},
		{9, 0, false, nil, ""},
		{8, 0, false, streams.ErrLogBehind, "the log ends at sequence 8, and Redis has applied message 9"},
		{12, 6, true, streams.ErrLogChanged, "message 9 of the log was stored at 1970-01-01T00:00:00.000000006Z, and Redis " +
			"has applied one that was stored at 1970-01-01T00:00:00.000000005Z"},
	} {
		r := streams.JudgeStamp(tt.last, tt.at, tt.found, seen, "Redis has applied")
		if (r != nil) != (tt.want != nil) || r != nil && (!errors.Is(r, tt.want) || !strings.Contains(r.Error(), tt.says)) {
			t.Errorf("a log that ends at %d, stamp %d, %t: %v, want %v, %q", tt.last, tt.at, tt.found, r, tt.want, tt.says)
		}
	}
}

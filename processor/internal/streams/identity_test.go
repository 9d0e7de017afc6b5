package streams_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
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

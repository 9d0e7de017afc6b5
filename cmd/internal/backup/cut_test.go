package backup

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestUntil: what is stamped at the instant to which a backup is restored, or later, is left out, and so
// is what follows it although it is stamped earlier. The message with the sequence is left out too.
//
// It fails if the message at the very border stays.
func TestUntil(t *testing.T) {
	at := time.UnixMilli(1500)
	for _, tt := range []struct {
		until   Until
		seq     uint64
		logTime int64
		ends    bool
	}{
		{Until{}, 9, math.MaxInt64, false},
		{Until{Time: at}, 9, at.UnixNano() - 1, false},
		{Until{Time: at}, 9, at.UnixNano(), true},
		{Until{Time: at}, 9, at.UnixNano() + 1, true},
		{Until{Seq: 9}, 8, math.MaxInt64, false},
		{Until{Seq: 9}, 9, 0, true},
		{Until{Seq: 9}, 10, 0, true},
	} {
		if got := tt.until.ends(&message{Seq: tt.seq}, tt.logTime); got != tt.ends {
			t.Errorf("%+v: message %d at log time %d is left out: %v, want %v", tt.until, tt.seq, tt.logTime, got, tt.ends)
		}
	}
}

// Collection c is configured after the last message of a log, in the same millisecond. Events
// of that millisecond may follow from either: they are left out, and the checkpoint does not
// say that they are published. Collection e is configured later: an event of that millisecond is
// of the log that is restored, and a snapshot may be without its document.
//
// It fails if an event of the last millisecond of c stays; if it is left out, and lapse does not
// look it up; if an event of e is left out.
func TestG3_ConfiguredInTheLastInstant(t *testing.T) {
	c := &Contents{Header: Header{Prefix: wire.DefaultPrefix, Shards: 1, Partitions: 1}, changed: map[string]bool{"c": true, "e": false}}
	c.names = names{c.Prefix, 1}
	c.Streams = []StreamContents{{Name: c.names.logs()[0], end: 9, logTime: 1_500_000_000}}
	for collection, last := range map[string]int64{"c": 1499, "e": 1500, "f": 1501} {
		for ms := int64(1499); ms <= 1501; ms++ {
			m := &message{Subject: "lapse.expired." + collection + ".d"}
			m.Header = fmt.Appendf(nil, "NATS/1.0\r\nce-id: %s/d/7\r\nce-time: %s\r\n\r\n", collection, wire.Time(ms))
			if stays, err := c.isRestored(m); stays != (ms <= last) || err != nil {
				t.Errorf("an event of %s of %d ms stays: %v, %v, want %v", collection, ms, stays, err, ms <= last)
			}
		}
	}
	for _, seq := range []uint64{8, 9, 12} {
		m := &message{}
		m.Data, _ = json.Marshal(checkpoint{Seq: seq, Watermark: 1500})
		err := c.moveCheckpoint(m, &c.Streams[0])
		if point, _ := parseCheckpoint(m); err != nil || point.Seq != min(seq, 9) || point.Watermark != 1499 {
			t.Errorf("the checkpoint at %d: %+v, %v", seq, point, err)
		}
	}
}

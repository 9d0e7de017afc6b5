package backup

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/backup/file"
	"github.com/seed18712806/lapse/cmd/internal/backup/jsapi"
	"github.com/seed18712806/lapse/sink/wire"
)

// A collection is configured after the last message of a log, in the same millisecond. Events
// of that millisecond may follow from either: they are left out, and the checkpoint does not
// say that they are published.
//
// It fails if an event of the last millisecond stays; if it is left out, and lapse does not
// look it up.
func TestG3_ConfiguredInTheLastInstant(t *testing.T) {
	c := &Contents{Header: file.Header{Prefix: wire.DefaultPrefix, Shards: 1, Partitions: 1}, changed: map[string]bool{"c": true}}
	c.names = names{c.Prefix, 1}
	c.Streams = []StreamContents{{Name: c.names.logs()[0], end: 9, logTime: 1_500_000_000}}
	for ms, want := range map[int64]bool{1499: true, 1500: false, 1501: false} {
		m := &jsapi.Message{Subject: "lapse.expired.c.d"}
		m.Header = fmt.Appendf(nil, "NATS/1.0\r\nce-id: c/d/7\r\nce-time: %s\r\n\r\n", wire.Time(ms))
		if stays, err := c.isRestored(m); stays != want || err != nil {
			t.Errorf("an event of %d ms stays: %v, %v, want %v", ms, stays, err, want)
		}
	}
	for _, seq := range []uint64{8, 9, 12} {
		m := &jsapi.Message{}
		m.Data, _ = json.Marshal(checkpoint{Seq: seq, Watermark: 1500})
		err := c.moveCheckpoint(m, &c.Streams[0])
		if point, _ := parseCheckpoint(m); err != nil || point.Seq != min(seq, 9) || point.Watermark != 1499 {
			t.Errorf("the checkpoint at %d: %+v, %v", seq, point, err)
		}
	}
}

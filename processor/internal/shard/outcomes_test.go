package shard

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/wire"
)

const limit = time.Minute // on every wait

// applied is how far all partitions have applied the log.
type applied uint64

func (a *applied) Applied() uint64 { return uint64(*a) }

// TestG1_AnOutcomeWaitsForAllPartitions: the outcome of a configuration comes when the last partition has
// applied it, and not before. One that was sent before a rebuild does not come again.
//
// It fails if an outcome is sent while one message is left to be applied.
func TestG1_AnOutcomeWaitsForAllPartitions(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Options{}).Conn()
	inbox := nc.NewInbox()
	got, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	var at applied
	o := NewOutcomes(nc, &at, nil)
	// come returns the etags of the outcomes that were sent since, and of one that marks the end.
	come := func() (etags []wire.Etag) {
		t.Helper()
		o.Send(0, []fold.Outcome{{Position: fold.Position{Seq: 100}, ReplyTo: inbox, Body: wire.Outcome{Etag: 100}}})
		for len(etags) == 0 || etags[len(etags)-1] != 100 {
			m, err := got.NextMsg(limit)
			if err != nil {
				t.Fatal(err)
			}
			var body wire.Outcome
			if err := json.Unmarshal(m.Data, &body); err != nil {
				t.Fatal(err)
			}
			etags = append(etags, body.Etag)
		}
		return etags[:len(etags)-1]
	}
	var list []fold.Outcome
	for seq := range uint64(3) {
		list = append(list, fold.Outcome{Position: fold.Position{Seq: 4 + seq}, ReplyTo: inbox, Body: wire.Outcome{Etag: wire.Etag(4 + seq)}})
	}
	o.SendWhenAll(4, list) // the first was sent before
	for _, step := range []struct {
		applied applied
		want    []wire.Etag
	}{{4, nil}, {5, []wire.Etag{5}}, {5, nil}, {6, []wire.Etag{6}}, {9, nil}} {
		at = step.applied
		o.Poke()
		if etags := come(); !slices.Equal(etags, step.want) {
			t.Errorf("applied up to %d: the outcomes of %v come, want %v", at, etags, step.want)
		}
	}
}

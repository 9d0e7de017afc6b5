//go:build held

package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// original is a server with streams as lapse makes them, on which a test does what lapse and clients do.
type original struct {
	t      *testing.T
	shards int
	header Header
	nc     *nats.Conn
	js     jetstream.JetStream
	taken  uint64 // snapshots
	writes uint64
}

// newOriginal starts a server. Its collection is configured, and one document is written in each shard.
func newOriginal(t *testing.T, shards int) *original {
	t.Helper()
	o := &original{t: t, shards: shards, header: Header{Prefix: "lapse", Shards: shards}}
	o.nc = connected(t, natstest.Start(t, natstest.Options{}))
	o.js = natstest.JetStream(t, o.nc)
	create := func(name string, rollup bool, sources []*jetstream.StreamSource, subjects ...string) {
		natstest.CreateStream(t, o.js, jetstream.StreamConfig{Name: name, Subjects: subjects, Sources: sources, AllowRollup: rollup,
			AllowDirect: true, DenyDelete: !rollup && name != o.header.Prefix.SnapshotStream(),
			Metadata: map[string]string{wire.FormatKey: wire.FormatText, wire.ShardsKey: fmt.Sprint(shards)}})
	}
	p := o.header.Prefix
	if shards > 1 {
		create(o.header.root(), false, nil, "lapse.config.>")
	}
	for shard, name := range o.header.logs() {
		if shards > 1 {
			create(name, false, []*jetstream.StreamSource{{Name: o.header.root()}}, fmt.Sprintf("lapse.write%d.>", shard))
		} else {
			create(name, false, nil, "lapse.write0.>", "lapse.config.>")
		}
	}
	create(p.EventsStream(), false, nil, "lapse.expired.>")
	create(p.CheckpointStream(), true, nil, "$KV.LAPSE_CHECKPOINTS.>")
	create(p.SnapshotStream(), true, nil, "$O.LAPSE_SNAPSHOTS.>")
	o.publish("lapse.config.c", `{}`)
	o.write()
	o.write()
	o.checkpoint()
	return o
}

// publish publishes a message, and returns its sequence.
func (o *original) publish(subject, body string) uint64 {
	o.t.Helper()
	ack, err := o.js.Publish(o.t.Context(), subject, []byte(body))
	if err != nil {
		o.t.Fatal(err)
	}
	return ack.Sequence
}

// write writes a document in each shard.
func (o *original) write() {
	o.t.Helper()
	o.writes++
	for shard := range o.shards {
		o.publish(fmt.Sprintf("lapse.write%d.upsert.c.d%d", shard, o.writes), `{}`)
	}
}

// end is the last sequence of a log.
func (o *original) end(shard int) uint64 {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), o.header.logs()[shard])
	if err != nil {
		o.t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

// checkpoint stores a checkpoint of each shard at the end of its log.
func (o *original) checkpoint() {
	o.t.Helper()
	for shard := range o.shards {
		o.publish(o.header.Prefix.CheckpointSubject(checkpointKey(shard)),
			fmt.Sprintf(`{"format":3,"seq":%d,"watermark":1}`, o.end(shard)))
	}
}

// snapshot takes a snapshot of each shard, and removes all but the last two from the record; if truncates is set, it
// truncates the logs behind the older one.
func (o *original) snapshot(truncates bool) {
	o.t.Helper()
	o.taken++
	for shard := range o.shards {
		key := o.header.Prefix.CheckpointSubject(wire.SnapshotKey(shard))
		var r wire.SnapshotRecord
		m, err := bucketValue(o.t.Context(), o.nc, o.header, wire.SnapshotKey(shard))
		if err == nil && m != nil {
			err = json.Unmarshal(m.Data, &r)
		}
		if err != nil {
			o.t.Fatal(err)
		}
		g := wire.Generation{Generation: o.taken, Offset: o.end(shard), SHA256: "x"}
		o.publish(fmt.Sprintf("$O.LAPSE_SNAPSHOTS.C.%d.%d", shard, o.taken), `snapshot`)
		r.Generations = append([]wire.Generation{g}, r.Generations...)
		gone := r.Generations[min(2, len(r.Generations)):]
		r.Generations = r.Generations[:min(2, len(r.Generations))]
		text, err := json.Marshal(map[string]any{"format": 3, "generations": r.Generations})
		if err != nil {
			o.t.Fatal(err)
		}
		o.publish(key, string(text))
		for _, g := range gone {
			objects, err := o.js.Stream(o.t.Context(), o.header.Prefix.SnapshotStream())
			if err == nil {
				err = objects.Purge(o.t.Context(), jetstream.WithPurgeSubject(fmt.Sprintf("$O.LAPSE_SNAPSHOTS.C.%d.%d", shard, g.Generation)))
			}
			if err != nil {
				o.t.Fatal(err)
			}
		}
		if !truncates || len(r.Generations) < 2 {
			continue
		}
		log, err := o.js.Stream(o.t.Context(), o.header.logs()[shard])
		if err == nil {
			err = log.Purge(o.t.Context(), jetstream.WithPurgeSequence(r.Generations[1].Offset))
		}
		if err != nil {
			o.t.Fatal(err)
		}
	}
}

// expire publishes the event of a document in each shard that was written.
func (o *original) expire(write, after uint64) {
	o.t.Helper()
	msg := expiry(0, "c", fmt.Sprint("d", write), write+1, int64(after))
	header, err := nats.DecodeHeadersMsg(msg.Header)
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.js.PublishMsg(o.t.Context(), &nats.Msg{Subject: msg.Subject, Header: header, Data: msg.Data}); err != nil {
		o.t.Fatal(err)
	}
}

// take takes a backup, and reads it.
func (o *original) take() (file []byte, c *Contents, err error) {
	o.t.Helper()
	var out bytes.Buffer
	applies := func(context.Context) (bool, error) { o.checkpoint(); return true, nil } // it moves on while the backup waits
	if _, err := Take(o.t.Context(), Source{NATS: o.nc, Prefix: "lapse", Applying: applies}, &out); err != nil {
		return nil, nil, err
	}
	c, err = Scan(bytes.NewReader(out.Bytes()), Until{})
	return out.Bytes(), c, err
}

// holds verifies what a backup must hold: each log up to an end that was acknowledged before it began or later, a
// beginning from which Redis can be built (Scan verifies that), and a checkpoint no later than the end once it is restored.
func (o *original) holds(file []byte, c *Contents, ends []uint64) {
	o.t.Helper()
	for shard, end := range ends {
		if log := c.log(shard); log.end < end {
			o.t.Errorf("the backup has shard %d up to %d, and %d was acknowledged before it began", shard, log.end, end)
		}
	}
	nc := connected(o.t, natstest.Start(o.t, natstest.Options{}))
	if err := c.Restore(o.t.Context(), Target{NATS: nc, Applying: nobody}, bytes.NewReader(file), Until{}); err != nil {
		o.t.Fatal(err)
	}
	for shard := range o.shards {
		log := c.log(shard)
		m, err := bucketValue(o.t.Context(), nc, o.header, checkpointKey(shard))
		if err != nil {
			o.t.Fatal(err)
		}
		point, err := parseCheckpoint(m)
		if err != nil || point.Seq > log.end {
			o.t.Errorf("the checkpoint of shard %d is at %d (%v), and its log ends at %d", shard, point.Seq, err, log.end)
		}
		r, err := bucketValue(o.t.Context(), nc, o.header, wire.SnapshotKey(shard))
		if err != nil {
			o.t.Fatal(err)
		}
		record, err := parseRecord(r)
		if err != nil {
			o.t.Fatal(err)
		}
		for _, g := range record.Generations {
			subject := fmt.Sprintf("$O.LAPSE_SNAPSHOTS.C.%d.%d", shard, g.Generation)
			found, err := get(o.t.Context(), nc, o.header.Prefix.SnapshotStream(), map[string]any{"last_by_subj": subject})
			if err != nil || found == nil || g.Offset > log.end {
				o.t.Errorf("the record of shard %d names %+v: object there: %t, %v", shard, g, found != nil, err)
			}
		}
	}
}

// TestHeldTake: while a backup is taken, clients write, snapshots come and replace older ones, the logs are truncated
// behind them, checkpoints move on. The backup holds what was acknowledged before, and can be restored: its
// checkpoints are no later than its logs, and it has the objects of each snapshot that a record names. Or it is
// refused because a log was truncated, and the next one holds all of it.
func TestHeldTake(t *testing.T) {
	for _, c := range []struct {
		operation string
		shards    int
	}{
		{"find", 2}, {"records", 2}, {"readCheckpoints", 2}, {"takeLogs", 2}, {"checkpoints", 1}, {"snapshots", 1}, {"stream", 1},
	} {
		for _, truncates := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, truncated %t", c.operation, truncates), func(t *testing.T) {
				held.Each(t, "cmd/internal/backup.taker."+c.operation, held.Write, func(t *testing.T, during func(func())) {
					o := newOriginal(t, c.shards)
					o.snapshot(truncates)
					o.write()
					o.snapshot(truncates)
					var ends []uint64
					for shard := range c.shards {
						ends = append(ends, o.end(shard))
					}
					during(func() {
						for range 2 {
							o.write()
							o.checkpoint()
							o.snapshot(truncates)
						}
						o.write()
					})
					file, found, err := o.take()
					if truncates && err != nil && strings.Contains(err.Error(), "un lapse backup again") {
						file, found, err = o.take()
					}
					if err != nil {
						t.Fatal(err)
					}
					o.holds(file, found, ends)
				})
			})
		}
	}
}

// TestHeldDownload: while the server sends a stream, messages come and older ones go. What it sends is the stream as it
// was at an instant: all that was there before, or nothing is returned.
func TestHeldDownload(t *testing.T) {
	held.Each(t, "cmd/internal/backup.download", held.Write, func(t *testing.T, during func(func())) {
		o := newOriginal(t, 1)
		const large = 40
		for range large { // several chunks
			o.publish("lapse.write0.upsert.c.large", strings.Repeat(fmt.Sprint(o.writes), 20<<10))
		}
		end := o.end(0)
		during(func() {
			o.write()
			log, err := o.js.Stream(t.Context(), "LAPSE_LOG")
			if err == nil {
				err = log.Purge(t.Context(), jetstream.WithPurgeSequence(end/2))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		var out bytes.Buffer
		if err := download(t.Context(), o.nc, "LAPSE_LOG", false, &out); err != nil {
			t.Fatal(err)
		}
		var seqs []uint64
		s, err := visitAll(&out, func(m *message) { seqs = append(seqs, m.Seq) })
		if err != nil {
			t.Fatal(err)
		}
		if s.LastSeq < end || len(seqs) == 0 || seqs[len(seqs)-1] != s.LastSeq {
			t.Fatalf("%+v, messages %v", s, seqs)
		}
		for i, seq := range seqs {
			if seq != seqs[0]+uint64(i) || i == 0 && seq > end/2 {
				t.Fatalf("message %d has sequence %d: %v", i, seq, seqs)
			}
		}
	})
}

// TestHeldEnd: after the logs of a backup were read, a collection is configured so that a document expires, its event is
// published, and snapshots truncate the log behind that configuration. The event is left out, because the
// restored log does not have the configuration: otherwise nobody would publish it when the document expires again. Or the
// backup is refused.
//
// It fails if a configuration counts only as long as the log has it.
func TestHeldEnd(t *testing.T) {
	for _, operation := range []string{"checkpoints", "end", "configuredSince"} {
		for _, truncates := range []bool{false, true} {
			held.Each(t, "cmd/internal/backup.taker."+operation, held.Write, func(t *testing.T, during func(func())) {
				o := newOriginal(t, 1)
				o.snapshot(truncates)
				o.snapshot(truncates)
				published := false
				during(func() {
					o.publish("lapse.config.c", `{"defaultTtl":1}`)
					o.expire(1, 1<<40) // long after all stamps of the log
					published = true
					for range 2 {
						o.write()
						o.checkpoint()
						o.snapshot(truncates)
					}
				})
				file, found, err := o.take()
				if err != nil {
					if !truncates || !strings.Contains(err.Error(), "run lapse backup again") {
						t.Error(err)
					}
					return
				}
				if all, stay := expiries(t, file, Until{}); stay > 0 {
					t.Errorf("published %t: %d of %d events are restored, and the log ends at %d", published, stay, all, found.log(0).end)
				}
			})
		}
	}
}

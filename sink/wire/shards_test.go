package wire_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG1_NATSMapsToTheShard: nats-server maps each write to the shard that ShardOf computes.
//
// Goes red if ShardOf and the mapping do not agree: a log would reject the writes that it gets.
func TestG1_NATSMapsToTheShard(t *testing.T) {
	p := wire.DefaultPrefix
	for _, shards := range []int{2, 3, 64} {
		from, to := p.Mapping(shards)
		nc, err := nats.Connect(natstest.StartMapped(t, natstest.Options{}, from, to), natstest.Patient)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		sub, err := nc.SubscribeSync("lapse.>")
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			collection := rapid.StringMatching(`[A-Za-z0-9_-]{1,20}`).Draw(t, "collection")
			id := rapid.StringN(1, 60, wire.MaxID).Draw(t, "id")
			shard := wire.ShardOf(shards, collection, wire.EscapeID(id))
			log := p.Log(shard, shards)
			published, want := p.Write(wire.Upsert, collection, id), log.Write(wire.Upsert, collection, id)
			if err := nc.Publish(published, nil); err != nil {
				t.Fatal(err)
			}
			m, err := sub.NextMsg(time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if m.Subject != want || !strings.HasPrefix(want, fmt.Sprintf("lapse.shard.%d.write.upsert.", shard)) {
				t.Errorf("%s is mapped to %s, want %s", published, m.Subject, want)
			}
			if s := log.ParseSubject(m.Subject); s.Kind != wire.SubjectWrite || s.Published() != published {
				t.Errorf("%s was published on %s (%+v), want %s", m.Subject, s.Published(), s, published)
			}
		})
	}
}

// TestShardsSpread: documents spread over the shards.
func TestShardsSpread(t *testing.T) {
	const shards, ids = 16, 16_000
	var counts [shards]int
	for i := range ids {
		counts[wire.ShardOf(shards, "orders", strconv.Itoa(i))]++
	}
	for shard, count := range counts {
		if count < ids/shards/2 || count > ids/shards*2 {
			t.Errorf("shard %d has %d of %d ids", shard, count, ids)
		}
	}
}

// TestOneShardHasNoNumber: with one shard subjects and streams have no number.
func TestOneShardHasNoNumber(t *testing.T) {
	one, third := wire.DefaultPrefix.Log(0, 1), wire.DefaultPrefix.Log(2, 4)
	for _, tt := range [][2]string{
		{one.Stream(), "LAPSE_LOG"},
		{one.Tick(), "lapse.tick"},
		{one.Write(wire.Touch, "c", "a b"), "lapse.write.touch.c.a%20b"},
		{strings.Join(one.Subjects(), " "), "lapse.write.> lapse.config.> lapse.drop.> lapse.tick"},
		{third.Stream(), "LAPSE_LOG_2"},
		{third.Tick(), "lapse.shard.2.tick"},
		{third.Write(wire.Touch, "c", "a b"), "lapse.shard.2.write.touch.c.a%20b"},
		{strings.Join(third.Subjects(), " "), "lapse.shard.2.>"},
		{strings.Join(wire.DefaultPrefix.Log(0, 4).Subjects(), " "), "lapse.shard.0.> lapse.write.>"},
	} {
		if tt[0] != tt[1] {
			t.Errorf("%s, want %s", tt[0], tt[1])
		}
	}
	if got := wire.SourceSequence(nats.Header{"Nats-Stream-Source": {"LAPSE_CONFIG 17 > > lapse.config.c"}}); got != 17 {
		t.Errorf("the sequence is %d, want 17", got)
	}
	for _, text := range []string{"", "LAPSE_CONFIG", "LAPSE_CONFIG x"} {
		if got := wire.SourceSequence(nats.Header{"Nats-Stream-Source": {text}}); got != 0 {
			t.Errorf("%q has the sequence %d", text, got)
		}
	}
	for text, want := range map[string]int{"1": 1, "64": 64, "": 0, "0": 0, "-1": 0, "65": 0, "two": 0} {
		if got, err := wire.ParseShards(map[string]string{wire.ShardsKey: text}); got != want || err == nil != (want > 0) {
			t.Errorf("%q is %d shards, %v, want %d", text, got, err, want)
		}
	}
}

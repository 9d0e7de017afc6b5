package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestParseSubject: what each subject of a log says, with one shard and with several. The document orders/43 is in
// shard 1 of 2.
func TestParseSubject(t *testing.T) {
	one, first, second := wire.DefaultPrefix.Log(0, 1), wire.DefaultPrefix.Log(0, 2), wire.DefaultPrefix.Log(1, 2)
	write := func(kind wire.SubjectKind, own bool, op wire.Op, rest, collection, token string) wire.LogSubject {
		return wire.LogSubject{Kind: kind, Own: own, Op: op, Rest: rest, Collection: collection, Token: token}
	}
	stray := func(own bool, rest string) wire.LogSubject { return wire.LogSubject{Own: own, Rest: rest} }
	orders := func(kind wire.SubjectKind, own bool, op wire.Op) wire.LogSubject {
		return write(kind, own, op, "orders.43", "orders", "43")
	}
	const published = "lapse.write.upsert.orders.43"
	for _, c := range []struct {
		log       wire.Log
		subject   string
		want      wire.LogSubject
		published string // "" if that is the subject
	}{
		{one, published, orders(wire.SubjectWrite, true, wire.Upsert), ""},
		{one, "lapse.write.frob.orders.43", orders(wire.SubjectWrite, true, "frob"), ""},
		{one, "lapse.write.patch.c$.a%2Eb", write(wire.SubjectWrite, true, wire.Patch, "c$.a%2Eb", "c$", "a%2Eb"), ""},
		{one, "lapse.write.touch.c.a.b", write(wire.SubjectWrite, true, wire.Touch, "c.a.b", "c", "a.b"), ""},
		{one, "lapse.write.touch.c.", write(wire.SubjectWrite, true, wire.Touch, "c.", "c", ""), ""},
		{one, "lapse.write.touch.c", write(wire.SubjectShort, true, wire.Touch, "c", "", ""), ""},
		{one, "lapse.write.touch", write(wire.SubjectShort, true, wire.Touch, "", "", ""), ""},
		{one, "lapse.write", write(wire.SubjectShort, true, "", "", "", ""), ""},
		{one, "lapse.config.c", wire.LogSubject{Kind: wire.SubjectConfig, Own: true, Rest: "c", Collection: "c"}, ""},
		{one, "lapse.config.c.d", wire.LogSubject{Kind: wire.SubjectConfig, Own: true, Rest: "c.d", Collection: "c.d"}, ""},
		{one, "lapse.drop.c", wire.LogSubject{Kind: wire.SubjectDrop, Own: true, Rest: "c", Collection: "c"}, ""},
		{one, "lapse.tick", wire.LogSubject{Kind: wire.SubjectTick, Own: true, Rest: "tick"}, ""},
		{one, "lapse.tick.x", stray(true, "tick.x"), ""},
		{one, "lapse.writes.upsert.c.x", stray(true, "writes.upsert.c.x"), ""},
		{one, "lapse.copy.1.config.c", stray(true, "1.config.c"), ""},
		{one, "lapse.shard.0.write.upsert.orders.43", stray(true, "shard.0.write.upsert.orders.43"), ""},
		{one, "lapsed.write.upsert.c.x", stray(false, "lapsed.write.upsert.c.x"), ""},
		{one, "lapse", stray(false, "lapse"), ""},
		{one, "", stray(false, ""), ""},

		{second, "lapse.shard.1.write.upsert.orders.43", orders(wire.SubjectWrite, true, wire.Upsert), published},
		{second, published, orders(wire.SubjectUnmapped, false, wire.Upsert), ""},
		{first, "lapse.shard.0.write.upsert.orders.43", orders(wire.SubjectUnmapped, true, wire.Upsert), published},
		{second, "lapse.shard.1.write.upsert.orders.43.x", write(wire.SubjectUnmapped, true, wire.Upsert, "orders.43.x",
			"orders", "43.x"), published + ".x"},
		{second, "lapse.shard.1.write.upsert.orders", write(wire.SubjectUnmapped, true, wire.Upsert, "orders", "", ""),
			"lapse.write.upsert.orders"},
		{first, "lapse.write.upsert.orders", write(wire.SubjectUnmapped, false, wire.Upsert, "orders", "", ""), ""},
		{second, "lapse.shard.01.write.upsert.orders.43", stray(false, "shard.01.write.upsert.orders.43"), ""},
		{second, "lapse.shard.0.tick", stray(false, "shard.0.tick"), ""},
		{second, "lapse.shard.1.tick", wire.LogSubject{Kind: wire.SubjectTick, Own: true, Rest: "tick"}, "lapse.tick"},
		{second, "lapse.tick", stray(false, "tick"), ""},
		{second, "lapse.config.c", wire.LogSubject{Kind: wire.SubjectConfig, Sourced: true, Rest: "c", Collection: "c"}, ""},
		{second, "lapse.drop.c", wire.LogSubject{Kind: wire.SubjectDrop, Sourced: true, Rest: "c", Collection: "c"}, ""},
		{second, "lapse.shard.1.config.c", stray(true, "config.c"), ""},
		{second, "lapse.shard.1.drop.c", stray(true, "drop.c"), ""},
		{second, "lapse.shard.1.whatever", stray(true, "whatever"), ""},
		{second, "lapse.shard.1", stray(false, "shard.1"), ""},
		{second, second.Copy(17, "lapse.config.c"), wire.LogSubject{Kind: wire.SubjectConfig, Own: true, Sourced: true,
			Copied: 17, Rest: "c", Collection: "c"}, "lapse.config.c"},
		{second, second.Copy(17, "lapse.drop.c.d"), wire.LogSubject{Kind: wire.SubjectDrop, Own: true, Sourced: true,
			Copied: 17, Rest: "c.d", Collection: "c.d"}, "lapse.drop.c.d"},
		{second, second.Copy(17, ""), wire.LogSubject{Kind: wire.SubjectLost, Own: true, Sourced: true, Copied: 17}, ""},
		{second, second.Copy(17, published), stray(true, "17.write.upsert.orders.43"), ""},
		{second, second.Copy(0, "lapse.config.c"), stray(true, "0.config.c"), ""},
		{second, "lapse.shard.1.copy.x.config.c", stray(true, "x.config.c"), ""},
		{second, "lapse.shard.0.copy.17.config.c", stray(false, "shard.0.copy.17.config.c"), ""},
		{second, "lapse.copy.17.config.c", stray(false, "17.config.c"), ""},
	} {
		got := c.log.ParseSubject(c.subject)
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(wire.LogSubject{})); diff != "" {
			t.Errorf("%s in shard %d of %d (-want +got):\n%s", c.subject, c.log.Shard, c.log.Shards, diff)
		}
		if c.published == "" {
			c.published = c.subject
		}
		if text := got.Published(); text != c.published {
			t.Errorf("%s in shard %d of %d was published on %s, want %s", c.subject, c.log.Shard, c.log.Shards, text,
				c.published)
		}
	}
}

// TestLogSubjectSource: a configuration names its sequence by its subject or its header, and nothing else has one.
func TestLogSubjectSource(t *testing.T) {
	log := wire.DefaultPrefix.Log(1, 2)
	header := nats.Header{"Nats-Stream-Source": {"LAPSE_CONFIG 17 > > lapse.config.c"}}
	for subject, want := range map[string]uint64{
		"lapse.config.c": 17, log.Copy(18, "lapse.config.c"): 18, log.Copy(18, ""): 18,
		log.Write(wire.Upsert, "orders", "43"): 0, log.Copy(18, "lapse.write.upsert.c.x"): 0, log.Tick(): 0,
	} {
		if got := log.ParseSubject(subject).Source(header); got != want {
			t.Errorf("%s has the sequence %d, want %d", subject, got, want)
		}
	}
	if got := wire.DefaultPrefix.Log(0, 1).ParseSubject("lapse.config.c").Source(header); got != 0 {
		t.Errorf("with one shard a configuration has the sequence %d", got)
	}
}

// TestParseSubjectAllocatesNothing: the reader parses the subject of every message.
func TestParseSubjectAllocatesNothing(t *testing.T) {
	for _, log := range []wire.Log{wire.DefaultPrefix.Log(0, 1), wire.DefaultPrefix.Log(1, 2), wire.DefaultPrefix.Log(63,
		64)} {
		for _, subject := range []string{log.Write(wire.Upsert, "orders", "43"), log.Tick(), "lapse.config.orders"} {
			if n := testing.AllocsPerRun(100, func() { _ = log.ParseSubject(subject) }); n > 0 {
				t.Errorf("%s: %v allocations", subject, n)
			}
		}
	}
}

package fold

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// BenchmarkDecode is what the reader does with a write: it asks what the message is, and decodes it.
func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"customer":"c-1234567","state":"open","items":[{"sku":"a-1","n":2},{"sku":"b-7","n":1}],"ttl":3600}`)
	header := nats.Header{"Nats-Msg-Id": {"01JD"}, wire.HeaderReplyTo: {"_INBOX.abcdefghijklmnop.17"}}
	for _, shards := range []int{1, 4} {
		b.Run(map[int]string{1: "one shard", 4: "four shards"}[shards], func(b *testing.B) {
			d := testDecoder
			shard := wire.ShardOf(shards, "orders", "order-000123456")
			d.Log = wire.DefaultPrefix.Log(shard, shards)
			subject := d.Log.Write(wire.Upsert, "orders", "order-000123456")
			b.ReportAllocs()
			for b.Loop() {
				s := d.Log.ParseSubject(subject)
				if s.Kind != wire.SubjectWrite {
					b.Fatal("it is no write")
				}
				if m := d.DecodeAs(s, header, body, Position{Seq: 7, Time: 1000}); m.Rejected != nil {
					b.Fatal(m.Rejected)
				}
			}
		})
	}
}

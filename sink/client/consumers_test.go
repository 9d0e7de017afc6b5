package client

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestGroupConsumers: stripes are one durable name, and what lapse or a passing follower has is left out.
func TestGroupConsumers(t *testing.T) {
	p := wire.DefaultPrefix
	at := time.UnixMilli(1000)
	var infos []*jetstream.ConsumerInfo
	for n := range Stripes {
		infos = append(infos, &jetstream.ConsumerInfo{
			Config: jetstream.ConsumerConfig{
				Durable: "forward-orders-" + strconv.Itoa(n), PriorityPolicy: jetstream.PriorityPolicyPinned,
				FilterSubjects: []string{p.Bucket(wire.KindExpired, "orders", n), p.Bucket(wire.KindExpired, "orders", n+Stripes),
					p.Bucket(wire.KindChanged, "orders", n)},
			},
			NumPending: uint64(n), NumAckPending: 1, Delivered: jetstream.SequenceInfo{Last: &at},
		})
	}
	infos = append(infos,
		&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{FilterSubject: "lapse.expired.>"}},
		&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{Durable: "readers-READERS",
			DeliverSubject: "lapse.readers.READERS"}},
		&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{Durable: "billing-7",
			FilterSubject: "lapse.expired.carts.>"}, NumPending: 5},
		&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{Durable: "all"}, NumWaiting: 1},
		&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{Durable: "mail", FilterSubject: "lapse.due.mail.*"}},
	)
	delivered := wire.Time(1000)
	want := []ConsumerStatus{
		{Account: "A", Name: "all", Follows: []string{">"}, Connected: true},
		{Account: "A", Name: "billing-7", Follows: []string{"expired.carts"}, Pending: 5},
		{Account: "A", Name: "forward-orders", Follows: []string{"changed.orders", "expired.orders"}, Stripes: Stripes,
			Pending: 28, Unacked: Stripes, Connected: true, Delivered: &delivered},
		{Account: "A", Name: "mail", Follows: []string{"due.mail.*"}},
	}
	got := groupConsumers(p, "A", infos)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := got[2].Backlog(); n != 36 {
		t.Errorf("the backlog is %d", n)
	}
}

package client_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"

	"github.com/seed18712806/lapse/sink/wire"
)

// put stores an entry in the bucket of the members.
func (b *bench) put(t *testing.T, key string, value any) {
	t.Helper()
	kv, err := b.js.CreateOrUpdateKeyValue(t.Context(),
		jetstream.KeyValueConfig{Bucket: wire.DefaultPrefix.MembersBucket()})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), key, text); err != nil {
		t.Fatal(err)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	c := b.client(t, limit)
	b.event(t, "orders", "1")
	b.event(t, "orders", "2")
	got, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Server; !strings.HasPrefix(s.URL, "nats://127.0.0.1:") || s.Name == "" || !strings.HasPrefix(s.Version,
		"2.") {
		t.Errorf("server %+v", s)
	}
	if len(got.Members)+len(got.Shards) != 0 || got.Checkpoints != nil {
		t.Errorf("without members and checkpoints: %+v", got)
	}
	log, events := got.Streams[0], got.Streams[1]
	if log.Name != "LAPSE_LOG" || log.Messages != 0 || log.FirstTime != nil || log.LastTime != nil || log.Replicas != 1 {
		t.Errorf("log %+v", log)
	}
	if events.Name != "LAPSE_EVENTS" || events.Messages != 2 || events.FirstSeq != 1 || events.LastSeq != 2 ||
		events.Bytes == 0 || events.FirstTime == nil || events.LastTime == nil {
		t.Errorf("events %+v", events)
	}

	// The lease decides who owns the shard, also if the former owner still claims it.
	b.put(t, "member.a", wire.Member{ID: "a", Name: "host/1", Version: "1.0.0", Owns: []int{0}, Applied: 3})
	b.put(t, "member.b", wire.Member{ID: "b", Name: "host/2", Version: "1.1.0", Owns: []int{0}, Applied: 17,
		LagMessages: 4, Overdue: 1.5, Problem: "Redis does not answer"})
	b.put(t, "member.c", wire.Member{ID: "c", Name: "host/0"})
	b.put(t, "lease.0", wire.Lease{Owner: "b", Name: "host/2", Since: 1769860800000})
	b.put(t, "lease.1", wire.Lease{})
	b.put(t, "lease.2", wire.Lease{Owner: "z", Name: "host/9"})
	got, err = c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	since := wire.Time(1769860800000)
	want := []client.ShardStatus{
		{Shard: 0, Owner: "host/2", Since: &since, Alive: true, Applied: 17, LagMessages: 4, Overdue: 1.5, Problem: "Redis " +
			"does not answer"},
		{Shard: 1},
		{Shard: 2, Owner: "host/9"},
	}
	if diff := cmp.Diff(want, got.Shards); diff != "" {
		t.Errorf("shards (-want +got):\n%s", diff)
	}
	var roles []string
	for _, m := range got.Members {
		roles = append(roles, m.Name+" "+m.Role)
	}
	if diff := cmp.Diff([]string{"host/2 owner", "host/0 standby", "host/1 standby"}, roles); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

func TestStatusWithoutLapse(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	_, err := b.client(t, limit).Status(t.Context())
	wantError(t, err, `there is no lapse with the prefix "lapse" at nats://127.0.0.1`, "no stream LAPSE_LOG")
	if !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("error %v is not ErrUnavailable", err)
	}
}

func TestCollections(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	sub, err := b.nc.Subscribe("lapse.read.collections", func(msg *nats.Msg) {
		_ = msg.Respond([]byte(`{"collections":[{"name":"orders","defaultTtl":5,"indexingMode":"lazy","etag":"7","live":3,` +
			`"expired":1}],"continuation":"x"}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := b.client(t, limit).Collections(t.Context(), wire.CollectionsRequest{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := wire.CollectionsReply{Continuation: "x", Collections: []wire.Collection{{
		Name: "orders", DefaultTTL: new(int32(5)), IndexingMode: wire.Lazy, Etag: 7, Live: 3, Expired: 1,
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// rolesShards is the number of shards of deploy/nats/shards-4.conf.
const rolesShards = 4

// eachNumberOfShards runs a test with one shard, and with those of deploy/.
func eachNumberOfShards(t *testing.T, test func(t *testing.T, shards int)) {
	for _, shards := range []int{1, rolesShards} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) { t.Parallel(); test(t, shards) })
	}
}

// mapped is what the account of the streams makes of a subject.
func mapped(subject string, shards int) string {
	tokens := strings.Split(subject, ".")
	if shards <= 1 || len(tokens) != 5 || tokens[1] != "write" {
		return subject
	}
	shard := wire.ShardOf(shards, tokens[3], tokens[4])
	return wire.DefaultPrefix.Log(shard, shards).Mapped(subject)
}

// withShards is external for so many shards.
func withShards(t *testing.T, shards int) *world {
	t.Helper()
	w := serversOf(t, harness.RedisOptions{}, shards)
	w.lapse = harness.StartLapse(t, w.nats.URL(), w.redis.Address(), "--shards", strconv.Itoa(shards),
		"--duplicate-window", duplicateWindow.String(), "--readers", "READERS,FORWARD")
	return w
}

// logs are the messages of the logs of all shards.
func (w *world) logs() (all []oracle.Message) {
	w.t.Helper()
	for shard := range w.shards {
		all = append(all, w.Stream(w.Prefix.Log(shard, w.shards).Stream())...)
	}
	return all
}

// TestRoles_WritesAreMapped: the writes of a writer reach the logs of all four shards, through the import of the
// account of applications and the mapping of the account of the streams. Each has its outcome, its event, and a place
// in the log of its shard alone.
//
// It goes red if the mapping is in the account of applications, where the import no longer
// matches what it makes of a write; or if it is in no account.
func TestRoles_WritesAreMapped(t *testing.T) {
	t.Parallel()
	w := withShards(t, rolesShards)
	w.Configure("orders", `{"defaultTtl":1}`)
	writer := as(t, w.nats, "orders-writer")
	const writes = 20
	for i := range writes {
		if status := w.outcomeFor(t, writer, "orders-writer",
			w.Prefix.Write(wire.Create, "orders", fmt.Sprint(i))); status != 201 {
			t.Errorf("the outcome of write %d is %d, want 201", i, status)
		}
	}
	found := 0
	for shard := range rolesShards {
		before := found
		for _, m := range w.Stream(w.Prefix.Log(shard, rolesShards).Stream()) {
			id, ok := strings.CutPrefix(m.Subject, fmt.Sprintf("lapse.shard.%d.write.create.orders.", shard))
			if !ok {
				continue
			}
			found++
			if at := wire.ShardOf(rolesShards, "orders", id); at != shard {
				t.Errorf("the log of shard %d has %s", shard, m.Subject)
			}
		}
		if found == before {
			t.Errorf("the log of shard %d has no write", shard)
		}
	}
	if found != writes {
		t.Errorf("the logs have %d writes, want %d", found, writes)
	}
	w.verify()
}

// outcomeFor writes as a role, and returns the status of the outcome, which comes to an
// inbox that only the role can read.
func (w *world) outcomeFor(t *testing.T, nc *nats.Conn, role, subject string) int {
	t.Helper()
	inbox := nc.NewInbox()
	if !strings.HasPrefix(inbox, "_INBOX."+role+".") {
		t.Fatalf("inbox %s", inbox)
	}
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishMsg(&nats.Msg{Subject: subject, Data: []byte(`{}`),
		Header: nats.Header{wire.HeaderReplyTo: {inbox}}}); err != nil {
		t.Fatal(err)
	}
	msg, err := sub.NextMsg(harness.Limit)
	if err != nil {
		t.Fatalf("wait for the outcome of %s: %v", subject, err)
	}
	var status int
	if _, err := fmt.Sscanf(string(msg.Data), `{"status":%d`, &status); err != nil {
		t.Fatalf("outcome %s: %v", msg.Data, err)
	}
	return status
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/deployed"
)

// TestDeployment_Regions: two regions as deploy/nats has them, with one shard and with four: mirrors follow, a write of
// a client in region b is acknowledged and has its outcome, and what expires is seen there. Region b is promoted, and
// clients of both write on. The first region refuses, also after a new start.
//
// It goes red if a permission that the leaf nodes or lapse need is missing, or if the configurations do not fit
// together.
func TestDeployment_Regions(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			a, b := deployed.StartRegions(t, shards)
			first, follower := a.Prepare(), b.Prepare("--follow", "a")
			first.Start()
			follower.Start()
			runA, has := client(t, a)
			runB, _ := client(t, b)
			has(runA(0, "operator", "config", "orders", "--default-ttl", "3600"), "configured orders")
			for i := range 6 { // in each shard
				id := fmt.Sprint("a", i)
				has(runB(0, "orders-writer", "put", "orders", id, `{"item":"tea"}`), "created orders/"+id)
				follows(t, b, "orders", id)
			}
			has(runB(0, "operator", "config", "users", "--default-ttl", "60"), "configured users")
			has(runB(0, "orders-writer", "put", "orders", "expires", `{"ttl":1}`), "created orders/expires")
			has(runB(0, "reader", "watch", "orders", "expires", "--since", "1h", "--count", "1"),
				"expired orders/expires etag=")

			has(runB(0, "operator", "promote", "--from", "a"), `the region in the JetStream domain "b" is the first`)
			for i, run := range []func(int, string, ...string) string{runA, runB} {
				id := fmt.Sprint("later", i)
				has(run(0, "orders-writer", "put", "orders", id, `{"item":"tea"}`), "created orders/"+id)
				follows(t, b, "orders", id)
			}
			has(runB(0, "orders-writer", "put", "orders", "expires-later", `{"ttl":1}`), "created orders/expires-later")
			has(runB(0, "reader", "watch", "orders", "expires-later", "--since", "1h", "--count", "1"),
				"expired orders/expires-later etag=")
			follower.Ready()
			unready(t, first, "this region is not the first any more")
			first.Kill()
			first.Launch()
			unready(t, first, "this region is not the first any more")
			deniedNothing(t, a)
			deniedNothing(t, b)
		})
	}
}

// follows waits until a reader finds a document in a region.
func follows(t *testing.T, d *deployed.Deployment, collection, id string) {
	t.Helper()
	harness.Until(t, harness.Limit, "the region has "+id, func(context.Context) error {
		if _, errOut, code := d.Run("reader", "get", collection, id); code != 0 {
			return errors.New(errOut)
		}
		return nil
	})
}

// crossing is what crosses the leaf nodes between two regions: subjects of the account LAPSE, from region b to a,
// and from a to b.
const crossing = `
subject                                b-to-a a-to-b
lapse.write.upsert.orders.1            yes    yes
lapse.shard.3.write.upsert.orders.1    yes    yes
lapse.config.orders                    yes    yes
lapse.drop.orders                      yes    yes
_R_.1                                  yes    yes
$JSC.R.1                               yes    yes
$JS.M.1                                yes    yes
$JS.FC.LAPSE_LOG.1.1                   yes    yes
lapse.beat.0                           no     no
lapse.fence.0                          no     no
lapse.tick                             no     no
lapse.shard.0.tick                     no     no
lapse.shard.0.copy.1.config.orders     no     no
lapse.snapshot.0                       no     no
lapse.read.get.orders.1                no     no
lapse.readers.READERS                  no     no
$JS.READERS.API.STREAM.INFO.1          no     no
lapse.expired.orders.1                 no     no
lapse.expiring.orders.1                no     no
lapse.due.mail.send                    no     no
lapse.changed.orders.1                 no     no
lapse.rejected.orders.1                no     no
$O.LAPSE_SNAPSHOTS.C.1                 no     no
$KV.LAPSE_CHECKPOINTS.shard.0          no     no
$KV.LAPSE_MEMBERS.lease.0              no     no
$JS.ACK.LAPSE_EVENTS.c.1.1.1.1.1       no     no
$SRV.INFO.lapse                        no     no
lapse.region.a                         yes    no
lapse.region.b                         no     yes
_INBOX.last                            yes    yes
`

// TestRoles_BetweenRegions: it goes red if something crosses that each region has for itself, as beats and fences, or
// if something does not that the other region waits for.
func TestRoles_BetweenRegions(t *testing.T) {
	t.Parallel()
	a, b := deployed.StartRegions(t, 1)
	atA, atB := a.Connect("operator"), b.Connect("operator")
	lines := strings.Split(strings.TrimSpace(crossing), "\n")[1:]
	for i, way := range []struct {
		name     string
		from, to *nats.Conn
	}{{"region b to a", atB, atA}, {"region a to b", atA, atB}} {
		came := make(chan *nats.Msg, 10_000)
		for _, line := range lines {
			if _, err := way.to.ChanSubscribe(strings.Fields(line)[0], came); err != nil {
				t.Fatal(err)
			}
		}
		got := map[string]bool{}
		// The servers learn one by one who listens to what. Once all that has to cross has crossed, each subject is sent
		// once more: by then what must not cross would, too.
		for range 2 {
			missing := map[string]bool{}
			for _, line := range lines {
				if fields := strings.Fields(line); fields[1+i] == "yes" {
					missing[fields[0]] = true
				}
			}
			harness.Until(t, harness.Limit, "everything crosses from "+way.name, func(context.Context) error {
				for _, line := range lines {
					if err := way.from.Publish(strings.Fields(line)[0], nil); err != nil {
						return err
					}
				}
				if err := errors.Join(way.from.Flush(), way.to.Flush()); err != nil {
					return err
				}
				for len(came) > 0 {
					subject := (<-came).Subject
					got[subject] = true
					delete(missing, subject)
				}
				if len(missing) > 0 {
					return fmt.Errorf("these do not: %v", slices.Collect(maps.Keys(missing)))
				}
				return nil
			})
		}
		for _, line := range lines {
			if fields := strings.Fields(line); fields[1+i] == "no" && got[fields[0]] {
				t.Errorf("%s crosses from %s", fields[0], way.name)
			}
		}
	}
	for domain, to := range map[string]*nats.Conn{"a": atB, "b": atA} {
		asks(t, to, domain)
	}
}

// asks compares what answers to requests to JetStream in the other region.
func asks(t *testing.T, nc *nats.Conn, domain string) {
	t.Helper()
	answers := make(chan *nats.Msg, 10_000)
	if _, err := nc.ChanSubscribe("_INBOX.operator.asks.>", answers); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	denied := []string{"INFO", "STREAM.CREATE.LAPSE_LOG", "STREAM.UPDATE.LAPSE_LOG", "STREAM.DELETE.LAPSE_LOG",
		"STREAM.PURGE.LAPSE_LOG", "STREAM.MSG.DELETE.LAPSE_LOG",
		"CONSUMER.CREATE.LAPSE_LOG", "CONSUMER.CREATE.LAPSE_LOG.c", "CONSUMER.CREATE.LAPSE_EVENTS.c.lapse.expired.>",
		"CONSUMER.DURABLE.CREATE.LAPSE_LOG.c", "CONSUMER.DELETE.LAPSE_LOG.c", "CONSUMER.MSG.NEXT.LAPSE_LOG.c"}
	allowed := []string{"STREAM.INFO.LAPSE_LOG", "STREAM.MSG.GET.LAPSE_LOG"}
	harness.Until(t, harness.Limit, "the other region answers", func(context.Context) error {
		for _, request := range append(denied, allowed...) {
			if err := nc.PublishRequest("$JS."+domain+".API."+request, "_INBOX.operator.asks."+request,
				[]byte("{}")); err != nil {
				return err
			}
		}
		for len(answers) > 0 {
			m := <-answers
			if m.Header.Get("Status") != "503" { // no responders
				got[strings.TrimPrefix(m.Subject, "_INBOX.operator.asks.")] = true
			}
		}
		for _, request := range allowed {
			if !got[request] {
				return errors.New("it does not answer " + request)
			}
		}
		return nil
	})
	for _, request := range denied {
		if got[request] {
			t.Errorf("$JS.%s.API.%s answers to the other region", domain, request)
		}
	}
}

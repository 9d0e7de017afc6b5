package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestPrintStatus(t *testing.T) {
	at := new(wire.Time(1769860800000))
	state := client.Status{
		Prefix: "lapse",
		Server: client.ServerStatus{URL: "nats://u:xxxxx@host:4222", Name: "n1", Version: "2.15.2"},
		Streams: []client.StreamStatus{
			{Name: "LAPSE_LOG", Messages: 17, Bytes: 1023, FirstSeq: 1, LastSeq: 17, FirstTime: at, LastTime: at, Replicas: 3},
			{Name: "LAPSE_EVENTS", Bytes: 5 << 29, Replicas: 1},
		},
		Checkpoints: &client.BucketStatus{Name: "LAPSE_CHECKPOINTS", Entries: 16, Bytes: 1536},
		Shards: []client.ShardStatus{
			{Shard: 0, Owner: "host/2", Alive: true, Applied: 12, LagMessages: 5, Overdue: 1.25,
				Problem: "Redis does not answer"},
			{Shard: 1},
			{Shard: 2, Owner: "host/3"},
		},
		Members: []client.MemberStatus{
			{Role: client.RoleOwner, SeenAgo: 1.19, Member: wire.Member{Name: "host/2", Version: "1.0.0", Started: *at,
				Problem: "Redis does not answer"}},
			{Role: client.RoleGone, SeenAgo: 75, Member: wire.Member{Name: "host/3", Version: "1.0.0", Started: *at}},
		},
	}
	const want = `prefix lapse
server nats://u:xxxxx@host:4222 n1, nats-server 2.15.2

STREAM             MESSAGES  BYTES    FIRST                          LAST                            REPLICAS
LAPSE_LOG          17        1023 B   1 at 2026-01-31T12:00:00.000Z  17 at 2026-01-31T12:00:00.000Z  3
LAPSE_EVENTS       0         2.5 GiB  -                              -                               1
LAPSE_CHECKPOINTS  16        1.5 KiB                                                                 

shard 0: owner host/2, applied up to 12, 5 messages behind, 1.2s overdue
shard 0: problem: Redis does not answer
shard 1: no owner: the last one has left
shard 2: the owner host/3 is gone

PROCESS  ROLE   SHARDS  VERSION  STARTED                   SEEN       PROBLEM
host/2   owner  0       1.0.0    2026-01-31T12:00:00.000Z  1.1s ago   Redis does not answer
host/3   gone   2       1.0.0    2026-01-31T12:00:00.000Z  1m15s ago  
`
	var out bytes.Buffer
	if err := printStatus(&out, state); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	state.Shards = state.Shards[:1]
	out.Reset()
	if err := printStatus(&out, state); err != nil || !bytes.Contains(out.Bytes(), []byte("\nPROCESS  ROLE   VERSION")) {
		t.Errorf("with one shard: %v\n%s", err, out.String())
	}
	out.Reset()
	if err := printStatus(&out, client.Status{Prefix: "lapse"}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out.Bytes(), []byte("\nno process owns the log\n")) {
		t.Errorf("without processes: %s", out.String())
	}
}

// TestPrintStatusOfRegions: status says what the region has to do with others.
func TestPrintStatusOfRegions(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	promoted := wire.Promotion{Domain: "b", From: "a", At: at, By: "root@host"}
	for want, r := range map[string]*client.RegionStatus{
		"": nil,
		`this region follows the region "a", 3 messages behind, as it was 2m0s ago, ` +
			"which does not answer since 2026-01-31T12:00:00.000Z\n": {Region: wire.Region{Follows: "a"},
			Following: &wire.Following{
				Domain: "a", Behind: 3, AsOf: wire.Time(time.Now().Add(-2 * time.Minute).UnixMilli()),
				Down: wire.Time(at.UnixMilli()),
			}},
		`this region follows the region "a"; no process says how far it is behind
`: {Region: wire.Region{Follows: "a"}},
		`this region is followed by the region "b", as that said 2s ago
this region is followed by the region "c", as that said 2h0m0s ago: if it is no more, run lapse forget-follower c
`: {Followers: []client.FollowerStatus{{Domain: "b", SeenAgo: 2}, {Domain: "c", SeenAgo: 7200}}},
		`this region continues the log of the region "a" behind 17: it was promoted at 2026-01-31T12:00:00Z by root@host, ` +
			"in the JetStream domain \"b\"\n": {Region: wire.Region{Former: []wire.Former{{Last: 17, Promotion: promoted}}}},
		`this region follows the region "a"; no process says how far it is behind
this region is being promoted, since 2026-01-31T12:00:00Z by root@host, in the JetStream domain "b"
`: {Region: wire.Region{Follows: "a", Promotion: &promoted}},
		`this region is not the first any more: another was promoted at 2026-01-31T12:00:00Z by root@host, ` +
			"in the JetStream domain \"b\"\n": {Region: wire.Region{Superseded: &promoted}},
	} {
		var out bytes.Buffer
		if err := printStatus(&out, client.Status{Prefix: "lapse", Region: r}); err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(out.String(), "\nSTREAM")
		_, got, _ := strings.Cut(head, "nats-server \n")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

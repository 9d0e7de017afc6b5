package console

import (
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestSystemOfSeveralProcesses: the page has what lapse status has, of each shard and process.
func TestSystemOfSeveralProcesses(t *testing.T) {
	taken := wire.Time(1_790_000_000_000)
	s := &client.Status{
		Shards: []client.ShardStatus{
			{Shard: 0, Owner: "a/1", Since: &taken, Alive: true, Applied: 12345, LagMessages: 7, Overdue: 1.5,
				Retention: &wire.Retention{
					Snapshots: 1, Offset: 9876, Taken: taken, Documents: 4321, Bytes: 5 << 20,
					Oldest: map[string]float64{"log": 7200, "events": 60}, Within: 8 * 86400,
				}},
			{Shard: 1, Owner: "b/2"},
			{Shard: 2},
		},
		Members: []client.MemberStatus{
			{Role: client.RoleOwner, SeenAgo: 0.4, Member: wire.Member{Name: "a/1", Version: "1.2.3", HTTP: "http://a:7070",
				Problem: "disk: it is <full>"}},
			{Role: client.RoleGone, SeenAgo: 61, Member: wire.Member{Name: "b/2", Version: "1.2.2"}},
		},
		Streams: []client.StreamStatus{{Name: "LAPSE_LOG_0", Messages: 1000, Bytes: 1 << 30, FirstSeq: 1, LastSeq: 1000,
			LastTime: &taken, Replicas: 3}},
	}
	body, err := render("system", Page{Title: "System", Now: taken + 90_000, Data: systemData{Process: "a/1", Status: s}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"12,345", ">7<", "1.5 s", "1 of 2", "1 min 30 s ago", "9,876", "4,321", "5.0 MiB",
		"events 1 min, log 2 h (promised: 8 d)",
		"b/2 (gone)", "none: the last one has left", "not known yet", "a/1 (this one)", "disk: it is &lt;full&gt;",
		"1.2.2", "http://a:7070", "1 min 1 s ago",
		"LAPSE_LOG_0", "1.0 GiB",
		`<time datetime="2026-09-21T14:13:20.000Z"><span class="date">2026-09-21</span> 14:13:20</time>`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(string(body))
	}
}

// TestSystemOfRegions: the page says what lapse status says of other regions.
func TestSystemOfRegions(t *testing.T) {
	now := wire.Time(1_790_000_000_000)
	promoted := wire.Promotion{Domain: "b", From: "a", At: time.UnixMilli(int64(now)).UTC(), By: "root@<host>"}
	for _, tt := range []struct {
		region *client.RegionStatus
		want   []string
	}{
		{nil, nil},
		{&client.RegionStatus{Region: wire.Region{Follows: "eu"}, Following: &wire.Following{Domain: "eu", Behind: 12345,
			AsOf: now - 90_000, Down: now - 60_000}},
			[]string{"Follows the region", ">eu<", "12,345", "1 min 30 s ago", "not since <time"}},
		{&client.RegionStatus{Region: wire.Region{Follows: "eu"}, Following: &wire.Following{Domain: "eu"}},
			[]string{"not known yet", ">yes<"}},
		{&client.RegionStatus{Followers: []client.FollowerStatus{{Domain: "us"}, {Domain: "asia"}}},
			[]string{`followed by <span class="id">us</span>, <span class="id">asia</span>.`}},
		{&client.RegionStatus{Region: wire.Region{Former: []wire.Former{{Last: 1234, Promotion: promoted}}}},
			[]string{"behind 1,234: it was promoted at 2026-09-21T14:13:20Z by root@&lt;host&gt;, in the JetStream domain " +
				"&#34;b&#34;."}},
		{&client.RegionStatus{Region: wire.Region{Superseded: &promoted, Promotion: &promoted}},
			[]string{"is being promoted", "is not the first any more"}},
	} {
		body, err := render("system", Page{Title: "System", Now: now,
			Data: systemData{Status: &client.Status{Region: tt.region}}})
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(string(body), `id="region"`); has != (tt.region != nil) {
			t.Errorf("%+v: it has the section: %v", tt.region, has)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(body), want) {
				t.Errorf("%+v: it lacks %q", tt.region, want)
			}
		}
	}
}

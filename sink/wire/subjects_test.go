package wire_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/wire"
)

func TestSubjects(t *testing.T) {
	p := wire.DefaultPrefix
	for _, tt := range []struct{ got, want string }{
		{p.Write(wire.Upsert, "orders", "a.b"), "lapse.write.upsert.orders.a%2Eb"},
		{p.Config("orders"), "lapse.config.orders"},
		{p.Drop("orders"), "lapse.drop.orders"},
		{p.Log(0, 1).Tick(), "lapse.tick"},
		{p.Expired("orders", "a.b"), "lapse.expired.orders.a%2Eb"},
		{p.Expiring("orders", "a.b"), "lapse.expiring.orders.a%2Eb"},
		{p.Due("mail.send"), "lapse.due.mail.send"},
		{p.Changed("orders", "a.b"), "lapse.changed.orders.a%2Eb"},
		{p.Dropped("orders"), "lapse.changed.orders"},
		{p.Rejected("orders.a%2Eb"), "lapse.rejected.orders.a%2Eb"},
		{p.Read("list", "orders"), "lapse.read.list.orders"},
		{p.ReadGet("orders", "a.b"), "lapse.read.get.orders.a%2Eb"},
		{p.Readers("FORWARD"), "lapse.readers.FORWARD"},
		{p.LogStream(), "LAPSE_LOG"},
		{p.EventsStream(), "LAPSE_EVENTS"},
		{p.CheckpointBucket(), "LAPSE_CHECKPOINTS"},
		{p.CheckpointStream(), "KV_LAPSE_CHECKPOINTS"},
		{p.CheckpointSubject(wire.SnapshotKey(2)), "$KV.LAPSE_CHECKPOINTS.snapshot.2"},
		{p.ConfigStream(), "LAPSE_CONFIG"},
		{p.RootStream(1), "LAPSE_LOG"},
		{p.RootStream(2), "LAPSE_CONFIG"},
		{strings.Join(p.MirrorStreams(1), " "), "LAPSE_EVENTS OBJ_LAPSE_SNAPSHOTS LAPSE_LOG"},
		{strings.Join(p.MirrorStreams(2), " "), "LAPSE_EVENTS OBJ_LAPSE_SNAPSHOTS LAPSE_LOG_0 LAPSE_LOG_1 LAPSE_CONFIG"},
		{p.SnapshotStream(), "OBJ_" + p.SnapshotBucket()},
		{p.DeadStream(), "LAPSE_DEAD"},
		{p.Dead("mailer", "a%2Eb"), "lapse.dead.mailer.a%2Eb"},
		{p.Resend("mailer"), "lapse.resend.mailer"},
		{p.MembersBucket(), "LAPSE_MEMBERS"},
		{wire.LeaseKey(2), "lease.2"},
		{wire.MemberKey("m1"), "member.m1"},
		{wire.FollowerKey("hub"), "follower.hub"},
		{p.Beat(2), "lapse.beat.2"},
		{p.Fence(2), "lapse.fence.2"},
		{p.Probe(), "lapse.fence.probe"},
		{p.Snapshot(2), "lapse.snapshot.2"},
		{p.Region("hub"), "lapse.region.hub"},
		{p.ReadCollections(), "lapse.read.collections"},
		{p.Log(0, 1).Pause(), "lapse.pause"},
		{p.Log(2, 4).Pause(), "lapse.shard.2.pause"},
		{p.Bucket(wire.KindDue, "orders", 7), "lapse.due.orders.7"},
		{strings.Join(p.Log(0, 1).Subjects(), " "), "lapse.write.> lapse.config.> lapse.drop.> lapse.tick"},
		{strings.Join(p.EventSubjects(), " "), "lapse.expired.> lapse.expiring.> lapse.due.> lapse.changed.> " +
			"lapse.rejected.> lapse.fence.*"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestOps(t *testing.T) {
	want := []wire.Op{"upsert", "create", "replace", "patch", "touch", "delete"}
	if !slices.Equal(wire.Ops, want) {
		t.Errorf("Ops are %v, want %v", wire.Ops, want)
	}
	for _, op := range wire.Ops {
		if got, want := op.HasBody(), op != "touch" && op != "delete"; got != want {
			t.Errorf("%s has a body: %t, want %t", op, got, want)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	for _, s := range []string{"lapse", "a", "A-b_9", strings.Repeat("x", 32)} {
		if p, err := wire.ParsePrefix(s); err != nil || string(p) != s {
			t.Errorf("ParsePrefix(%q) = %q, %v", s, p, err)
		}
	}
	for _, s := range []string{"", strings.Repeat("x", 33), "a.b", "*", ">", "a b", "ü", "$JS", "a\n"} {
		p, err := wire.ParsePrefix(s)
		if !errors.Is(err, wire.ErrInvalidName) || p != "" {
			t.Errorf("ParsePrefix(%q) = %q, %v; want ErrInvalidName", s, p, err)
			continue
		}
		if !strings.Contains(err.Error(), "is not valid: use 1 to 32 of A-Z a-z 0-9 _ -.") {
			t.Errorf("ParsePrefix(%q): error %q does not say what is allowed", s, err)
		}
	}
}

// TestPrefixOrDefault: options without a prefix mean the default one, and every other prefix is checked.
func TestPrefixOrDefault(t *testing.T) {
	for p, want := range map[wire.Prefix]wire.Prefix{"": "lapse", "acme": "acme"} {
		if got, err := p.OrDefault(); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", p, got, err, want)
		}
	}
	if got, err := wire.Prefix("a.b").OrDefault(); !errors.Is(err, wire.ErrInvalidName) || got != "" {
		t.Errorf("a.b is %q, %v, want ErrInvalidName", got, err)
	}
}

// TestIsInbox: an outcome goes to a subject without wildcards under _INBOX, or under a prefix that the operator allows.
func TestIsInbox(t *testing.T) {
	inboxes := wire.Inboxes([]string{"_INBOX_acme", "a.b"})
	for subject, want := range map[string]bool{
		"_INBOX.x": true, "_INBOX.x.y": true, "_INBOX_acme.x": true, "a.b.c": true, "a.b.!~": true, "_INBOX.a*": true,
		"": false, "_INBOX": false, "_INBOX.": false, "_INBOX.x.": false, "_INBOX..x": false, "_INBOX_acme": false,
		"_INBOX_acmes.x": false, "a.c.b": false, "lapse.write.upsert.c.x": false, "x._INBOX.x": false,
		"_INBOX.*": false, "_INBOX.x.>": false, "_INBOX.*.x": false, "_INBOX.a b": false, "_INBOX.a\x7f": false, "_INBOX.ü": false,
		"_INBOX." + strings.Repeat("x", 1024-7): true, "_INBOX." + strings.Repeat("x", 1024-6): false,
	} {
		if got := wire.IsInbox(subject, inboxes); got != want {
			t.Errorf("%.40q is an inbox: %t, want %t", subject, got, want)
		}
	}
	if wire.IsInbox("_INBOX_acme.x", wire.Inboxes(nil)) {
		t.Error("an outcome goes to a prefix that nobody has allowed")
	}
}

// hostile are texts that may follow the kind in the subject of a rejected message.
var hostile = []struct{ name, rest, want string }{
	{"an ordinary id", "orders.order-17", "orders.order-17"},
	{"an escaped id", "orders.a%2Eb%20c", "orders.a%2Eb%20c"},
	{"a dotted id", "orders.a.b", "orders.a.b"},
	{"nothing", "", "!"},
	{"a dot", ".", "!.!"},
	{"dots", "...", "!.!.!.!"},
	{"an empty token", "a..b", "a.!.b"},
	{"an empty token at the start", ".a", "!.a"},
	{"an empty token at the end", "a.", "a.!"},
	{"a wildcard", "*", "!2A"},
	{"the other wildcard", ">", "!3E"},
	{"wildcards in tokens", "a.*.b.>", "a.!2A.b.!3E"},
	{"spaces", "a b. .c", "a!20b.!20.c"},
	{"line breaks", "a\r\nb", "a!0D!0Ab"},
	{"a tab and NUL", "\t\x00", "!09!00"},
	{"text outside ASCII", "ü", "!C3!BC"},
	{"no UTF-8", "\xff", "!FF"},
	{"an escape that is none", "%zz.%", "%zz.%"},
	{"a dollar", "$JS.API.>", "!24JS.API.!3E"},
	{"a system inbox", "_INBOX.x", "_INBOX.x"},
}

// TestG8_RejectedCanBePublished: whatever the subject of a rejected message is, its rejection
// has a subject that the server and the stream of events accept.
//
// Goes red if EscapeToken does not change a wildcard, a space or an empty token, or if Rejected
// cuts a subject after a dot.
func TestG8_RejectedCanBePublished(t *testing.T) {
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			got := wire.DefaultPrefix.Rejected(tt.rest)
			if want := "lapse.rejected." + tt.want; got != want {
				t.Errorf("Rejected(%q) = %q, want %q", tt.rest, got, want)
			}
			checkRejected(t, tt.rest)
		})
	}
	t.Run("very long, with the cut at any place", func(t *testing.T) {
		for n := 2040; n <= 2060; n++ {
			for _, unit := range []string{"a.", ".a", "a..", ".", "*", "ü", "%2E", " "} {
				checkRejected(t, strings.Repeat(unit, n/len(unit)+1)[:n])
				checkRejected(t, strings.Repeat("a", n)+unit)
			}
		}
		checkRejected(t, strings.Repeat("a", 1_000_000))
		checkRejected(t, strings.Repeat(".", 100_000))
	})
	t.Run("any bytes", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { checkRejected(t, drawBytes(t, "rest")) })
	})
}

// checkRejected checks with the server's own code whether a subject can be published to.
func checkRejected(t interface{ Errorf(string, ...any) }, rest string) {
	got := wire.DefaultPrefix.Rejected(rest)
	if !server.IsValidPublishSubject(got) {
		t.Errorf("Rejected(%.100q) = %.200q, which no server takes", rest, got)
	}
	if len(got) > len("lapse.rejected.")+2048 {
		t.Errorf("Rejected(%.100q) has %d bytes", rest, len(got))
	}
	if !strings.HasPrefix(got, "lapse.rejected.") {
		t.Errorf("Rejected(%.100q) = %.200q, which the stream of events does not take", rest, got)
	}
	if strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r > '~' }) {
		t.Errorf("Rejected(%.100q) = %.200q, which is not plain ASCII", rest, got)
	}
}

// FuzzRejected does the same with any text.
func FuzzRejected(f *testing.F) {
	for _, tt := range hostile {
		f.Add(tt.rest)
	}
	f.Fuzz(func(t *testing.T, rest string) { checkRejected(t, rest) })
}

// A reply prefix must not include subjects of lapse or of the server.
func TestCheckReplyPrefix(t *testing.T) {
	for _, good := range []string{"_MYINBOX", "_INBOX_acme", "_INBOX", "a.b", "team.inbox.7", "lapse2", "LAPSE", "a$",
		"!", "~", "a.lapse", strings.Repeat("x", 255)} {
		if err := wire.DefaultPrefix.CheckReplyPrefix(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", ".", "a.", ".a", "a..b", "*", ">", "a.*", "a.>", "a*b", "a " +
			"b", "a\n", "ü", "\xff", "lapse", "lapse.rejected", "$JS", "$SYS.x", strings.Repeat("x", 256),
	} {
		err := wire.DefaultPrefix.CheckReplyPrefix(bad)
		if !errors.Is(err, wire.ErrInvalidName) {
			t.Errorf("%q: %v, want ErrInvalidName", bad, err)
			continue
		}
		if !strings.Contains(err.Error(), "such as _INBOX_acme") {
			t.Errorf("%q: error %q does not say what to use", bad, err)
		}
		wantSentence(t, err)
	}
}

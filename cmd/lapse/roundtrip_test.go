package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/programs"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// randomWrite is a write of a random document: with any white space, with a ttl, a deadline, a limit or none, a target,
// a trace, and a clock that began earlier. lapse may refuse it.
func randomWrite(t *rapid.T) client.Message {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	space := func() string { return pick("space", "", "", "", " ", "\t", "\n", "\r\n  ") }
	at := func(label string, from, to int64) string {
		ms := time.Now().UnixMilli() + 1000*rapid.Int64Range(from, to).Draw(t, label)
		return wire.Time(ms).String()
	}
	body := space() + "{" + space()
	ttl := pick("ttl", "", "", "100000", "2147483647", "-1", "null")
	if ttl != "" {
		body += `"ttl" :` + ttl + space() + ","
	}
	body += pick("member", `"n":1.0`, `"a":"<&> é \u2028 \ud800"`, `"lapse":1`, `"document":{"id":[]}`, `"$lapse":{}`,
		`"a":"\\n\"","a":2`) + "}" + space()
	m := client.Message{
		Subject: wire.DefaultPrefix.Write(wire.Upsert, "from", rapid.StringN(1, 20, 60).Draw(t, "id")), Body: []byte(body),
		Target: pick("target", "", "", "mail", "mail.send"), Traceparent: pick("trace", "",
			"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
	}
	if rapid.Bool().Draw(t, "begins") {
		m.Clock = at("begin", -50_000, 0)
	}
	switch pick("names", "", "", "deadline", "limit") {
	case "deadline":
		m.ExpiresAt = at("deadline", 3600, 1e9)
	case "limit":
		m.NotAfter = at("limit", 3600, 1e9)
	}
	return m
}

// TestAnExportIsImportedExactly: what is exported, imported elsewhere and exported again is the same, line by line:
// bytes, deadlines, limits, targets, traces, and from where the TTL counts; under another default the deadlines are the
// same too.
//
// It fails if anything of a document is lost on the way, if one that inherits no longer does, or if an import begins a
// new life where maxLife limits it.
func TestAnExportIsImportedExactly(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"without a limit": `{"defaultTtl":100000,"slideOnRead":0.0001}`,
		"maxLife": `{"defaultTtl":100000,"slideOnRead":0.0001,"maxLife":150000}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testRoundTrip(t, config, name == "maxLife")
		})
	}
}

// testRoundTrip exports, imports and exports the documents of a collection with a configuration; life means that it has
// a maxLife.
func testRoundTrip(t *testing.T, config string, life bool) {
	l := harness.EmbeddedLapse(t)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
	defer cancel()
	c, err := client.Connect(client.Options{Server: l.NATSURL, Timeout: harness.Limit})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, collection := range []string{"from", "to"} {
		if r, err := c.Write(ctx, client.Message{Subject: wire.DefaultPrefix.Config(collection),
			Body: []byte(config)}); err != nil || r.Outcome.Status != wire.StatusOK {
			t.Fatal(r.Outcome, err)
		}
	}
	fill(ctx, t, c)
	run := func(input string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, programs.Path(t, "lapse"), append(args, "--server", l.NATSURL)...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	export := func(collection string) []string {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(run("", "export", collection)), "\n")
		slices.Sort(lines)
		return lines
	}
	from := export("from")
	if text := strings.Join(from, "\n"); life != strings.Contains(text, `"created":"`) {
		t.Fatalf("created is in the export, %t:\n%s", !life, text)
	}
	same := func(how string) {
		t.Helper()
		to := export("to")
		for i := range max(len(from), len(to)) {
			if i >= len(from) || i >= len(to) || from[i] != to[i] {
				t.Fatalf("%s: %d lines become %d; line %d is\n%s\nwant\n%s", how, len(from), len(to), i, to[min(i, len(to)-1)],
					from[min(i, len(from)-1)])
			}
		}
	}
	if got, want := run(strings.Join(from, "\n"), "import", "to"), fmt.Sprintf("imported to created=%d replaced=0 "+
		"duplicate=0 failed=0\n", len(from)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	same("imported")
	run(strings.Join(from, "\n"), "import", "to")
	same("imported twice")
	for _, collection := range []string{"from", "to"} {
		run("", "config", collection, "--default-ttl", "200000")
	}
	if a, b := deadlines(ctx, t, c, "from"), deadlines(ctx, t, c, "to"); !slices.Equal(a, b) {
		t.Errorf("under another default the deadlines are %v, want %v", b, a)
	}
}

// fill writes the documents of the collection from, renews some of them, and reads one that slides.
func fill(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	seed := int(time.Now().UnixNano() % 1e9)
	t.Logf("seed %d", seed)
	written := 0
	p, err := c.Pipeline(func(_ int, r client.Result, err error) {
		if err == nil && r.Outcome.Status < wire.StatusBadRequest {
			written++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	writes := rapid.Custom(randomWrite)
	for i := range 300 {
		m := writes.Example(seed + i)
		if err := p.Send(ctx, m, i); err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			continue
		}
		if m = (client.Message{Subject: strings.Replace(m.Subject, ".upsert.", ".touch.", 1)}); i%2 == 0 { // renewed
			m.Clock = wire.Time(time.Now().UnixMilli() - 10_000).String()
		}
		if err := p.Send(ctx, m, 2000+i); err != nil {
			t.Fatal(err)
		}
	}
	// What a write alone cannot make: a touch with a deadline beside a ttl, and a limit whose ttl is gone.
	far := wire.Time(time.Now().Add(24 * time.Hour).UnixMilli()).String()
	before := wire.Time(time.Now().Add(-time.Minute).UnixMilli()).String()
	for i, m := range []client.Message{
		{Subject: wire.DefaultPrefix.Write(wire.Upsert, "from", "read"), Body: []byte(`{}`), Clock: before},
		{Subject: wire.DefaultPrefix.Write(wire.Upsert, "from", "touched"), Body: []byte(`{"ttl":100000}`)},
		{Subject: wire.DefaultPrefix.Write(wire.Touch, "from", "touched"), ExpiresAt: far},
		{Subject: wire.DefaultPrefix.Write(wire.Upsert, "from", "limited"), Body: []byte(`{"ttl":100000}`), NotAfter: far},
		{Subject: wire.DefaultPrefix.Write(wire.Patch, "from", "limited"), Body: []byte(`{"ttl":null}`)},
	} {
		if err := p.Send(ctx, m, 1000+i); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil || written < 100 {
		t.Fatalf("%d writes, %v", written, err)
	}
	if _, err := c.GetRenewed(ctx, "from", "read"); err != nil {
		t.Fatal(err)
	}
}

// deadlines are the deadlines of the documents of a collection, in the order of the ids.
func deadlines(ctx context.Context, t *testing.T, c *client.Client, collection string) (all []string) {
	t.Helper()
	for req := (wire.ListRequest{Limit: wire.MaxListLimit}); ; {
		page, err := c.List(ctx, collection, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Documents {
			all = append(all, fmt.Sprint(d.ID, " ", d.ExpiresAt))
		}
		if req.Continuation = page.Continuation; req.Continuation == "" {
			slices.Sort(all)
			return all
		}
	}
}

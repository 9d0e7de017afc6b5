package fold

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// instant is a number of milliseconds as clients write an instant.
func instant(ms int64) string { return wire.Time(ms).String() }

// TestG8_BadClocks: a header that has no meaning on a message, or a value that is not valid, is
// refused whatever the configuration is, and so is a property of a configuration.
func TestG8_BadClocks(t *testing.T) {
	at := nats.Header{wire.HeaderExpiresAt: {"2030-01-31T18:00:00Z"}}
	keep := nats.Header{wire.HeaderClock: {"keep"}}
	deadline := func(values ...string) nats.Header { return nats.Header{wire.HeaderExpiresAt: values} }
	limit := func(values ...string) nats.Header { return nats.Header{wire.HeaderNotAfter: values} }
	const noMeaning, limits, warn = "has no meaning on a %s: it is only allowed on %s.",
		"upsert, create, replace, patch and touch", "warnBefore"
	for _, c := range []struct {
		subject string
		header  nats.Header
		body    string
		says    string
	}{
		{"lapse.write.delete.c.x", at, ``, "header Lapse-Expires-At " + fmt.Sprintf(noMeaning, "delete", limits)},
		{"lapse.config.c", at, `{}`, "header Lapse-Expires-At " + fmt.Sprintf(noMeaning, "configuration", limits)},
		{"lapse.drop.c", at, ``, "header Lapse-Expires-At " + fmt.Sprintf(noMeaning, "drop", limits)},
		{"lapse.write.create.c.x", keep, `{}`, "header Lapse-Clock: keep " + fmt.Sprintf(noMeaning, "create",
			"upsert, replace and patch")},
		{"lapse.write.touch.c.x", keep, ``, "has no meaning on a touch"},
		{"lapse.write.delete.c.x", keep, ``, "has no meaning on a delete"},
		{"lapse.config.c", keep, `{}`, "has no meaning on a configuration"},
		{"lapse.drop.c", keep, ``, "has no meaning on a drop"},
		{"lapse.write.upsert.c.x", nats.Header{"lapse-clock": {"Keep"}}, `{}`,
			`header Lapse-Clock is "Keep": use keep, or an instant as in RFC 3339 that is not after the write's ` +
				`stamp, such as 2026-01-31T18:00:00Z, or leave it out.`},
		{"lapse.write.upsert.c.x", nats.Header{wire.HeaderClock: {""}}, `{}`, "use keep"},
		{"lapse.write.upsert.c.x", nats.Header{wire.HeaderClock: {"keep; created=2026-01-31T09:00:00Z"}}, `{}`,
			"may be when the document was created, not after that"},
		{"lapse.write.upsert.c.x", nats.Header{wire.HeaderClock: {"2026-01-31T09:00:00Z; " +
			"created=2026-01-31T09:00:00.001Z"}}, `{}`, "not after that"},
		{"lapse.write.upsert.c.x", nats.Header{wire.HeaderClock: {"2026-01-31T09:00:00Z; created="}}, `{}`,
			"may be when the document was created, not after that"},
		{"lapse.write.upsert.c.x", nats.Header{wire.HeaderClock: {"keep"}, "lapse-clock": {"keep"}}, `{}`,
			"header Lapse-Clock is there 2 times"},
		{"lapse.write.upsert.c.x", deadline("2030-01-31T18:00:00Z", "2030-01-31T18:00:00Z"), `{}`,
			"header Lapse-Expires-At is there 2 times"},
		{"lapse.write.upsert.c.x", deadline("soon"), `{}`,
			`header Lapse-Expires-At is "soon": use an instant as in RFC 3339, such as 2030-01-31T18:00:00Z.`},
		{"lapse.write.upsert.c.x", deadline(""), `{}`, "RFC 3339"},
		{"lapse.write.upsert.c.x", deadline("1900000000"), `{}`, "RFC 3339"},
		{"lapse.write.upsert.c.x", deadline("2030-01-31 18:00:00Z"), `{}`, "RFC 3339"},
		{"lapse.write.upsert.c.x", deadline("2030-01-31T18:00:00"), `{}`, "RFC 3339"},
		{"lapse.write.upsert.c.x", deadline("2030-02-31T18:00:00Z"), `{}`, "RFC 3339"},
		{"lapse.write.upsert.c.x", deadline("2030-01-31T8:00:00Z"), `{}`, "RFC 3339"},
		{"lapse.write.upsert.c.x", deadline("2030-01-31T18:00:00,5Z"), `{}`, "RFC 3339"},
		{"lapse.write.upsert.c.x", deadline("2030-01-31T18:00:00Z "), `{}`, "RFC 3339"},
		{"lapse.write.upsert.c.x", at, `{"ttl":5}`,
			"the body has ttl 5, and header Lapse-Expires-At is there too: send one of them."},
		{"lapse.write.patch.c.x", at, `{"ttl":-1}`, "send one of them"},
		{"lapse.write.create.c.x", at, `{"ttl":"soon"}`, "send one of them"},
		{"lapse.write.patch.c.x", limit("2030-01-31T18:00:00Z"), `{"ttl":5}`, "header Lapse-Not-After " +
			fmt.Sprintf(noMeaning, "patch", "upsert, create and replace")},
		{"lapse.write.touch.c.x", limit("2030-01-31T18:00:00Z"), ``, "has no meaning on a touch"},
		{"lapse.write.delete.c.x", limit("2030-01-31T18:00:00Z"), ``, "has no meaning on a delete"},
		{"lapse.config.c", limit("2030-01-31T18:00:00Z"), `{}`, "has no meaning on a configuration"},
		{"lapse.drop.c", limit("2030-01-31T18:00:00Z"), ``, "has no meaning on a drop"},
		{"lapse.write.create.c.x", limit("soon"), `{"ttl":5}`,
			`header Lapse-Not-After is "soon": use an instant as in RFC 3339`},
		{"lapse.write.create.c.x", limit("2030-01-31T18:00:00Z", "2030-01-31T18:00:00Z"), `{"ttl":5}`,
			"header Lapse-Not-After is there 2 times"},
		{"lapse.write.create.c.x", limit("2030-01-31T18:00:00Z"), `{}`,
			"limits a ttl, and that of the body is absent: give it one of 1 to 2147483647 s, or use Lapse-Expires-At."},
		{"lapse.write.upsert.c.x", limit("2030-01-31T18:00:00Z"), `{"ttl":null}`, "that of the body is null"},
		{"lapse.write.replace.c.x", limit("2030-01-31T18:00:00Z"), `{"ttl":-1}`, "that of the body is -1"},
		{"lapse.write.upsert.c.x", limit("2030-01-31T18:00:00Z"), `{"ttl":"5"}`, `that of the body is "5"`},
		{"lapse.write.upsert.c.x", nats.Header{wire.HeaderExpiresAt: at[wire.HeaderExpiresAt],
			"lapse-not-after": at[wire.HeaderExpiresAt]}, `{"ttl":5}`,
			"headers Lapse-Expires-At and Lapse-Not-After exclude each other"},
		{"lapse.config.c", nil, `{"defaultTtl":5,"minTtl":0}`,
			"minTtl 0 is not valid: use a whole number of seconds from 1 to 2147483647, or null for no limit."},
		{"lapse.config.c", nil, `{"defaultTtl":5,"minTtl":-1}`, "minTtl -1 is not valid"},
		{"lapse.config.c", nil, `{"defaultTtl":5,"maxTtl":5.0}`, "maxTtl 5.0 is not valid"},
		{"lapse.config.c", nil, `{"defaultTtl":5,"maxTtl":"9"}`, `maxTtl "9" is not valid`},
		{"lapse.config.c", nil, `{"defaultTtl":5,"maxTtl":2147483648}`, "maxTtl 2147483648 is not valid"},
		{"lapse.config.c", nil, `{"minTtl":5}`, "minTtl and maxTtl need a defaultTtl"},
		{"lapse.config.c", nil, `{"defaultTtl":null,"maxTtl":5}`, "minTtl and maxTtl need a defaultTtl"},
		{"lapse.config.c", nil, `{"defaultTtl":5,"minTtl":6,"maxTtl":5}`, "minTtl 6 is greater than maxTtl 5"},
		{"lapse.config.c", nil, `{"defaultTtl":-1,"maxTtl":5}`, "defaultTtl -1 does not keep to maxTtl 5"},
		{"lapse.config.c", nil, `{"defaultTtl":6,"maxTtl":5}`, "defaultTtl 6 is greater than maxTtl 5"},
		{"lapse.config.c", nil, `{"defaultTtl":4,"minTtl":5}`, "defaultTtl 4 is less than minTtl 5"},
		{"lapse.config.c", nil, `{"warnBefore":5}`, warn +
			" 5 is not valid: use a list of at most 4 different whole numbers of seconds"},
		{"lapse.config.c", nil, `{"warnBefore":null}`, warn + " null is not valid"},
		{"lapse.config.c", nil, `{"warnBefore":[1,2,3,4,5]}`, warn + " [1,2,3,4,5] is not valid"},
		{"lapse.config.c", nil, `{"warnBefore":[5,5]}`, warn},
		{"lapse.config.c", nil, `{"warnBefore":[0]}`, warn},
		{"lapse.config.c", nil, `{"warnBefore":[-1]}`, warn},
		{"lapse.config.c", nil, `{"warnBefore":[1.5]}`, warn},
		{"lapse.config.c", nil, `{"warnBefore":[null]}`, warn},
		{"lapse.config.c", nil, `{"warnBefore":["5"]}`, warn},
		{"lapse.config.c", nil, `{"indexes":null}`,
			`indexes null is not valid: use a list of at most 8 different JSON pointers, such as ` +
				`["/customer","/seat/row"], or [] for no indexes.`},
		{"lapse.config.c", nil, `{"indexes":"/a"}`, `indexes "/a" is not valid: use a list`},
		{"lapse.config.c", nil, `{"indexes":[1]}`, `indexes [1] is not valid: use a list`},
		{"lapse.config.c", nil, `{"indexes":["/1","/2","/3","/4","/5","/6","/7","/8","/9"]}`,
			"is not valid: use a list of at most 8"},
		{"lapse.config.c", nil, `{"indexes":["/a","/b","/a"]}`,
			`indexes ["/a","/b","/a"] is not valid: pointer "/a" is there twice: name it once.`},
		{"lapse.config.c", nil, `{"indexes":["customer"]}`,
			`indexes ["customer"] is not valid: pointer "customer" does not begin with /: `},
		{"lapse.config.c", nil, `{"maxLife":5}`, "maxLife needs a defaultTtl: set it to -1 or to a number of " +
			"seconds, or leave maxLife out."},
		{"lapse.config.c", nil, `{"defaultTtl":60,"minTtl":60,"maxLife":59}`,
			"minTtl 60 is greater than maxLife 59: use one that is not."},
		{"lapse.config.c", nil, `{"defaultTtl":60,"maxLife":0}`,
			"maxLife 0 is not valid: use a whole number of seconds from 1 to 2147483647, or null for no limit."},
		{"lapse.config.c", nil, `{"slideOnRead":1}`, "slideOnRead 1 is not valid: use true, false, or the part of " +
			"the TTL that has to be over before a read renews the clock: a number over 0 and under 1, such as 0.01."},
		{"lapse.config.c", nil, `{"slideOnRead":null}`, "slideOnRead null is not valid"},
		{"lapse.config.c", nil, `{"changes":"true"}`, "changes \"true\" is not valid: use true or false."},
		{"lapse.config.c", nil, `{"eventBody":0}`, "eventBody 0 is not valid: use true or false."},
		{"lapse.config.c", nil, `{"eventBody":null}`, "eventBody null is not valid"},
		{"lapse.config.c", nil, `{"change":true}`, `property "change" is not known`},
	} {
		m := decoder.Decode(c.subject, c.header, []byte(c.body), Position{Seq: 7, Time: 1000})
		if m.Rejected == nil || m.Rejected.Code != 400 || !strings.Contains(m.Rejected.Text, c.says) {
			t.Errorf("%s %v %s: rejected with %+v, want %q", c.subject, c.header, c.body, m.Rejected, c.says)
		}
	}
}

// TestInstantsAreRoundedUp: nothing expires before its deadline.
func TestInstantsAreRoundedUp(t *testing.T) {
	for text, want := range map[string]string{
		"2030-01-31T18:00:00Z":                "2030-01-31T18:00:00.000Z",
		"2030-01-31T18:00:00.0009Z":           "2030-01-31T18:00:00.001Z",
		"2030-01-31T18:00:00.000000001Z":      "2030-01-31T18:00:00.001Z",
		"2030-01-31T18:00:00.001+02:00":       "2030-01-31T16:00:00.001Z",
		"1969-12-31T23:59:59.9991Z":           "1970-01-01T00:00:00.000Z",
		"2030-12-31T23:59:59.999999999-01:00": "2031-01-01T01:00:00.000Z",
	} {
		if got, err := wire.ParseInstant(text); err != nil || got.String() != want {
			t.Errorf("%s is read as %s, %v; want %s", text, got, err, want)
		}
	}
}

// clockCase is a write on a live version, or on none, and what it leaves.
type clockCase struct {
	name   string
	config store.Config
	live   *Version
	op     wire.Op
	body   string
	at     int64 // the absolute deadline that is asked for; 0: none
	keep   bool
	want   string // status and expiresAt of the outcome; then ts, ttl, kept and absolute of the stored document
}

func (c clockCase) message() *Message {
	header := nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}}
	if c.at != 0 {
		header[wire.HeaderExpiresAt] = []string{instant(c.at)}
	}
	if c.keep {
		header[wire.HeaderClock] = []string{wire.ClockKeep}
	}
	return decoder.Decode(wire.DefaultPrefix.Write(c.op, "c", "x"), header, []byte(c.body), Position{Seq: 9,
		Time: 50_000})
}

// TestG2_ClocksOfAllOperations: for each operation, what its headers and its body make of the
// clock of a live version, which was written at 40 s and kept a clock that began at 30 s.
func TestG2_ClocksOfAllOperations(t *testing.T) {
	on := store.Config{History: ttlrules.History{}.With(1000, 1, 60).Settled()}
	none := store.Config{History: ttlrules.History{}.With(1000, 1, ttlrules.NoDefault).Settled()}
	off := store.Config{}
	version := func(ttl ttlrules.TTL, kept, absolute int64, body string) *Version {
		return &Version{Header: store.Header{Ts: 40_000, Etag: 5, TTL: ttl, Kept: kept, Absolute: absolute},
			Body: []byte(body)}
	}
	plain, kept := version(0, 0, 0, `{}`), version(0, 30_000, 0, `{}`)
	absolute := version(7, 30_000, 70_000, `{"ttl":7}`)
	passed := version(7, 0, 45_000, `{"ttl":7}`) // its deadline passed while TTL is off
	const far = 50_000 + ttlrules.MaxSeconds*1000
	for _, c := range []clockCase{
		{"upsert begins anew", on, absolute, wire.Upsert, `{}`, 0, false, "200 110000: 50000 0 0 0"},
		{"replace begins anew", on, kept, wire.Replace, `{"ttl":5}`, 0, false, "200 55000: 50000 5 0 0"},
		{"patch begins anew", on, kept, wire.Patch, `{}`, 0, false, "200 110000: 50000 0 0 0"},
		{"touch begins anew", on, kept, wire.Touch, ``, 0, false, "200 110000: 50000 0 0 0"},
		{"upsert keeps", on, plain, wire.Upsert, `{}`, 0, true, "200 100000: 50000 0 40000 0"},
		{"replace keeps what was kept", on, kept, wire.Replace, `{"ttl":30}`, 0, true, "200 60000: 50000 30 30000 0"},
		{"patch keeps", on, kept, wire.Patch, `{"a":1}`, 0, true, "200 90000: 50000 0 30000 0"},
		{"upsert of none has nothing to keep", on, nil, wire.Upsert, `{}`, 0, true, "201 110000: 50000 0 0 0"},
		{"replace of none", on, nil, wire.Replace, `{}`, 0, true, "404"},
		{"the kept clock has run out", on, kept, wire.Patch, `{"ttl":5}`, 0, true, "200 50000: 50000 5 30000 0"},
		{"upsert at", on, plain, wire.Upsert, `{"ttl":null}`, 60_000, false, "200 60000: 50000 0 0 60000"},
		{"create at", none, nil, wire.Create, `{}`, 60_000, false, "201 60000: 50000 0 0 60000"},
		{"touch at", none, version(-1, 0, 0, `{"ttl":-1}`), wire.Touch, ``, 60_000, false,
			"200 60000: 50000 -1 0 60000"},
		{"patch at", on, version(7, 0, 0, `{"ttl":7}`), wire.Patch, `{}`, 60_000, false, "404"}, // it has expired
		{"upsert forgets the deadline", none, absolute, wire.Upsert, `{}`, 0, false, "200 never: 50000 0 0 0"},
		{"touch keeps the deadline", on, absolute, wire.Touch, ``, 0, false, "200 70000: 50000 7 0 70000"},
		{"patch keeps the deadline", on, absolute, wire.Patch, `{"a":1}`, 0, false, "200 70000: 50000 7 0 70000"},
		{"patch keeps deadline and clock", on, absolute, wire.Patch, `{"a":1}`, 0, true,
			"200 70000: 50000 7 30000 70000"},
		{"a patch of ttl takes its place", on, absolute, wire.Patch, `{"ttl":9}`, 0, false, "200 59000: 50000 9 0 0"},
		{"a patch of ttl null takes its place", on, absolute, wire.Patch, `{"ttl":null}`, 0, false,
			"200 110000: 50000 0 0 0"},
		{"with the kept clock", on, absolute, wire.Patch, `{"ttl":25}`, 0, true, "200 55000: 50000 25 30000 0"},
		{"ttl null and a new deadline", on, absolute, wire.Patch, `{"ttl":null}`, 80_000, false,
			"200 80000: 50000 0 0 80000"},
		{"the next millisecond", on, nil, wire.Upsert, `{}`, 50_001, false, "201 50001: 50000 0 0 50001"},
		{"the stamp itself", on, nil, wire.Upsert, `{}`, 50_000, false, "400"},
		{"as far as possible", on, nil, wire.Upsert, `{}`, far, false, fmt.Sprintf("201 %d: 50000 0 0 %d", int64(far),
			int64(far))},
		{"too far", on, nil, wire.Upsert, `{}`, far + 1, false, "400"},
		{"too far, of none", on, nil, wire.Touch, ``, far + 1, false, "400"}, // before 404
		{"off: kept, not interpreted", off, plain, wire.Upsert, `{}`, 60_000, false, "200 never: 50000 0 0 60000"},
		{"off: out of range is absent", off, plain, wire.Upsert, `{}`, 50_000, false, "200 never: 50000 0 0 0"},
		{"off: too far is absent", off, absolute, wire.Touch, ``, far + 1, false, "200 never: 50000 7 0 0"},
		{"off: one that has passed is kept", off, passed, wire.Touch, ``, 0, false, "200 never: 50000 7 0 45000"},
		{"off: the clock is kept", off, kept, wire.Upsert, `{}`, 0, true, "200 never: 50000 0 30000 0"},
	} {
		o, d := decideOne(t, c.config, c.live, c.message())
		got := fmt.Sprint(o.Status)
		if s := d.docs[Key{Collection: "c", ID: "x"}]; o.Status < 400 {
			at := "never"
			if o.ExpiresAt != nil {
				at = fmt.Sprint(int64(*o.ExpiresAt))
			}
			h := s.Now.Header
			got = fmt.Sprintf("%d %s: %d %d %d %d", o.Status, at, h.Ts, h.TTL, h.Kept, h.Absolute)
		}
		if got != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got, o.Error, c.want)
		}
		if warns := c.config.History == nil && c.at != 0; (o.Warning != "") != warns {
			t.Errorf("%s: warning %q, want one: %t", c.name, o.Warning, warns)
		}
	}
}

// TestLimitsOfACollection: minTtl and maxTtl limit what a write itself says, to the millisecond.
func TestLimitsOfACollection(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(1000, 1, 60).Settled(), MinTTL: 10, MaxTTL: 100}
	low := store.Config{History: ttlrules.History{}.With(1000, 1, ttlrules.NoDefault).Settled(), MinTTL: 10}
	old := &Version{Header: store.Header{Ts: 49_000, Etag: 5, TTL: 5}, Body: []byte(`{"ttl":5}`)}
	for _, c := range []struct {
		clockCase
		says string
	}{
		{clockCase{config: config, op: wire.Upsert, body: `{}`}, ""},
		{clockCase{config: config, op: wire.Upsert, body: `{"ttl":10}`}, ""},
		{clockCase{config: config, op: wire.Upsert, body: `{"ttl":9}`},
			"ttl 9 is shorter than collection c allows: use at least its minTtl, which is 10 s."},
		{clockCase{config: config, op: wire.Upsert, body: `{"ttl":100}`}, ""},
		{clockCase{config: config, op: wire.Create, body: `{"ttl":101}`},
			"ttl 101 is longer than collection c allows: use at most its maxTtl, which is 100 s."},
		{clockCase{config: config, op: wire.Upsert, body: `{"ttl":-1}`}, "ttl -1 is longer than"},
		{clockCase{config: low, op: wire.Upsert, body: `{"ttl":-1}`}, ""},
		{clockCase{config: low, op: wire.Upsert, body: `{"ttl":1}`}, "at least its minTtl"},
		{clockCase{config: config, op: wire.Upsert, body: `{}`, at: 60_000}, ""},
		{clockCase{config: config, op: wire.Upsert, body: `{}`, at: 59_999},
			"header Lapse-Expires-At is 1970-01-01T00:00:59.999Z, which is 9999 ms after the write's stamp"},
		{clockCase{config: config, op: wire.Touch, live: old, at: 150_000}, ""},
		{clockCase{config: config, op: wire.Touch, live: old, at: 150_001}, "at most its maxTtl, which is 100 s."},
		{clockCase{config: config, op: wire.Touch, live: old}, ""},
		{clockCase{config: config, op: wire.Patch, live: old, body: `{"a":1}`}, ""},
		{clockCase{config: config, op: wire.Patch, live: old, body: `{"ttl":6}`}, "minTtl"},
		{clockCase{config: config, op: wire.Patch, live: old, body: `{"ttl":null}`}, ""},
		{clockCase{config: config, op: wire.Patch, body: `{"ttl":6}`}, "minTtl"}, // before 404
	} {
		o, _ := decideOne(t, c.config, c.live, c.message())
		if refused := c.says != ""; refused != (o.Status == 400) || !strings.Contains(o.Error, c.says) {
			t.Errorf("%s of %s at %d: %d %s, want %q", c.op, c.body, c.at, o.Status, o.Error, c.says)
		}
	}
}

// TestG3_AVersionThatIsExpiredWhenItIsWritten has one event, which its own write caused: the next
// message finds the document gone, also in the same batch.
func TestG3_AVersionThatIsExpiredWhenItIsWritten(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(1000, 1, 60).Settled()}
	live := &Version{Header: store.Header{Ts: 40_000, Etag: 5}, Body: []byte(`{}`)}
	_, d := decideOne(t, config, live, clockCase{op: wire.Patch, body: `{"ttl":5}`, keep: true}.message())
	d.Apply(decoder.Decode("lapse.write.touch.c.x", nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}}, nil,
		Position{Seq: 10, Time: 50_000}))
	if o := d.Outcomes[1].Body; o.Status != 404 {
		t.Errorf("a touch of it: %+v", o)
	}
	if e := d.Outputs[0]; d.Expired != 1 || e.Seq != 9 || e.At != 50_000 {
		t.Errorf("%d events, the first with cause %d at %d", d.Expired, e.Seq, e.At)
	}
}

// TestG5_AKeptClockComesToABand: a default of 5 s that is no more must not expire a version
// that is written now with an older clock, also if both came in one millisecond. It comes to a band of the index, which
// other versions that are written under the same default share. Once the history is settled it needs none.
func TestG5_AKeptClockComesToABand(t *testing.T) {
	for _, ended := range []int64{45_000, 50_000} {
		config := store.Config{History: ttlrules.History{}.With(1000, 1, 5).With(ended, 2, 60)}
		live := &Version{Header: store.Header{Ts: 40_000, Etag: 5, TTL: ttlrules.Never}, Body: []byte(`{"ttl":-1}`)}
		patch := clockCase{op: wire.Patch, body: `{"ttl":null}`, keep: true}.message()
		key := Key{Collection: "c", ID: "x"}
		for _, want := range []struct{ band, bands, more int }{{1, 1, 1}, {1, 1, 0}, {2, 2, 1}} {
			before := len(config.Bands)
			d := New(testLimits, oneConfig(config), 0)
			d.Slot(key).SetStored(&live.Header, live.Body)
			if !d.Apply(patch) || d.Outcomes[0].Body.ExpiresAt.String() != instant(100_000) ||
				d.docs[key].Now.Header.Band != want.band {
				t.Fatalf("ended at %d: %+v in band %d, want band %d", ended, d.Outcomes, d.docs[key].Now.Header.Band,
					want.band)
			}
			banded := d.Banded()
			if len(banded) != want.more || d.Full() != (want.more == 1) {
				t.Errorf("ended at %d: the configuration changes %d times, want %d", ended, len(banded), want.more)
			}
			for _, change := range banded {
				config = *change.Config
			}
			if len(config.Bands) != want.bands {
				t.Errorf("bands %v, and before %d", config.Bands, before)
			}
			if want.more == 0 {
				config.History = config.History.With(ended, 3, 60).With(ended, 4, ttlrules.Off).With(ended, 5, 60)
			}
		}
		config.History = config.History.Settled()
		d := New(testLimits, oneConfig(config), 0)
		d.Slot(key).SetStored(&live.Header, live.Body)
		if !d.Apply(patch) || d.docs[key].Now.Header.Band != 0 {
			t.Errorf("ended at %d, settled: %+v", ended, d.Outcomes)
		}
	}
}

// TestG3_ATouchWithANearDeadlineIsReadWhole: it may expire in the same batch.
func TestG3_ATouchWithANearDeadlineIsReadWhole(t *testing.T) {
	d := New(testLimits, oneConfig(store.Config{}), 0)
	if _, whole := d.Name([]*Message{clockCase{op: wire.Touch, at: 50_001}.message()}); len(whole) != 1 {
		t.Error("it is not read whole")
	}
}

// TestWarningsCountSince: a warning counts from the message that asked for it first, and anew
// after it was not asked for.
func TestWarningsCountSince(t *testing.T) {
	c, said := store.Config{}, ""
	for i, body := range []string{`{"warnBefore":[60]}`, `{"warnBefore":[300,60],"slideOnRead":true}`,
		`{"warnBefore":[]}`, `{"defaultTtl":5,"warnBefore":[60],"eventBody":false}`} {
		seq := uint64(i + 1)
		var r *Refusal
		if c, r = Configured(c, decoder.Decode("lapse.config.c", nil, []byte(body), Position{Seq: seq,
			Time: 1000 * int64(seq)}), 1000*int64(seq), oneConfig{}); r != nil {
			t.Fatal(r)
		}
		again, err := store.DecodeConfig(c.Encode())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(c) {
			t.Errorf("%+v is read again as %+v, %v", c, again, err)
		}
		said += fmt.Sprint(c.Warnings, c.Wire().WarnBefore, c.SlideOnRead, c.Bodies, "; ")
	}
	if want := "[{60 1000 1}] [60] false []; [{300 2000 2} {60 1000 1}] [300 60] true []; [] [] false []; [{60 4000 " +
		"4}] [60] false [{4000 4}]; "; said != want {
		t.Errorf("%s\nwant %s", said, want)
	}
}

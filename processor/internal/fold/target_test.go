package fold

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// targeted is a write at 50 s, to a target unless that is empty.
func targeted(op wire.Op, body string, targets ...string) *Message {
	header := nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}}
	if len(targets) > 0 {
		header["lapse-target"] = targets
	}
	return decoder.Decode(wire.DefaultPrefix.Write(op, "c", "x"), header, []byte(body), Position{Seq: 9, Time: 50_000})
}

// TestG8_BadTargets: a target is refused where it has no meaning, or if it could be anything else
// than tokens behind lapse.due.
func TestG8_BadTargets(t *testing.T) {
	const where = "header Lapse-Target has no meaning on a %s: it is only allowed on upsert, create and replace."
	for _, c := range []struct {
		message *Message
		says    string
	}{
		{targeted(wire.Patch, `{}`, "a"), fmt.Sprintf(where, "patch")},
		{targeted(wire.Touch, ``, "a"), fmt.Sprintf(where, "touch")},
		{targeted(wire.Delete, ``, "a"), fmt.Sprintf(where, "delete")},
		{decoder.Decode("lapse.config.c", nats.Header{wire.HeaderTarget: {"a"}}, []byte(`{}`), Position{Seq: 9,
			Time: 50_000}), fmt.Sprintf(where, "configuration")},
		{targeted(wire.Upsert, `{}`, "a", "b"), "header Lapse-Target is there 2 times"},
		{targeted(wire.Upsert, `{}`, ""), "has an empty token: use 1 to 8 tokens of A-Z a-z 0-9 _ -, joined by dots"},
		{targeted(wire.Create, `{}`, "mail.>"), `header Lapse-Target: target "mail.>" contains ">": use 1 to 8 tokens`},
		{targeted(wire.Replace, `{}`, "mail..send"), "has an empty token"},
		{targeted(wire.Upsert, `{}`, "mail\r\n+OK"), "contains"},
		{targeted(wire.Upsert, `{}`, "1.2.3.4.5.6.7.8.9"), "has 9 tokens"},
	} {
		if r := c.message.Rejected; r == nil || r.Code != 400 || !strings.Contains(r.Text, c.says) {
			t.Errorf("rejected with %+v, want %q", r, c.says)
		}
	}
}

// TestG3_TargetsOfAllOperations: a touch and a patch keep the target of a document, any other write
// begins without one.
//
// Goes red if a touch loses the target.
func TestG3_TargetsOfAllOperations(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(1000, 1, 60).Settled()}
	live := func() *Version {
		return &Version{Header: store.Header{Ts: 40_000, Etag: 5, Absolute: 70_000, Target: "mail.send"},
			Body: []byte(`{}`)}
	}
	for _, c := range []struct {
		message *Message
		live    *Version
		want    string
	}{
		{targeted(wire.Create, `{}`, "a.b"), nil, "a.b"},
		{targeted(wire.Upsert, `{}`, "a.b"), nil, "a.b"},
		{targeted(wire.Upsert, `{}`, "a.b"), live(), "a.b"},
		{targeted(wire.Replace, `{}`, "a.b"), live(), "a.b"},
		{targeted(wire.Upsert, `{}`), live(), ""},
		{targeted(wire.Replace, `{}`), live(), ""},
		{targeted(wire.Touch, ``), live(), "mail.send"},
		{targeted(wire.Patch, `{"ttl":5}`), live(), "mail.send"},
		{clockCase{op: wire.Touch, at: 80_000}.message(), live(), "mail.send"},
	} {
		o, d := decideOne(t, config, c.live, c.message)
		if o.Status >= 400 {
			t.Errorf("%s: %+v", c.message.Op, o)
		} else if got := d.docs[Key{Collection: "c", ID: "x"}].Now.Header.Target; got != c.want {
			t.Errorf("%s with %q: the document has target %q, want %q", c.message.Op, c.message.Target, got, c.want)
		}
	}
}

// TestG3_ADueMessageIsTheEvent of a version with a target, and has the document whatever eventBody is.
func TestG3_ADueMessageIsTheEvent(t *testing.T) {
	bare := store.Config{History: ttlrules.History{}.With(1000, 1, 60).Settled(),
		Bodies: []store.BodyChange{{Since: 1000, Seq: 1}}}
	for _, config := range []store.Config{{History: bare.History}, bare} {
		live := &Version{Header: store.Header{Ts: 40_000, Etag: 5, Absolute: 45_000, Target: "mail.send"},
			Body: []byte(`{ "a": 1 }`)}
		o, d := decideOne(t, config, live, targeted(wire.Touch, ``))
		want := events.Due(testLimits.Log, "mail.send", wire.Event{ID: "x", Collection: "c", Document: live.Body,
			Etag: 5, ExpiredAt: 45_000}, "")
		if o.Status != 404 || d.Expired != 1 || !reflect.DeepEqual(d.Outputs[0], Output{Message: want, At: 45_000}) {
			t.Errorf("%d, outputs %+v, want %+v", o.Status, d.Outputs[0], want)
		}
	}
}

// TestTargetWithoutADeadline: the outcome warns that nothing will be delivered, or refuses what never could be.
func TestTargetWithoutADeadline(t *testing.T) {
	none := store.Config{History: ttlrules.History{}.With(1000, 1, ttlrules.NoDefault).Settled()}
	for _, c := range []struct {
		config store.Config
		body   string
		says   string
	}{
		{none, `{}`, "this document never expires, so nothing is delivered to mail.send: give it a ttl, or a " +
			"deadline in the header Lapse-Expires-At."},
		{none, `{"ttl":-1}`, "never expires"},
		{none, `{"ttl":5}`, ""},
	} {
		o, _ := decideOne(t, c.config, nil, targeted(wire.Upsert, c.body, "mail.send"))
		if o.Status != 201 || (o.Warning != "") != (c.says != "") || !strings.Contains(o.Warning, c.says) {
			t.Errorf("%s: %+v, want the warning %q", c.body, o, c.says)
		}
	}
	for _, body := range []string{`{}`, `{"ttl":5}`} {
		o, _ := decideOne(t, store.Config{}, nil, targeted(wire.Upsert, body, "mail.send"))
		if o.Status != 409 || o.Reason != wire.ReasonUndeliverable || !strings.Contains(o.Error,
			"nothing can ever be delivered to mail.send: set its defaultTtl") {
			t.Errorf("%s where TTL is off: %+v", body, o)
		}
	}
}

// TestALongTraceparentBesideATarget becomes one of version 00, so that the stored header has room for both.
func TestALongTraceparentBesideATarget(t *testing.T) {
	const begins = "-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	long := "cc" + begins + "-" + strings.Repeat("x", 200-56)
	for _, c := range []struct{ trace, target, want string }{
		{long, "", long}, {"00" + begins, "mail.send", "00" + begins}, {long, strings.Repeat("t", wire.MaxTarget),
			"00" + begins},
	} {
		m := targeted(wire.Upsert, `{}`)
		m.Trace, m.Target = c.trace, c.target
		h := m.header(nil, store.Config{}, 50_000)
		again, _, err := store.ParseDocument(string(h.Append(nil)) + `{}`)
		if err != nil || h.Trace != c.want || again != h {
			t.Errorf("%s beside %q is stored as %q, and read as %+v: %v", c.trace, c.target, h.Trace, again, err)
		}
	}
}

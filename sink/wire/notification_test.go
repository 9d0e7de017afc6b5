package wire_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/wire"
)

// message is one of the stream of events, as a test reads it.
type message struct {
	subject string
	header  map[string][]string
	body    string
}

// eventHeader is the header of a message about a document or a drop.
func eventHeader(subject, id string) map[string][]string {
	return map[string][]string{"ce-source": {"/lapse/17/collections/orders"}, "ce-subject": {subject}, "ce-id": {id},
		"ce-time": {"1970-01-01T00:00:05Z"}, "ce-type": {wire.TypeUpdated}}
}

// rejectedHeader is the header of a rejection.
var rejectedHeader = map[string][]string{wire.HeaderStream: {"LAPSE_LOG"}, wire.HeaderSeq: {"7"}, wire.HeaderCode: {"409"},
	wire.HeaderError: {"no"}, wire.HeaderSubject: {"lapse.write.create.orders.1"}}

// versionBody is what the body of an event and of a warning have alike.
const versionBody = `{"id":"a.b","collection":"orders","document":{"x":1},"etag":"7","ts":"1970-01-01T00:00:01Z",`

// TestParseEvent: of each kind of message a client reads what it is about, its log, and its own value.
func TestParseEvent(t *testing.T) {
	about := func(kind wire.Kind) wire.About {
		return wire.About{Kind: kind, Log: "/lapse/17/collections/", Collection: "orders", ID: "a.b", Seq: 7, At: 5000}
	}
	warned := about(wire.KindExpiring)
	warned.Before, warned.ExpiresAt = 3, 8000
	dropped := about(wire.KindChanged)
	dropped.ID = ""
	for _, c := range []struct {
		message
		want wire.Notification
	}{
		{message{"lapse.expired.orders.3", eventHeader("a%2Eb", "orders/a%2Eb/7"),
			versionBody + `"ttl":4,"expiredAt":"1970-01-01T00:00:05Z"}`},
			wire.Notification{About: about(wire.KindExpired), Expired: &wire.Event{ID: "a.b", Collection: "orders",
				Document: []byte(`{"x":1}`), Etag: 7, Ts: 1000, TTL: 4, ExpiredAt: 5000}}},
		{message{"lapse.expiring.orders.3", eventHeader("a%2Eb", "orders/a%2Eb/7/expiring/3/8000"),
			versionBody + `"ttl":7,"expiresAt":"1970-01-01T00:00:08Z","before":3}`},
			wire.Notification{About: warned, Expiring: &wire.Expiring{ID: "a.b", Collection: "orders",
				Document: []byte(`{"x":1}`), Etag: 7, Ts: 1000, TTL: 7, ExpiresAt: 8000, Before: 3}}},
		{message{"lapse.changed.orders.3", eventHeader("a%2Eb", "orders/a%2Eb/7/changed"),
			versionBody + `"expiresAt":"1970-01-01T00:00:08Z"}`},
			wire.Notification{About: about(wire.KindChanged), Changed: &wire.Changed{Type: wire.TypeUpdated, Seq: 7,
				Change: wire.Change{ID: "a.b", Collection: "orders", Document: []byte(`{"x":1}`), Etag: 7, Ts: 1000,
					ExpiresAt: ptr(wire.Time(8000))}}}},
		{message{"lapse.changed.orders", eventHeader("", "orders/7/dropped"), `{"collection":"orders","ts":"1970-01-01T00:00:05Z"}`},
			wire.Notification{About: dropped, Changed: &wire.Changed{Type: wire.TypeUpdated, Seq: 7,
				Change: wire.Change{Collection: "orders", Ts: 5000}}}},
		{message{"lapse.rejected.orders.3", rejectedHeader, "body"},
			wire.Notification{About: wire.About{Kind: wire.KindRejected, Log: "LAPSE_LOG", Collection: "orders", Seq: 7},
				Rejected: &wire.Rejection{Code: 409, Error: "no", Subject: "lapse.write.create.orders.1", Seq: 7, Body: "body"}}},
	} {
		got, err := wire.ParseEvent(wire.DefaultPrefix, c.subject, c.header, []byte(c.body))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.subject, err, diff)
		}
		a, err := wire.ParseAbout(wire.DefaultPrefix, c.subject, c.header)
		if diff := cmp.Diff(c.want.About, a); diff != "" || err != nil {
			t.Errorf("%s by its headers alone: %v (-want +got):\n%s", c.subject, err, diff)
		}
	}
	for kind, want := range map[string]string{wire.TypeCreated: "created", wire.TypeDropped: "dropped"} {
		if got := (wire.Changed{Type: kind}).Kind(); got != want {
			t.Errorf("the type %s is %s, want %s", kind, got, want)
		}
	}
	long := maps.Clone(rejectedHeader)
	long[wire.HeaderTruncated] = []string{"4000"}
	n, err := wire.ParseEvent(wire.DefaultPrefix, "lapse.rejected.orders.3", long, nil)
	if err != nil || n.Rejected.Truncated != 4000 {
		t.Errorf("a rejection that is cut is %+v, %v", n.Rejected, err)
	}
}

// TestParseAboutErrors: a message whose names do not fit each other, or its kind, has an error. It keeps the kind and
// the collection; lapse's own messages have no kind.
func TestParseAboutErrors(t *testing.T) {
	for _, own := range []string{"lapse.fence.0", "lapse", "lapse.write.upsert.orders.1", "other.expired.orders.3"} {
		if a, err := wire.ParseAbout(wire.DefaultPrefix, own, nil); err == nil || a != (wire.About{}) {
			t.Errorf("%s is read as %+v, %v", own, a, err)
		}
	}
	for _, c := range []struct{ kind, token, id string }{
		{"expired", "1", "orders/1"}, {"expired", "1", "orders/1/x"}, {"expired", "1", "orders/1/7/changed"},
		{"expired", "1", "orders/2/7"}, {"expired", "1", "carts/1/7"}, {"expired", "", "orders/7"}, {"expired", "%", "orders/%/7"},
		{"expired", "1", "1/7"}, {"expired", "1", "orders/7"},
		{"expiring", "1", "orders/1/7"}, {"expiring", "1", "orders/1/7/expiring/3"},
		{"expiring", "1", "orders/1/7/expiring/3/8000/9"}, {"expiring", "1", "orders/1/7/expiring/03/8000"},
		{"expiring", "1", "orders/2/7/expiring/3/8000"},
		{"changed", "1", "orders/1/7"}, {"changed", "1", "orders/1/7/dropped"}, {"changed", "1", "orders/2/7/changed"},
		{"changed", "", "orders/7/changed"}, {"changed", "", "carts/7/dropped"}, {"changed", "", "orders/dropped"},
	} {
		a, err := wire.ParseAbout(wire.DefaultPrefix, "lapse."+c.kind+".orders.3", eventHeader(c.token, c.id))
		if err == nil || string(a.Kind) != c.kind || a.Collection != "orders" {
			t.Errorf("%s %s of %q is read as %+v, %v", c.kind, c.id, c.token, a, err)
		}
	}
	a, err := wire.ParseAbout(wire.DefaultPrefix, "lapse.expired.carts.3", eventHeader("1", "orders/1/7"))
	if err == nil || a.Collection != "carts" || !strings.Contains(err.Error(), "ce-source") {
		t.Errorf("the source of another collection is read as %+v, %v", a, err)
	}
	at := eventHeader("1", "orders/1/7")
	at["ce-time"] = []string{"noon"}
	if a, err := wire.ParseAbout(wire.DefaultPrefix, "lapse.expired.orders.3", at); err == nil || a.ID != "1" {
		t.Errorf("an event at noon is read as %+v, %v", a, err)
	}
}

// TestParseEventErrors: a body or a header that is not valid is an error, and the kind is there.
func TestParseEventErrors(t *testing.T) {
	for _, c := range []message{
		{"lapse.expired.orders.3", eventHeader("1", "orders/1/7"), "x"},
		{"lapse.expiring.orders.3", eventHeader("1", "orders/1/7/expiring/3/8000"), "x"},
		{"lapse.changed.orders.3", eventHeader("1", "orders/1/7/changed"), "x"},
		{"lapse.changed.orders.3", eventHeader("1", "orders/1/7"), "{}"},
		{"lapse.due.mail.3", eventHeader("1", "orders/1/7"), "{}"}, // it has no target
	} {
		n, err := wire.ParseEvent(wire.DefaultPrefix, c.subject, c.header, []byte(c.body))
		if err == nil || n.Kind == "" || !strings.HasPrefix(c.subject, "lapse."+string(n.Kind)) {
			t.Errorf("%s with %s is read as %+v, %v", c.subject, c.body, n, err)
		}
	}
	for _, name := range []string{wire.HeaderSeq, wire.HeaderCode, wire.HeaderTruncated} {
		header := maps.Clone(rejectedHeader)
		header[name] = []string{"x"}
		if n, err := wire.ParseEvent(wire.DefaultPrefix, "lapse.rejected.orders.3", header, nil); err == nil || n.Rejected == nil {
			t.Errorf("a rejection with %s x is read as %+v, %v", name, n, err)
		}
	}
}

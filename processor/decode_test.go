package processor

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

var testDecoder = decoder{prefix: prefix, partitions: 16, maxBody: 1000}

// TestG8_EveryKindOfBadInput: each is rejected with its code, in words that say what
// is allowed. What is rejected only where TTL is on is in decide_test.go.
func TestG8_EveryKindOfBadInput(t *testing.T) {
	h := func(pairs ...string) nats.Header {
		header := nats.Header{}
		for i := 0; i < len(pairs); i += 2 {
			header[pairs[i]] = append(header[pairs[i]], pairs[i+1])
		}
		return header
	}
	const write = "lapse.write.upsert.c.x"
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name    string
		subject string
		header  nats.Header
		body    string
		code    int
		says    string
	}{
		{"no body", write, nil, ``, 400, "a JSON object belongs there"},
		{"white space", write, nil, " \n", 400, "a JSON object belongs there"},
		{"malformed JSON", write, nil, `{"a":`, 400, "not a JSON object"},
		{"two values", write, nil, `{}{}`, 400, "not a JSON object"},
		{"array", write, nil, `[]`, 400, "a JSON object belongs there"},
		{"null", write, nil, `null`, 400, "a JSON object belongs there"},
		{"number", write, nil, `1`, 400, "a JSON object belongs there"},
		{"not UTF-8", write, nil, "{\"a\":\"\xff\"}", 400, "a JSON object in UTF-8 belongs there"},
		{"byte order mark", write, nil, "\ufeff{}", 400, "not a JSON object"},
		{"too large", write, nil, `{"a":"` + strings.Repeat("x", 1000) + `"}`, 413, "allowed are 1000"},
		{"another id", write, nil, `{"id":"y"}`, 400, `allowed is "x", as in the subject, or none`},
		{"id in another case", write, nil, `{"id":"X"}`, 400, `allowed is "x"`},
		{"id is a number", write, nil, `{"id":1}`, 400, `allowed is "x"`},
		{"id is null", write, nil, `{"id":null}`, 400, `allowed is "x"`},
		{"the last id counts", write, nil, `{"id":"x","id":"y"}`, 400, `allowed is "x"`},
		{"touch with a body", "lapse.write.touch.c.x", nil, `{}`, 400, "a touch has no body"},
		{"delete with a body", "lapse.write.delete.c.x", nil, ` `, 400, "a delete has no body"},
		{"unknown operation", "lapse.write.Upsert.c.x", nil, `{}`, 400, "allowed are [upsert create replace patch touch delete]"},
		{"operation in the form of another", "lapse.write.upsert .c.x", nil, `{}`, 400, "unknown operation"},
		{"collection too long", "lapse.write.upsert." + long + ".x", nil, `{}`, 400, "allowed are 1 to 128 of A-Z a-z 0-9 _ -"},
		{"collection with a sign", "lapse.write.upsert.c$.x", nil, `{}`, 400, "allowed are 1 to 128 of A-Z a-z 0-9 _ -"},
		{"id too long", "lapse.write.upsert.c." + long, nil, `{}`, 400, "allowed are 1 to 255"},
		{"id not escaped", "lapse.write.upsert.c.ü", nil, `{}`, 400, "%XX in upper case"},
		{"id escaped in lower case", "lapse.write.upsert.c.a%2eb", nil, `{}`, 400, "0-9 A-F"},
		{"id escaped for nothing", "lapse.write.upsert.c.%41", nil, `{}`, 400, `is to be written "A"`},
		{"id not UTF-8", "lapse.write.upsert.c.%FF", nil, `{}`, 400, "not UTF-8"},
		{"percent sign alone", "lapse.write.upsert.c.%", nil, `{}`, 400, "two digits"},
		{"too few tokens", "lapse.write.upsert.c", nil, `{}`, 400, "a subject is lapse.write.<operation>.<collection>.<id>"},
		{"only an operation", "lapse.write.upsert", nil, `{}`, 400, "a subject is lapse.write.<operation>.<collection>.<id>"},
		{"too many tokens", "lapse.write.upsert.c.a.b", nil, `{}`, 400, "a subject is lapse.write.<operation>.<collection>.<id>"},
		{"unknown header", write, h("Lapse-If-None-Match", "*"), `{}`, 400, "allowed are Lapse-If-Match and Lapse-Reply-To"},
		{"etag not a number", write, h("Lapse-If-Match", `"1"`), `{}`, 400, "a positive number in decimal, or *"},
		{"etag 0", write, h("Lapse-If-Match", "0"), `{}`, 400, "a positive number in decimal, or *"},
		{"etag empty", write, h("Lapse-If-Match", ""), `{}`, 400, "a positive number in decimal, or *"},
		{"two etags", write, h("Lapse-If-Match", "1", "Lapse-If-Match", "2"), `{}`, 400, "allowed is once"},
		{"two etags in two cases", write, h("Lapse-If-Match", "1", "lapse-if-match", "2"), `{}`, 400, "allowed is once"},
		{"reply elsewhere", write, h("Lapse-Reply-To", "orders.x"), `{}`, 400, "under _INBOX."},
		{"reply with a wildcard", write, h("Lapse-Reply-To", "_INBOX.>"), `{}`, 400, "without wildcards"},
		{"reply with an empty token", write, h("Lapse-Reply-To", "_INBOX.a..b"), `{}`, 400, "_INBOX."},
		{"reply with a line break", write, h("Lapse-Reply-To", "_INBOX.a\r\nPUB x"), `{}`, 400, "_INBOX."},
		{"reply with too much", write, h("Lapse-Reply-To", "_INBOX."+strings.Repeat("x", 2000)), `{}`, 400, "_INBOX."},
		{"two replies", write, h("Lapse-Reply-To", "_INBOX.a", "Lapse-Reply-To", "_INBOX.b"), `{}`, 400, "allowed is once"},
		{"configuration of a subcollection", "lapse.config.c.d", nil, `{}`, 400, "a subject is lapse.config.<collection>"},
		{"configuration of a wrong name", "lapse.config.c$", nil, `{}`, 400, "allowed are 1 to 128"},
		{"configuration without a body", "lapse.config.c", nil, ``, 400, "a JSON object belongs there"},
		{"configuration if", "lapse.config.c", h("Lapse-If-Match", "1"), `{}`, 400, "allowed is it on a write"},
		{"default 0", "lapse.config.c", nil, `{"defaultTtl":0}`, 400, "allowed are -1, a whole number of seconds from 1 to 2147483647"},
		{"default with a fraction", "lapse.config.c", nil, `{"defaultTtl":60.0}`, 400, "allowed are -1"},
		{"default with an exponent", "lapse.config.c", nil, `{"defaultTtl":6e1}`, 400, "allowed are -1"},
		{"default as text", "lapse.config.c", nil, `{"defaultTtl":"60"}`, 400, "allowed are -1"},
		{"default -2", "lapse.config.c", nil, `{"defaultTtl":-2}`, 400, "allowed are -1"},
		{"default too large", "lapse.config.c", nil, `{"defaultTtl":2147483648}`, 400, "allowed are -1"},
		{"unknown property", "lapse.config.c", nil, `{"defaultTTL":60}`, 400, "allowed are defaultTtl and indexingMode"},
		{"unknown mode", "lapse.config.c", nil, `{"indexingMode":"lazy"}`, 400, `allowed are "consistent" and "none"`},
		{"mode null", "lapse.config.c", nil, `{"indexingMode":null}`, 400, `allowed are "consistent" and "none"`},
		{"no index and a default", "lapse.config.c", nil, `{"indexingMode":"none","defaultTtl":-1}`, 400, "allowed is one of them"},
		{"drop with a body", "lapse.drop.c", nil, `{}`, 400, "a drop has no body"},
		{"drop of a subcollection", "lapse.drop.c.d", nil, ``, 400, "a subject is lapse.drop.<collection>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := testDecoder.decode(c.subject, c.header, []byte(c.body), 7, 1000)
			if m.rejected == nil {
				t.Fatal("it is not rejected")
			}
			if m.rejected.code != c.code || !strings.Contains(m.rejected.text, c.says) {
				t.Errorf("rejected with %d %q, want %d and %q", m.rejected.code, m.rejected.text, c.code, c.says)
			}
			checkMessage(t, m)
		})
	}
}

// What is allowed is decoded as it was meant.
func TestDecodeGoodInput(t *testing.T) {
	m := testDecoder.decode("lapse.write.patch.orders.a%2Eb%20c", nats.Header{
		"lapse-if-match": {"42"}, "LAPSE-REPLY-TO": {"_INBOX.a.b"}, "Traceparent": {"00-x"}, "Nats-Msg-Id": {"x"}, "Other": {"y", "z"},
	}, []byte(` {"ttl": 60, "id": null} `), 7, 1000)
	if m.rejected != nil || m.kind != write || m.op != wire.Patch || m.collection != "orders" || m.id != "a.b c" || m.ttl != 60 ||
		m.ifMatch != (ifMatch{true, 42}) || m.replyTo != "_INBOX.a.b" || m.trace != "00-x" || m.subject != "lapse.write.patch.orders.a%2Eb%20c" {
		t.Errorf("decoded as %+v", m)
	}
	if m := testDecoder.decode("lapse.write.upsert.c.x", nats.Header{"Lapse-If-Match": {"*"}}, []byte(`{"id":"x","ttl":"soon"}`), 7, 1000); m.rejected != nil || m.ttlErr == nil || m.ttl != 0 || m.ifMatch != (ifMatch{set: true}) {
		t.Errorf("decoded as %+v", m)
	}
	if m := testDecoder.decode("lapse.drop.c", nil, nil, 7, 1000); m.kind != drop || m.rejected != nil || m.collection != "c" {
		t.Errorf("decoded as %+v", m)
	}
	if m := testDecoder.decode("lapse.config.c", nil, []byte(`{}`), 7, 1000); m.kind != configure || m.rejected != nil || m.config != (requested{}) {
		t.Errorf("decoded as %+v", m)
	}
}

func TestRoute(t *testing.T) {
	for _, c := range []struct {
		subject string
		want    int
		global  bool
	}{
		{prefix.Write(wire.Upsert, "c", "x"), wire.Partition(16, "c", "x"), false},
		{prefix.Write(wire.Delete, "c", "a.b é"), wire.Partition(16, "c", "a.b é"), false},
		{"lapse.write.frob.c$." + strings.Repeat("y", 300), wire.PartitionOfToken(16, "c$", strings.Repeat("y", 300)), false},
		{"lapse.write", 0, false}, {"lapse.write.upsert", 0, false}, {"lapse.write.upsert.c", 0, false}, {"lapse.write.upsert.c.x.y", 0, false},
		{"lapse.config.c", 0, true}, {"lapse.config.c.d", 0, true}, {"lapse.drop.c", 0, true},
	} {
		if p, global := testDecoder.route(c.subject); p != c.want || global != c.global {
			t.Errorf("%s goes to %d, %v; want %d, %v", c.subject, p, global, c.want, c.global)
		}
	}
}

// checkMessage checks what holds of every decoded message.
func checkMessage(t *testing.T, m *message) {
	t.Helper()
	if m.rejected == nil {
		if m.kind == malformed {
			t.Errorf("neither valid nor rejected: %+v", m)
		}
		if m.kind == write && (wire.CheckCollection(m.collection) != nil || wire.CheckID(m.id) != nil) {
			t.Errorf("valid, with a name that is not: %+v", m)
		}
		return
	}
	if c := m.rejected.code; c != wire.StatusBadRequest && c != wire.StatusTooLarge {
		t.Errorf("rejected with code %d", c)
	}
	text := m.rejected.text
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	if text == "" || len(text) > 1000 || !utf8.ValidString(text) || strings.IndexFunc(text, bad) >= 0 {
		t.Errorf("the reason is not a line of printable text: %q", text)
	}
}

// FuzzDecode: whatever comes, decoding does not panic, says the same each time, and
// ends in a valid message or in a reason that fits in a header.
func FuzzDecode(f *testing.F) {
	f.Add("lapse.write.upsert.c.x", "Lapse-If-Match", "1", []byte(`{"a":1,"ttl":60}`))
	f.Add("lapse.write.patch.c.%C3%BC", "Lapse-Reply-To", "_INBOX.x", []byte(`{"id":"ü"}`))
	f.Add("lapse.config.c", "Lapse-Reply-To", "_INBOX.x\u2028", []byte(`{"defaultTtl":1,"indexingMode":"none"}`))
	f.Add("lapse.drop.c", "lapse-\u0085", "", []byte(``))
	f.Add("lapse.write.", "traceparent", "00-1", []byte("{\"id\":\"\u202e\"}"))
	f.Fuzz(func(t *testing.T, subject, name, value string, body []byte) {
		header := nats.Header{name: {value}, "Lapse-Reply-To": {"_INBOX.y"}, "LAPSE-X": {"z"}}
		if !strings.HasPrefix(strings.ToLower(name), "lapse-x") {
			delete(header, "LAPSE-X")
		}
		_, _ = testDecoder.route(subject)
		m := testDecoder.decode(subject, header, body, 1, 2)
		checkMessage(t, m)
		for range 5 {
			if again := testDecoder.decode(subject, header, body, 1, 2); !sameMessage(m, again) {
				t.Fatalf("decoded as %+v and as %+v", m, again)
			}
		}
	})
}

// sameMessage compares messages by what follows from them.
func sameMessage(a, b *message) bool {
	x, y := *a, *b
	if (x.ttlErr == nil) != (y.ttlErr == nil) || x.ttlErr != nil && x.ttlErr.Error() != y.ttlErr.Error() {
		return false
	}
	x.ttlErr, y.ttlErr = nil, nil
	return reflect.DeepEqual(x, y)
}

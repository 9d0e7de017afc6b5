package fold

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

var testDecoder = Decoder{Log: wire.DefaultPrefix.Log(0, 1), MaxBody: 1000, MaxLevels: 10}

// TestG8_EveryKindOfBadInput: each bad message is rejected with its code, and a reason that
// tells what is allowed. Those that are rejected only where TTL is on are in package
// decide.
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
		{"no body", write, nil, ``, 400, "the body is empty: send a JSON object."},
		{"white space", write, nil, " \n", 400, "the body is empty: send a JSON object."},
		{"malformed JSON", write, nil, `{"a":`, 400, "the body is not valid JSON"},
		{"two values", write, nil, `{}{}`, 400, "the body is not valid JSON"},
		{"array", write, nil, `[]`, 400, "the body is a JSON array: send a JSON object."},
		{"null", write, nil, `null`, 400, "send a JSON object."},
		{"number", write, nil, `1`, 400, "send a JSON object."},
		{"not UTF-8", write, nil, "{\"a\":\"\xff\"}", 400, "send a JSON object in UTF-8."},
		{"too many levels", write, nil, nested(11), 400,
			"the body has more than 10 levels of objects and arrays within each other: use at most 10."},
		{"a patch with too many levels", "lapse.write.patch.c.x", nil, nested(11), 400,
			"the body has more than 10 levels"},
		{"a configuration with too many levels", "lapse.config.c", nil, nested(11), 400,
			"the body has more than 10 levels"},
		{"byte order mark", write, nil, "\ufeff{}", 400, "byte order mark (BOM): send the JSON object without it."},
		{"too large", write, nil, `{"a":"` + strings.Repeat("x", 1000) + `"}`, 413,
			"the body is 1008 bytes long: use at most 1000 bytes."},
		{"another id", write, nil, `{"id":"y"}`, 400,
			`the body's id is "y", and the subject's is "x": use the same id, or leave it out of the body.`},
		{"id in another case", write, nil, `{"id":"X"}`, 400, `the body's id is "X", and the subject's is "x"`},
		{"id is a number", write, nil, `{"id":1}`, 400,
			`the body's id is 1, which is not a string: use "x", as in the subject, or leave it out of the body.`},
		{"id is null", write, nil, `{"id":null}`, 400, `the body's id is null, which is not a string`},
		{"the last id counts", write, nil, `{"id":"x","id":"y"}`, 400, `the body's id is "y"`},
		{"touch with a body", "lapse.write.touch.c.x", nil, `{}`, 400,
			"a touch takes no body, and this one has 2 bytes: send it without one."},
		{"delete with a body", "lapse.write.delete.c.x", nil, ` `, 400,
			"a delete takes no body, and this one has 1 byte: send it without one."},
		{"unknown operation", "lapse.write.Upsert.c.x", nil, `{}`, 400,
			`operation "Upsert" is not known: use upsert, create, replace, patch, touch or delete.`},
		{"operation in the form of another", "lapse.write.upsert .c.x", nil, `{}`, 400,
			`operation "upsert " is not known`},
		{"collection too long", "lapse.write.upsert." + long + ".x", nil, `{}`, 400,
			"use 1 to 128 of A-Z a-z 0-9 _ -. The subject of a write is lapse.write.<operation>.<collection>.<id>."},
		{"collection with a sign", "lapse.write.upsert.c$.x", nil, `{}`, 400,
			`collection "c$" contains "$": use 1 to 128 of A-Z a-z 0-9 _ -.`},
		{"id too long", "lapse.write.upsert.c." + long, nil, `{}`, 400, "is 300 bytes long: use 1 to 255 bytes"},
		{"id not escaped", "lapse.write.upsert.c.ü", nil, `{}`, 400, "as %XX, in upper case"},
		{"id escaped in lower case", "lapse.write.upsert.c.a%2eb", nil, `{}`, 400, "0-9 A-F"},
		{"id escaped for nothing", "lapse.write.upsert.c.%41", nil, `{}`, 400, `write it as "A"`},
		{"id not UTF-8", "lapse.write.upsert.c.%FF", nil, `{}`, 400, "not UTF-8"},
		{"percent sign alone", "lapse.write.upsert.c.%", nil, `{}`, 400, "two digits"},
		{"too few tokens", "lapse.write.upsert.c", nil, `{}`, 400,
			"the subject has too few tokens: use lapse.write.<operation>.<collection>.<id>"},
		{"only an operation", "lapse.write.upsert", nil, `{}`, 400,
			"the subject has too few tokens: use lapse.write.<operation>.<collection>.<id>"},
		{"too many tokens", "lapse.write.upsert.c.a.b", nil, `{}`, 400,
			"The subject of a write is lapse.write.<operation>.<collection>.<id>"},
		{"unknown header", write, h("Lapse-If-None-Match", "*"), `{}`, 400,
			`header "Lapse-If-None-Match" is not known: the headers of lapse are Lapse-If-Match, Lapse-Reply-To, ` +
				`Lapse-Expires-At, Lapse-Not-After, Lapse-Clock and Lapse-Target.`},
		{"etag not a number", write, h("Lapse-If-Match", `"1"`), `{}`, 400,
			`header Lapse-If-Match is "\"1\"": use an etag, which is a positive whole number in decimal, ` +
				`or * for any.`},
		{"etag 0", write, h("Lapse-If-Match", "0"), `{}`, 400, "a positive whole number in decimal"},
		{"etag empty", write, h("Lapse-If-Match", ""), `{}`, 400, "a positive whole number in decimal"},
		{"two etags", write, h("Lapse-If-Match", "1", "Lapse-If-Match", "2"), `{}`, 400,
			"header Lapse-If-Match is there 2 times: send it once."},
		{"two etags in two cases", write, h("Lapse-If-Match", "1", "lapse-if-match", "2"), `{}`, 400,
			"header Lapse-If-Match is there 2 times: send it once."},
		{"reply elsewhere", write, h("Lapse-Reply-To", "orders.x"), `{}`, 400,
			`header Lapse-Reply-To is "orders.x": use a subject without wildcards that begins with _INBOX.`},
		{"reply with a wildcard", write, h("Lapse-Reply-To", "_INBOX.>"), `{}`, 400, "use a subject without wildcards"},
		{"reply with an empty token", write, h("Lapse-Reply-To", "_INBOX.a..b"), `{}`, 400, "begins with _INBOX."},
		{"reply with a line break", write, h("Lapse-Reply-To", "_INBOX.a\r\nPUB x"), `{}`, 400, "begins with _INBOX."},
		{"reply with too much", write, h("Lapse-Reply-To", "_INBOX."+strings.Repeat("x", 2000)), `{}`, 400,
			"begins with _INBOX."},
		{"two replies", write, h("Lapse-Reply-To", "_INBOX.a", "Lapse-Reply-To", "_INBOX.b"), `{}`, 400,
			"header Lapse-Reply-To is there 2 times: send it once."},
		{"configuration of a subcollection", "lapse.config.c.d", nil, `{}`, 400,
			"The subject of a configuration is lapse.config.<collection>."},
		{"configuration of a wrong name", "lapse.config.c$", nil, `{}`, 400, "use 1 to 128"},
		{"configuration without a body", "lapse.config.c", nil, ``, 400, "send a JSON object."},
		{"configuration if", "lapse.config.c", h("Lapse-If-Match", "x"), `{}`, 400,
			"a positive whole number in decimal"},
		{"drop if", "lapse.drop.c", h("Lapse-If-Match", "x"), ``, 400, "a positive whole number in decimal"},
		{"no collection", "lapse.write.upsert..42", nil, `{}`, 400, "the name of the collection is empty"},
		{"no id", "lapse.write.upsert.orders.", nil, `{}`, 400,
			"the id is empty: use 1 to 255 bytes of UTF-8 text. The subject of a write is"},
		{"no operation", "lapse.write..orders.42", nil, `{}`, 400, `operation "" is not known`},
		{"nothing to configure", "lapse.config.", nil, `{}`, 400, "the name of the collection is empty"},
		{"ids that look alike", "lapse.write.upsert.c.e%CC%81", nil, `{"id":"\u00e9"}`, 400,
			`the body's id is "\u00e9", and the subject's is "e\u0301"`},
		{"ids with spaces that look alike", "lapse.write.upsert.c.a%C2%A0b", nil, `{"id":"a b"}`, 400,
			`the body's id is "a b", and the subject's is "a\u00a0b"`},
		{"long ids that differ late", "lapse.write.upsert.c." + long[:200] + "y", nil, `{"id":"` + long[:201] + `"}`,
			400, `xxxx", and the subject's is "...xxxx`},
		{"id in a header", write, nil, `{"id":"a\r\nb"}`, 400, `the body's id is "a\r\nb"`},
		{"id is an object", write, nil, `{"id":{"` + "\u202e" + `":1}}`, 400,
			`the body's id is {"\u202e":1}, which is not a string`},
		{"default 0", "lapse.config.c", nil, `{"defaultTtl":0}`, 400,
			"defaultTtl 0 is not valid: use a whole number of seconds from 1 to 2147483647"},
		{"default with a fraction", "lapse.config.c", nil, `{"defaultTtl":60.0}`, 400, "use a whole number of seconds"},
		{"default with an exponent", "lapse.config.c", nil, `{"defaultTtl":6e1}`, 400, "use a whole number of seconds"},
		{"default as text", "lapse.config.c", nil, `{"defaultTtl":"60"}`, 400, "use a whole number of seconds"},
		{"default -2", "lapse.config.c", nil, `{"defaultTtl":-2}`, 400, "use a whole number of seconds"},
		{"default too large", "lapse.config.c", nil, `{"defaultTtl":2147483648}`, 400, "use a whole number of seconds"},
		{"unknown property", "lapse.config.c", nil, `{"defaultTTL":60}`, 400,
			`property "defaultTTL" is not known: a configuration has defaultTtl, indexingMode, minTtl, maxTtl, ` +
				`maxLife, warnBefore, slideOnRead, eventBody, changes, paused and indexes.`},
		{"unknown mode", "lapse.config.c", nil, `{"indexingMode":"eager"}`, 400,
			`indexingMode "eager" is not valid: use "consistent", "lazy" or "none".`},
		{"mode null", "lapse.config.c", nil, `{"indexingMode":null}`, 400, `indexingMode null is not valid`},
		{"no index and a default", "lapse.config.c", nil, `{"indexingMode":"none","defaultTtl":-1}`, 400,
			"set one of them only"},
		{"drop with a body", "lapse.drop.c", nil, `{}`, 400, "a drop takes no body"},
		{"drop of a subcollection", "lapse.drop.c.d", nil, ``, 400,
			"The subject of a drop is lapse.drop.<collection>."},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := testDecoder.Decode(c.subject, c.header, []byte(c.body), Position{Seq: 7, Time: 1000})
			m.CheckReply(oneConfig{})
			if m.Rejected == nil {
				t.Fatal("it is not rejected")
			}
			if m.Rejected.Code != c.code || !strings.Contains(m.Rejected.Text, c.says) {
				t.Errorf("rejected with %d %q, want %d and %q", m.Rejected.Code, m.Rejected.Text, c.code, c.says)
			}
			checkMessage(t, m)
		})
	}
}

// nested is an object with so many levels.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + "{}" + strings.Repeat("}", levels-1)
}

func TestDecodeGoodInput(t *testing.T) {
	m := testDecoder.Decode("lapse.write.patch.orders.a%2Eb%20c", nats.Header{
		"lapse-if-match": {"42"}, "LAPSE-REPLY-TO": {"_INBOX.a.b"}, "Traceparent": {traceparent}, "Nats-Msg-Id": {"x"},
		"Other": {"y", "z"},
	}, []byte(` {"ttl": 60, "id": null} `), Position{Seq: 7, Time: 1000})
	if m.Rejected != nil || m.Kind != Write || m.Op != wire.Patch || m.Collection != "orders" || m.ID != "a.b c" ||
		m.TTL != 60 ||
		m.IfMatch != (IfMatch{true, 42}) || m.ReplyTo != "_INBOX.a.b" || m.Trace != traceparent ||
		m.Subject != "lapse.write.patch.orders.a%2Eb%20c" {
		t.Errorf("decoded as %+v", m)
	}
	if m := testDecoder.Decode("lapse.write.upsert.c.x", nats.Header{"Lapse-If-Match": {"*"}},
		[]byte(`{"id":"x","ttl":"soon"}`), Position{Seq: 7, Time: 1000}); m.Rejected != nil || m.TTLErr == nil ||
		m.TTL != 0 || m.IfMatch != (IfMatch{Set: true}) {
		t.Errorf("decoded as %+v", m)
	}
	for _, subject := range []string{"lapse.config.c", "lapse.drop.c"} {
		body := map[bool]string{true: `{}`}[subject == "lapse.config.c"]
		if m := testDecoder.Decode(subject, nats.Header{"lapse-if-match": {"42"}}, []byte(body), Position{Seq: 7,
			Time: 1000}); m.Rejected != nil || m.Kind == Malformed || m.IfMatch != (IfMatch{true, 42}) {
			t.Errorf("decoded as %+v", m)
		}
		if m := testDecoder.Decode(subject, nats.Header{"Lapse-If-Match": {"*"}}, []byte(body), Position{Seq: 7,
			Time: 1000}); m.Rejected != nil || m.Kind == Malformed || m.IfMatch != (IfMatch{Set: true}) {
			t.Errorf("decoded as %+v", m)
		}
	}
	if m := testDecoder.Decode("lapse.config.c", nil, []byte(`{"defaultTtl":5,"indexingMode":"lazy"}`), Position{Seq: 7,
		Time: 1000}); m.Rejected != nil || !reflect.DeepEqual(m.Config, Requested{TTL: 5, Lazy: true}) {
		t.Errorf("decoded as %+v", m)
	}
	if m := testDecoder.Decode("lapse.drop.c", nil, nil, Position{Seq: 7, Time: 1000}); m.Kind != Drop ||
		m.Rejected != nil || m.Collection != "c" {
		t.Errorf("decoded as %+v", m)
	}
	if m := testDecoder.Decode("lapse.config.c", nil, []byte(`{}`), Position{Seq: 7,
		Time: 1000}); m.Kind != Configure || m.Rejected != nil || !reflect.DeepEqual(m.Config, Requested{}) {
		t.Errorf("decoded as %+v", m)
	}
}

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestDecodeTrace: a traceparent that is not one, or is there twice, is no reason to reject a write, and
// does not go on to its event.
func TestDecodeTrace(t *testing.T) {
	other := strings.Replace(traceparent, "00-", "01-", 1)
	for _, c := range []struct {
		header nats.Header
		want   string
	}{
		{nats.Header{"traceparent": {traceparent}}, traceparent},
		{nats.Header{"TRACEPARENT": {traceparent}}, traceparent},
		{nats.Header{"traceparent": {"00-1"}}, ""},
		{nats.Header{"traceparent": {strings.ToUpper(traceparent)}}, ""},
		{nats.Header{"traceparent": {traceparent, other}}, ""},
		{nats.Header{"traceparent": {traceparent}, "Traceparent": {other}}, ""},
		{nats.Header{"traceparent": {}}, ""},
		{nil, ""},
	} {
		if m := testDecoder.Decode("lapse.write.upsert.c.x", c.header, []byte(`{}`), Position{Seq: 7,
			Time: 1000}); m.Rejected != nil || m.Trace != c.want {
			t.Errorf("%v: the trace is %q, want %q (%v)", c.header, m.Trace, c.want, m.Rejected)
		}
	}
}

// TestReplyPrefixes: an outcome may go to _INBOX and to the prefixes of the rules that the log has at the place of the
// message: so a rebuild decides each message as it was decided first. Until the rules of a log that lacks its beginning
// are known, it may go anywhere: else a rebuild rejected what was applied.
func TestReplyPrefixes(t *testing.T) {
	rules := func(prefixes ...string) map[string]store.Config {
		return map[string]store.Config{wire.LogRules: {Rules: wire.LogRulesBody{ReplyPrefixes: prefixes}, Etag: 1}}
	}
	none, some := NewCollections(nil, nil), NewCollections(rules("_INBOX_acme", "a.b"), nil)
	other, anew := NewCollections(rules("_MY"), nil), NewCollections(nil, nil)
	anew.LacksBeginning()
	begun := NewCollections(rules("_MY"), nil)
	begun.LacksBeginning()
	for _, c := range []struct {
		catalog Catalog
		to      string
		says    string // "" if it is allowed
	}{
		{none, "_INBOX_acme.x", "begins with _INBOX."}, {none, "_INBOX.x", ""},
		{some, "_INBOX_acme.x", ""}, {some, "_INBOX_acme.x.y", ""}, {some, "a.b.c", ""}, {some, "_INBOX.x", ""},
		{some, "_INBOX_acme", "begins with _INBOX., _INBOX_acme. or a.b."}, {some, "_INBOX_acme.", "_INBOX."},
		{some, "_INBOX_acmes.x", "_INBOX."},
		{some, "a.c", "_INBOX."}, {some, "_INBOX_acme.*", "_INBOX."}, {some, "_INBOX_acme..x", "_INBOX."},
		{other, "_INBOX_acme.x", "begins with _INBOX. or _MY."}, {other, "_MY.x", ""},
		{anew, "_MY.x", ""}, {anew, "_INBOX_acme.x", ""}, {anew, "a.*", "use a subject"}, {anew, "a b", "use a subject"},
		{begun, "_MY.x", ""}, {begun, "_INBOX_acme.x", "begins with _INBOX. or _MY."},
	} {
		for _, subject := range []string{"lapse.write.upsert.c.x", "lapse.config.c", "lapse.nothing"} {
			m := testDecoder.Decode(subject, nats.Header{"Lapse-Reply-To": {c.to}}, []byte(`{}`), Position{Seq: 7,
				Time: 1000})
			was := m.Rejected
			m.CheckReply(c.catalog)
			switch {
			case c.says == "" && (m.Rejected != was || m.ReplyTo != c.to):
				t.Errorf("%s to %s: rejected: %v", subject, c.to, m.Rejected)
			case c.says != "" && (m.ReplyTo != "" || m.Kind == Configure || m.Rejected == nil ||
				was == nil && !strings.Contains(m.Rejected.Text, c.says) || was != nil && m.Rejected != was):
				t.Errorf("%s to %s: %v, want a rejection with %q", subject, c.to, m.Rejected, c.says)
			}
			checkMessage(t, m)
		}
	}
}

// checkMessage checks what holds of every decoded message.
func checkMessage(t *testing.T, m *Message) {
	t.Helper()
	if m.Rejected == nil {
		if m.Kind == Malformed {
			t.Errorf("neither valid nor rejected: %+v", m)
		}
		if m.Kind == Write && (wire.CheckCollection(m.Collection) != nil || wire.CheckID(m.ID) != nil) {
			t.Errorf("valid, with a name that is not: %+v", m)
		}
		return
	}
	if c := m.Rejected.Code; c != wire.StatusBadRequest && c != wire.StatusTooLarge {
		t.Errorf("rejected with code %d", c)
	}
	text := m.Rejected.Text
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	if !strings.HasSuffix(text, ".") || len(text) > 1000 || !utf8.ValidString(text) || strings.IndexFunc(text,
		bad) >= 0 {
		t.Errorf("the reason is not a sentence on one line of printable text: %q", text)
	}
}

// TestG8_AnEmptyTokenIsNamed: a subject with an empty token, or too few tokens, is rejected
// with a reason that says so.
func TestG8_AnEmptyTokenIsNamed(t *testing.T) {
	for i, subject := range []string{
		"lapse.write.upsert..42", "lapse.write.upsert.orders.", "lapse.write.upsert..", "lapse.write..orders.42",
		"lapse.write.upsert.orders.a..b",
		"lapse.write.", "lapse.config.", "lapse.config..", "lapse.config.orders.", "lapse.drop.", "lapse.drop..orders",
	} {
		m := testDecoder.Decode(subject, nil, []byte(`{}`), Position{Seq: uint64(i + 1), Time: 1000})
		if m.Rejected == nil || m.Rejected.Code != wire.StatusBadRequest {
			t.Fatalf("%s: %+v", subject, m.Rejected)
		}
		checkMessage(t, m)
		if text := m.Rejected.Text; !strings.Contains(text, "empty") && !strings.Contains(text, "too few tokens") &&
			!strings.Contains(text, `"."`) && !strings.Contains(text, `""`) && !strings.Contains(text, "a%2E%2Eb") {
			t.Errorf("%s: %s", subject, text)
		}
	}
}

// FuzzDecode: for any input, decoding does not panic, has the same result each time, and
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
		m := testDecoder.Decode(subject, header, body, Position{Seq: 1, Time: 2})
		checkMessage(t, m)
		for range 5 {
			if again := testDecoder.Decode(subject, header, body, Position{Seq: 1, Time: 2}); !sameMessage(m, again) {
				t.Fatalf("decoded as %+v and as %+v", m, again)
			}
		}
	})
}

// sameMessage compares messages by what follows from them.
func sameMessage(a, b *Message) bool {
	x, y := *a, *b
	if (x.TTLErr == nil) != (y.TTLErr == nil) || x.TTLErr != nil && x.TTLErr.Error() != y.TTLErr.Error() {
		return false
	}
	x.TTLErr, y.TTLErr = nil, nil
	return reflect.DeepEqual(x, y)
}

// TestCopiesAreOfConfigurations: what the log has from the stream of configurations is a
// configuration, a drop, or lost there. Anything else under these subjects is a client's, and
// rejected: it must not be applied as a configuration.
func TestCopiesAreOfConfigurations(t *testing.T) {
	d := Decoder{Log: wire.DefaultPrefix.Log(1, 2), MaxBody: 1000, MaxLevels: 10}
	for subject, want := range map[string]struct {
		kind     Kind
		source   uint64
		rejected bool
	}{
		"lapse.shard.1.copy.17.config.c":         {Configure, 17, false},
		"lapse.shard.1.copy.17.drop.c":           {Drop, 17, false},
		"lapse.shard.1.copy.17.config.c.d":       {Malformed, 17, true},
		"lapse.shard.1.copy.17":                  {Malformed, 17, false},
		"lapse.shard.1.copy.17.write.upsert.c.x": {Malformed, 0, true},
		"lapse.shard.1.copy.x.config.c":          {Malformed, 0, true},
		"lapse.shard.1.copy.0.config.c":          {Malformed, 0, true},
		"lapse.shard.1.config.c":                 {Malformed, 0, true},
	} {
		body := `{"defaultTtl":1}`
		if want.kind == Drop {
			body = ""
		}
		m := d.Decode(subject, nil, []byte(body), Position{Seq: 3})
		if m.Kind != want.kind || m.Source != want.source || (m.Rejected != nil) != want.rejected ||
			m.IsControl() != (want.source > 0) {
			t.Errorf("%s is %+v, want %+v", subject, m, want)
		}
	}
}

// BenchmarkDecode is what the reader does with a write: it asks what the message is, and decodes it.
func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"customer":"c-1234567","state":"open","items":[{"sku":"a-1","n":2},` +
		`{"sku":"b-7","n":1}],"ttl":3600}`)
	header := nats.Header{"Nats-Msg-Id": {"01JD"}, wire.HeaderReplyTo: {"_INBOX.abcdefghijklmnop.17"}}
	for _, shards := range []int{1, 4} {
		b.Run(map[int]string{1: "one shard", 4: "four shards"}[shards], func(b *testing.B) {
			d := testDecoder
			shard := wire.ShardOf(shards, "orders", "order-000123456")
			d.Log = wire.DefaultPrefix.Log(shard, shards)
			subject := d.Log.Write(wire.Upsert, "orders", "order-000123456")
			b.ReportAllocs()
			for b.Loop() {
				s := d.Log.ParseSubject(subject)
				if s.Kind != wire.SubjectWrite {
					b.Fatal("it is no write")
				}
				if m := d.DecodeAs(s, header, body, Position{Seq: 7, Time: 1000}); m.Rejected != nil {
					b.Fatal(m.Rejected)
				}
			}
		})
	}
}

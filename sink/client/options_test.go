package client

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/ttlrules"
)

// TestOptions: which values of options are valid, up to their limits, and what a message has of them. Anything else is
// an ErrInvalid, before something is sent.
func TestOptions(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	at := func(year int) time.Time { return time.Date(year, 2, 3, 4, 5, 6, 7, time.UTC) }
	east := time.FixedZone("east", 3600)
	for name, c := range map[string]struct {
		option Option
		want   Message // without a value if the option is not valid
		body   string
	}{
		"TTL of a second":  {TTL(time.Second), Message{}, `{"ttl":1,"a":1}`},
		"longest TTL":      {TTL(ttlrules.MaxSeconds * time.Second), Message{}, `{"ttl":2147483647,"a":1}`},
		"no end":           {TTL(Never), Message{}, `{"ttl":-1,"a":1}`},
		"TTL too long":     {TTL((ttlrules.MaxSeconds + 1) * time.Second), Message{}, ""},
		"no TTL":           {TTL(0), Message{}, ""},
		"half a second":    {TTL(1500 * time.Millisecond), Message{}, ""},
		"negative TTL":     {TTL(-time.Minute), Message{}, ""},
		"ExpiresAt":        {ExpiresAt(at(9999).In(east)), Message{ExpiresAt: "9999-02-03T04:05:06.000000007Z"}, `{"a":1}`},
		"year 0":           {ExpiresAt(at(0)), Message{ExpiresAt: "0000-02-03T04:05:06.000000007Z"}, `{"a":1}`},
		"year 10000":       {ExpiresAt(at(10000)), Message{}, ""},
		"before year 0":    {ExpiresAt(at(-1)), Message{}, ""},
		"9999 in the east": {ExpiresAt(time.Date(10000, 1, 1, 0, 30, 0, 0, east)), Message{ExpiresAt: "9999-12-31T23:30:00Z"}, `{"a":1}`},
		"NotAfter":         {NotAfter(at(2030)), Message{NotAfter: "2030-02-03T04:05:06.000000007Z"}, `{"a":1}`},
		"late NotAfter":    {NotAfter(at(10000)), Message{}, ""},
		"ClockFrom":        {ClockFrom(at(2020)), Message{Clock: "2020-02-03T04:05:06.000000007Z"}, `{"a":1}`},
		"late ClockFrom":   {ClockFrom(at(10000)), Message{}, ""},
		"KeepClock":        {KeepClock(), Message{Clock: "keep"}, `{"a":1}`},
		"IfMatch":          {IfMatch(17), Message{IfMatch: "17"}, `{"a":1}`},
		"IfMatch 0":        {IfMatch(0), Message{}, ""},
		"IfExists":         {IfExists(), Message{IfMatch: "*"}, `{"a":1}`},
		"MessageID":        {MessageID("ä"), Message{ID: "ä"}, `{"a":1}`},
		"no MessageID":     {MessageID(""), Message{}, ""},
		"broken MessageID": {MessageID("\xff"), Message{}, ""},
		"two lines":        {MessageID("a\nb"), Message{}, ""},
		"Traceparent":      {Traceparent(trace), Message{Traceparent: trace}, `{"a":1}`},
		"no Traceparent":   {Traceparent("00"), Message{}, ""},
		"Target":           {Target("mail.send"), Message{Target: "mail.send"}, `{"a":1}`},
		"no Target":        {Target("mail.*"), Message{}, ""},
	} {
		s, err := settle([]Option{c.option})
		if c.body == "" {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s is valid: %v", name, err)
			}
			continue
		}
		body, encoded := s.encode(map[string]int{"a": 1})
		got := s.message("s", body)
		if err := errors.Join(err, encoded); err != nil || string(got.Body) != c.body {
			t.Errorf("%s: %s, %v", name, got.Body, err)
		}
		got.Subject, got.Body = "", nil
		if was, want := asText(t, got), asText(t, c.want); was != want {
			t.Errorf("%s: the message is %s, want %s", name, was, want)
		}
	}
}

func asText(t *testing.T, m Message) string {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEncode: a document is a JSON object, which gets the TTL as its first member unless it has one. The rest of a
// json.RawMessage stays as it is.
func TestEncode(t *testing.T) {
	hour := settings{ttl: new(ttlrules.TTL(3600))}
	for _, c := range []struct {
		s        settings
		document any
		want     string // the text of the error if it is not valid
		valid    bool
	}{
		{settings{}, json.RawMessage(` { "a" : 1.50 } `), ` { "a" : 1.50 } `, true},
		{hour, json.RawMessage(` { "a" : 1.50 } `), `{"ttl":3600, "a" : 1.50 }`, true},
		{hour, struct{}{}, `{"ttl":3600}`, true},
		{hour, json.RawMessage(`{ }`), `{"ttl":3600 }`, true},
		{hour, map[string]any{"ttl": 5}, "already has a ttl", false},
		{settings{}, map[string]any{"ttl": 5}, `{"ttl":5}`, true},
		{settings{}, json.RawMessage(`{`), "not a JSON object", false},
		{settings{}, json.RawMessage(`null`), "not a JSON object", false},
		{hour, nil, "not a JSON object", false},
		{settings{}, []int{1}, "not a JSON object", false},
		{settings{}, "text", "not a JSON object", false},
		{settings{}, make(chan int), "encode the document", false},
	} {
		body, err := c.s.encode(c.document)
		if c.valid && (err != nil || string(body) != c.want) {
			t.Errorf("%s: %s, %v", c.document, body, err)
		}
		if !c.valid && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s, %v, want an error with %q", c.document, body, err, c.want)
		}
	}
	if raw, err := decode[json.RawMessage]([]byte(`{ "a" : 1.50 }`)); err != nil || string(raw) != `{ "a" : 1.50 }` {
		t.Errorf("%s, %v", raw, err)
	}
	if value, err := decode[struct{ A float64 }]([]byte(`{"a":1.5}`)); err != nil || value.A != 1.5 {
		t.Errorf("%v, %v", value, err)
	}
	if _, err := decode[struct{ A int }]([]byte(`{"a":"x"}`)); err == nil || !strings.Contains(err.Error(), "decode the document") {
		t.Errorf("a document of another type: %v", err)
	}
}

// TestDurationsOfAConfiguration: which durations a configuration may have.
func TestDurationsOfAConfiguration(t *testing.T) {
	const most = ttlrules.MaxSeconds * time.Second
	for d, want := range map[time.Duration]int32{time.Second: 1, most: ttlrules.MaxSeconds} {
		n, err := wholeSeconds("maxLife", d)
		if err != nil || n != want {
			t.Errorf("%s: %d, %v", d, n, err)
		}
		if of, err := defaultSeconds(d); err != nil || of == nil || *of != want {
			t.Errorf("%s: %v, %v", d, of, err)
		}
	}
	for _, d := range []time.Duration{most + time.Second, time.Second + 1, -time.Second, Never} {
		if n, err := wholeSeconds("maxLife", d); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %d, %v", d, n, err)
		}
		if of, err := defaultSeconds(d); d != Never && !errors.Is(err, ErrInvalid) || d == Never && (of == nil || *of != -1) {
			t.Errorf("%s: %v, %v", d, of, err)
		}
	}
	if of, err := defaultSeconds(0); of != nil || err != nil {
		t.Errorf("0: %v, %v", of, err)
	}
}

package layout

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestHeaderBytes pins what is stored: a document without a kept clock or an instant of its own
// has the header that it always had, if it has no target. scan.lua takes a long header for one that never expires.
func TestHeaderBytes(t *testing.T) {
	for _, c := range []struct {
		name   string
		header Header
		bytes  string
		index  Index
		score  int64
	}{
		{"inherits", Header{Ts: 0x010203040506, Etag: 0x0708090a0b0c}, "11" + "010203040506" + "0708090a0b0c" + "00000000",
			ByInherit, 0x010203040506},
		{"own", Header{Ts: 5000, Etag: 7, TTL: 60, Trace: "ab"}, "13" + "000000001388" + "000000000007" + "0000003c" + "6162",
			ByOwn, 65_000},
		{"never", Header{Ts: 5000, Etag: 7, TTL: ttlrules.Never}, "11" + "000000001388" + "000000000007" + "ffffffff", ByOwn,
			NeverScore},
		{"kept", Header{Ts: 5000, Etag: 7, Kept: 1000}, "21" + "000000001388" + "000000000007" + "fffffffe" + "00000000" +
			"0000000003e8" + "000000000000", ByInherit, 1000},
		{"kept, own, run out", Header{Ts: 5000, Etag: 7, TTL: 1, Kept: 1000}, "21" + "000000001388" + "000000000007" +
			"fffffffe" + "00000001" + "0000000003e8" + "000000000000", ByOwn, 5000},
		{"absolute", Header{Ts: 5000, Etag: 7, TTL: ttlrules.Never, Absolute: 6000, Trace: "ab"}, "23" + "000000001388" +
			"000000000007" + "fffffffe" + "ffffffff" + "000000000000" + "000000001770" + "6162", ByOwn, 6000},
		{"kept and absolute", Header{Ts: 5000, Etag: 7, Kept: 1000, Absolute: 4000}, "21" + "000000001388" + "000000000007" +
			"fffffffe" + "00000000" + "0000000003e8" + "000000000fa0", ByOwn, 5000},
		{"limited", Header{Ts: 5000, Etag: 7, TTL: 60, NotAfter: 6000, Trace: "ab"}, "23" + "000000001388" + "000000000007" +
			"fffffffd" + "0000003c" + "000000000000" + "000000001770" + "6162", ByOwn, 6000},
		{"limited and kept", Header{Ts: 5000, Etag: 7, TTL: 1, Kept: 4500, NotAfter: 6000}, "21" + "000000001388" +
			"000000000007" + "fffffffd" + "00000001" + "000000001194" + "000000001770", ByOwn, 5500},
		{"limited, without a ttl", Header{Ts: 5000, Etag: 7, NotAfter: 6000}, "21" + "000000001388" + "000000000007" +
			"fffffffd" + "00000000" + "000000000000" + "000000001770", ByOwn, 6000},
		{"target", Header{Ts: 5000, Etag: 7, TTL: 60, Target: "mail.send", Trace: "ab"}, "2d" + "000000001388" +
			"000000000007" + "fffffffc" + "0000003c" + "000000000000" + "000000000000" + "09" + "6d61696c2e73656e64" + "6162",
			ByOwn, 65_000},
		{"target, absolute", Header{Ts: 5000, Etag: 7, Absolute: 6000, Target: "a"}, "23" + "000000001388" + "000000000007" +
			"fffffffc" + "00000000" + "000000000000" + "000000001770" + "01" + "61", ByOwn, 6000},
		{"target, limited", Header{Ts: 5000, Etag: 7, TTL: 60, NotAfter: 6000, Target: "a"}, "23" + "000000001388" +
			"000000000007" + "fffffffb" + "0000003c" + "000000000000" + "000000001770" + "01" + "61", ByOwn, 6000},
		{"target, kept, inherits", Header{Ts: 5000, Etag: 7, Kept: 1000, Target: "a", Trace: "b"}, "24" + "000000001388" +
			"000000000007" + "fffffffc" + "00000000" + "0000000003e8" + "000000000000" + "01" + "61" + "62", ByInherit, 1000},
		{"renewed by a read", Header{Ts: 5000, Etag: 7, Kept: 6000}, "21" + "000000001388" + "000000000007" + "fffffffe" +
			"00000000" + "000000001770" + "000000000000", ByInherit, 6000},
		{"with a longest life", Header{Ts: 5000, Etag: 7, TTL: 60, Created: 1000, Limit: 9000, Trace: "ab"}, "2f" +
			"000000001388" + "000000000007" + "fffffffa" + "0000003c" + "000000000000" + "000000000000" + "0000000003e8" +
			"000000002328" + "6162", ByOwn, 9000},
		{"with a longest life and a default", Header{Ts: 5000, Etag: 7, TTL: ttlrules.Never, ByDefault: true, Created: 1000,
			Limit: 9000}, "2d" + "000000001388" + "000000000007" + "fffffffa" + "ffffffff" + "000000000000" + "000000000000" +
			"0000000003e8" + "040000002328", ByOwn, 9000},
		{"limited, with a longest life", Header{Ts: 5000, Etag: 7, TTL: 60, Created: 1000, NotAfter: 6000, Limit: 9000},
			"2d" + "000000001388" + "000000000007" + "fffffff9" + "0000003c" + "000000000000" + "000000001770" + "0000000003e8" +
				"000000002328", ByOwn, 6000},
		{"target, limited, with a longest life", Header{Ts: 5000, Etag: 7, TTL: 60, Created: 1000, NotAfter: 6000,
			Limit: 9000, Target: "a", Trace: "b"}, "30" + "000000001388" + "000000000007" + "fffffff7" + "0000003c" +
			"000000000000" + "000000001770" + "0000000003e8" + "000000002328" + "01" + "61" + "62", ByOwn, 6000},
	} {
		value := string(c.header.Append(nil))
		if got := hex.EncodeToString([]byte(value)); got != c.bytes {
			t.Errorf("%s: %s, want %s", c.name, got, c.bytes)
		}
		again, body, err := ParseDocument(value + "{}")
		if err != nil || again != c.header || body != "{}" {
			t.Errorf("%s is read again as %+v, %q, %v", c.name, again, body, err)
		}
		cut := c.header
		cut.Target, cut.Trace = "", ""
		if h, err := ParseHeader(value[:min(len(value), LifeHeaderLen)]); err != nil || h != cut {
			t.Errorf("%s without its target and trace is read as %+v, %v", c.name, h, err)
		}
		checkDamaged(t, value+"{}")
		var clock Header
		clock.SetClock(c.header.Clock())
		if cut.Created = 0; clock != cut {
			t.Errorf("%s has the clock %+v, and a header with that is %+v", c.name, c.header.Clock(), clock)
		}
		if in, score := c.header.Index(); in != c.index || score != c.score {
			t.Errorf("%s stands in index %d at %d, want %d at %d", c.name, in, score, c.index, c.score)
		}
	}
	if h := (Header{Target: strings.Repeat("t", wire.MaxTarget), Trace: strings.Repeat("t", MaxTraceWithTarget),
		Limit: 1}); h.Len() != MaxHeader {
		t.Errorf("the longest target with the longest trace beside it has a header of %d bytes, want %d", h.Len(), MaxHeader)
	}
	long := Header{Ts: 5000, Etag: 7, Kept: 1000}.Append(nil)
	for name, bad := range map[string]func(b []byte){
		"cut short":                 func(b []byte) { b[0] = 20 },
		"neither":                   func(b []byte) { copy(b[21:], make([]byte, 12)) },
		"begins when it is written": func(b []byte) { copy(b[21:], b[1:7]) },
		"two long ones":             func(b []byte) { copy(b[17:], b[13:17]) },
		"limited by nothing":        func(b []byte) { b[16]-- },
		"a target that is cut off":  func(b []byte) { b[16] -= 2 },
		"a life that is cut off":    func(b []byte) { b[16] -= 4 },
	} {
		b := append([]byte(nil), long...)
		bad(b)
		if h, _, err := ParseDocument(string(b) + "{}"); err == nil {
			t.Errorf("%s is read as %+v", name, h)
		}
	}
}

// checkDamaged checks that a value which is cut off anywhere, or has another byte anywhere, is either refused or is
// read as what would be stored so.
func checkDamaged(t *testing.T, value string) {
	t.Helper()
	check := func(value string) {
		t.Helper()
		h, body, err := ParseDocument(value)
		switch {
		case err != nil && (!errors.Is(err, ErrHeader) || h != (Header{}) || body != ""):
			t.Errorf("%x is refused as %+v, %q, %v", value, h, body, err)
		case err == nil && string(h.Append(nil))+body != value:
			t.Errorf("%x is read as %+v, %q, which is stored as %x", value, h, body, h.Append(nil))
		}
		// What is in front of a target is enough for ParseHeader, and it agrees with ParseDocument.
		if only, err := ParseHeader(value[:min(len(value), LifeHeaderLen)]); err == nil {
			only.Target, only.Trace = h.Target, h.Trace
			if body != "" && only != h {
				t.Errorf("%x is read as %+v, and as a header alone as %+v", value, h, only)
			}
		} else if !errors.Is(err, ErrHeader) || only != (Header{}) || body != "" {
			t.Errorf("%x is refused as a header alone: %+v, %v", value, only, err)
		}
	}
	for i := range value {
		check(value[:i])
		for _, b := range []byte{0, 1, value[i] - 1, value[i] + 1, value[i] ^ 0x80, 0xff} {
			check(value[:i] + string([]byte{b}) + value[i+1:])
		}
	}
}

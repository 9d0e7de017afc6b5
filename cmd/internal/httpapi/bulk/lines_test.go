package bulk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// FuzzReadLine: the lines are those of bytes.Split, whatever pieces they come in, and one that
// is too long is counted and not kept.
func FuzzReadLine(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nccccccccccccccccccccccccccccccccccccccc\nd"), uint8(20))
	f.Add([]byte(""), uint8(1))
	f.Fuzz(func(t *testing.T, input []byte, most uint8) {
		in := bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(input)), 16)
		for _, want := range bytes.Split(input, []byte("\n")) {
			text, size, err := readLine(in, int(most))
			if err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if size != len(want) {
				t.Fatalf("a line of %d bytes is counted as %d", len(want), size)
			}
			if got := bytes.TrimSuffix(text, []byte("\n")); size <= int(most) && !bytes.Equal(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
			if len(text) > int(most)+2+16 {
				t.Fatalf("it keeps %d bytes of a line that may have %d", len(text), most)
			}
		}
	})
}

// FuzzDocumentID: an id is the last member "id" of an object, and nothing else.
func FuzzDocumentID(f *testing.F) {
	for _, seed := range []string{`{"id":"1"}`, `{"ID":"1"}`, `{"id":1}`, `{"id":null}`, `[]`, `null`, `{`, `{"id":"\u00e9"}`, `{"id":"1","id":"2"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		id, err := documentID(line)
		if err != nil {
			return
		}
		var members map[string]any
		if json.Unmarshal(line, &members) != nil || members["id"] != id || id == "" || len(id) > 255 {
			t.Errorf("%q has the id %q", line, id)
		}
	})
}

// TestOrder: outcomes that come in any order leave in that of the lines, and no line is read
// while there is no room.
func TestOrder(t *testing.T) {
	const lines, most = 5000, 64
	o := newOrder(most)
	var pending sync.WaitGroup
	go func() {
		for n := range lines {
			tag, ok := o.add(n+1, fmt.Sprint(n))
			if !ok {
				t.Error("there is no room any more")
				return
			}
			pending.Go(func() {
				for range rand.IntN(100) {
				}
				o.set(tag, func(line int, id string) []byte { return fmt.Appendf(nil, "%d %s\n", line, id) })
			})
		}
		o.end()
	}()
	var got, want strings.Builder
	for more := true; more; {
		var b []byte
		b, more = o.take(nil, 100)
		got.Write(b)
	}
	for n := range lines {
		fmt.Fprintf(&want, "%d %d\n", n+1, n)
	}
	pending.Wait()
	if got.String() != want.String() {
		t.Error("the outcomes are not in the order of the lines")
	}
	o.giveUp()
	if _, ok := o.add(1, "x"); ok {
		t.Error("a line was taken that nobody will answer")
	}
	if b, more := o.take(nil, 1); more || len(b) > 0 {
		t.Errorf("%q, and more: %v", b, more)
	}
}

func FuzzOutcomeLine(f *testing.F) {
	f.Add(1, "id", "a <text> \" \u2028")
	f.Fuzz(func(t *testing.T, line int, id, text string) {
		b := outcomeLine(line, id, problemOf(errors.New(text)))
		var o struct {
			Status int
			Error  *string
		}
		if err := json.Unmarshal(b, &o); err != nil || o.Status != 503 || o.Error == nil || bytes.Count(b, []byte("\n")) != 1 {
			t.Errorf("%s: %v", b, err)
		}
	})
}

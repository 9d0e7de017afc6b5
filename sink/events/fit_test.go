package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// object is a JSON object of this many bytes.
func object(size int) string { return `{"a":"` + strings.Repeat("x", size-8) + `"}` }

// TestG8_WhatIsTooLargeIsPublished publishes documents and rejected bodies of every size around
// the server's maximum payload: the stream stores all, and each message says what it omits.
//
// Goes red if fit does not count everything that Publish adds to a message.
func TestG8_WhatIsTooLargeIsPublished(t *testing.T) {
	const most = 4096
	r := newRig(t, natstest.Options{Config: fmt.Sprintf("max_payload: %d", most)}, jetstream.StreamConfig{})
	if n := r.nc.MaxPayload(); n != most {
		t.Fatalf("the server takes %d bytes", n)
	}
	omitted, truncated := 0, 0
	const from = most - 900
	for n := from; n < most+100; n++ {
		document := object(n)
		m := Expired(testLog, wire.Event{ID: "e", Collection: "c", Document: []byte(document), Etag: wire.Etag(n)}, "")
		rej := rejection("e", uint64(n), document)
		if _, err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{m, rej}); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if !strings.Contains(string(m.msg.Data), document) {
			omitted++
			want := fmt.Sprintf(`{"id":"e","collection":"c","documentOmitted":true,"etag":"%d",`+
				`"ts":"1970-01-01T00:00:00.000Z","expiredAt":"1970-01-01T00:00:00.000Z"}`, n)
			if string(m.msg.Data) != want {
				t.Fatalf("an event without its document is %s", m.msg.Data)
			}
		} else if omitted > 0 {
			t.Errorf("a document of %d bytes is in its event, but a shorter one was not", n)
		}
		if text := rej.msg.Header.Get(wire.HeaderTruncated); text != "" {
			truncated++
			if text != strconv.Itoa(n) || !strings.HasPrefix(document, string(rej.msg.Data)) || rej.size() != most ||
				strings.Count(rej.msg.Header.Get(wire.HeaderError), "only the beginning") != 1 {
				t.Errorf("a rejection of %d bytes has %d of them, and headers %v", n, len(rej.msg.Data), rej.msg.Header)
			}
		} else if string(rej.msg.Data) != document || truncated > 0 {
			t.Errorf("a rejection of %d bytes is not whole, and does not say so", n)
		}
	}
	if omitted == 0 || omitted == most+100-from || truncated == 0 || truncated == most+100-from {
		t.Errorf("%d documents were omitted, and %d bodies truncated", omitted, truncated)
	}
	if n := len(r.stored()); n != 2*(most+100-from) {
		t.Errorf("%d messages are stored", n)
	}
}

// TestG8_TheStreamTakesLess: somebody sets max_msg_size of the stream while the
// publisher runs. Events go without their documents, rejections with the beginning of
// their bodies, in batches too, each once; and whole again once the limit is raised.
//
// Goes red if the publisher uses the limits that it had at its start.
func TestG8_TheStreamTakesLess(t *testing.T) { everyWay(t, theStreamTakesLess) }

func theStreamTakesLess(t *testing.T, config jetstream.StreamConfig) {
	r := newRig(t, natstest.Options{}, config)
	limit := func(most int32) {
		t.Helper()
		config := r.stream.CachedInfo().Config
		config.MaxMsgSize = most
		if _, err := r.js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	messages := func(from int) []Message {
		all := []Message{event("small", uint64(from), "{}"), event("large", uint64(from), object(20_000)), event("small",
			uint64(from+500), "{}"), rejection("large", uint64(from), object(20_000))}
		for i := range 32 {
			body := "{}"
			if i%5 == 4 {
				body = object(20_000)
			}
			all = append(all, rejection("hot", uint64(from+1+i), body))
		}
		return all
	}
	check := func(whole bool) {
		t.Helper()
		stored := r.stored()
		if n := len(stored); n != 4+2*16 {
			t.Fatalf("%d messages are stored", n)
		}
		for _, m := range stored {
			var e wire.Event
			id := m.Header.Get(ceSubject)
			if id != "" {
				if err := json.Unmarshal(m.Data, &e); err != nil {
					t.Fatal(err)
				}
			}
			switch {
			case id == "small" && string(e.Document) != "{}":
				t.Errorf("the small event is %s", m.Data)
			case id == "large" && (e.Omitted == whole || (len(e.Document) > 0) != whole):
				t.Errorf("the large event has %d bytes, omitted %t", len(m.Data), e.Omitted)
			case strings.HasSuffix(m.Header.Get(wire.HeaderSubject), ".large") &&
				(m.Header.Get(wire.HeaderTruncated) != "") == whole:
				t.Errorf("the large rejection has %d bytes, and headers %v", len(m.Data), m.Header)
			}
		}
		if err := r.stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.publish(messages(1)...)
	check(true)
	limit(8 << 10)
	r.publish(messages(1001)...)
	check(false)
	limit(10 << 10)
	r.publish(messages(2001)...)
	check(false)
	limit(-1)
	r.publish(messages(3001)...)
	check(true)
}

// TestG11_NothingFits: if not even an event without its document fits, the error names the
// limit and the size that is needed.
func TestG11_NothingFits(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{MaxMsgSize: 100})
	for _, m := range []Message{event("a", 1, object(1000)), rejection("a", 1, object(1000))} {
		_, err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{m})
		if !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), "max_msg_size of stream LAPSE_EVENTS is 100: set "+
			"it to "+strconv.FormatInt(m.size(), 10)) {
			t.Errorf("error %v", err)
		}
	}
}

// TestG11_ARefusalSaysWhatToDo: if a stream refuses messages, the error names the stream, the
// limit and the remedy.
func TestG11_ARefusalSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		config jetstream.StreamConfig
		says   []string
	}{
		"messages": {jetstream.StreamConfig{MaxMsgs: 50}, []string{"stream LAPSE_EVENTS refuses it", "maximum messages " +
			"exceeded", "discard policy to old"}},
		"bytes": {jetstream.StreamConfig{MaxBytes: 5000}, []string{"stream LAPSE_EVENTS refuses it", "maximum bytes " +
			"exceeded", "raise its limits"}},
	} {
		t.Run(name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
				config.MaxMsgs, config.MaxBytes, config.Discard = c.config.MaxMsgs, c.config.MaxBytes, jetstream.DiscardNew
				r := newRig(t, natstest.Options{}, config)
				var err error
				for from := 1; err == nil && from < 100; from += 10 {
					_, err = r.p.Publish(t.Context(), r.p.Unfenced(0), rejections("a", from, 10))
				}
				for _, part := range append(c.says, "lapse.rejected.orders.a") {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("%q is not in: %v", part, err)
					}
				}
				if config.MaxMsgs > 0 { // else a fence has room
					if _, err := r.p.Fence(t.Context(), 0); err == nil || !strings.Contains(err.Error(), c.says[0]) {
						t.Errorf("of a fence: %v", err)
					}
				}
				stored := r.storedOn("a")
				if diff := cmp.Diff(sequences(1, len(stored)), stored); diff != "" || len(stored) == 0 {
					t.Errorf("%d are stored, with a hole:\n%s", len(stored), diff)
				}
			})
		})
	}
	t.Run("gone", func(t *testing.T) {
		everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
			r := newRig(t, natstest.Options{}, config)
			if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
				t.Fatal(err)
			}
			_, err := r.p.Publish(t.Context(), r.p.Unfenced(0), rejections("a", 1, 100))
			_, fenceErr := r.p.Fence(t.Context(), 0)
			for _, err := range []error{err, fenceErr} {
				if err == nil || !strings.Contains(err.Error(), "stream LAPSE_EVENTS is gone") {
					t.Errorf("error %v", err)
				}
			}
		})
	})
}

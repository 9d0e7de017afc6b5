//go:build held

package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// tooLarge is what the receiver answers to an event that becomes a dead letter at once.
func tooLarge(_ string, _ int, w http.ResponseWriter) {
	w.WriteHeader(http.StatusRequestEntityTooLarge)
}

// forwarder is a process that forwards, without its consumers: a test hands it messages.
func (r *rig) forwarder(t *testing.T) *forwarding {
	t.Helper()
	f, err := open(t.Context(), r.c, wire.DefaultPrefix, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.http.CloseIdleConnections)
	return f
}

// message is the event of a version of a document, as a consumer hands it over.
func message(id string, version int) *client.Ordered {
	return &client.Ordered{Subject: wire.DefaultPrefix.Expired("orders", id), Seq: uint64(version), Data: []byte(`{}`),
		Header: nats.Header{
			"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"}, "ce-source": {"/lapse/17/collections/orders"},
			"ce-subject": {id}, "ce-id": {fmt.Sprintf("orders/%s/%d", id, version)}, "ce-time": {"2026-01-31T12:00:00.000Z"},
		}}
}

// deliverVersion delivers a version of a document.
func (f *forwarding) deliverVersion(t *testing.T, id string, version int) {
	t.Helper()
	if err := f.deliver(t.Context(), message(id, version)); err != nil {
		t.Errorf("%s, version %d: %v", id, version, err)
	}
}

// wantLetters compares the dead letters, each as document/version, in their order.
func (r *rig) wantLetters(t *testing.T, want ...string) {
	t.Helper()
	got := []string{}
	for _, letter := range r.letters(t) {
		id, _, _ := strings.Cut(strings.TrimPrefix(letter, "lapse/17/orders/"), ":")
		got = append(got, id)
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

// takes lets the receiver take everything from now on.
func (r *rig) takes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = func(string, int, http.ResponseWriter) {}
}

// wantOrder compares what the receiver took, each as document/version: the first time of each, by document.
func (r *rig) wantOrder(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	first := []string{}
	for _, id := range r.order {
		if id = strings.TrimPrefix(id, "lapse/17/orders/"); !slices.Contains(first, id) {
			first = append(first, id)
		}
	}
	document := func(id string) string { return id[:strings.LastIndexByte(id, '/')] }
	slices.SortStableFunc(first, func(a, b string) int { return strings.Compare(document(a), document(b)) })
	if diff := cmp.Diff(append([]string{}, want...), first); diff != "" {
		t.Errorf("the receiver took (-want +got):\n%s", diff)
	}
}

// TestHeldDeliver: while a process tries an event, another one gives it up, and parks the next event of the document
// behind it. The first process gives it up too: there is one dead letter for each event, in their order.
func TestHeldDeliver(t *testing.T) {
	held.Each(t, "cmd/internal/forward.forwarding.deliver", held.Takeover, func(t *testing.T, during func(func())) {
		r := newRig(t, tooLarge)
		one, other := r.forwarder(t), r.forwarder(t)
		want := []string{"a/1"}
		during(func() {
			other.deliverVersion(t, "a", 1)
			other.deliverVersion(t, "a", 2)
			want = append(want, "a/2")
		})
		one.deliverVersion(t, "a", 1)
		r.wantLetters(t, want...)
	})
}

// TestHeldGivesUp: between what a process looks up and what it stores, another one gives the same event up and parks
// the next one behind it; or somebody has the letter before it sent again. There is one dead letter for each
// event, and an event that was to be parked behind a letter that is gone is posted.
func TestHeldGivesUp(t *testing.T) {
	for _, operation := range []string{"deadLetters.store", "forwarding.giveUp"} {
		held.Each(t, "cmd/internal/forward."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			r := newRig(t, tooLarge)
			one, other := r.forwarder(t), r.forwarder(t)
			want := []string{"a/1"}
			give := func() {
				other.deliverVersion(t, "a", 1)
				other.deliverVersion(t, "a", 2)
				want = append(want, "a/2")
			}
			if operation == "forwarding.giveUp" { // which makes a second call only when the first one has failed
				one.dead.js = &overtaken{JetStream: one.dead.js, first: func() {
					other.deliverVersion(t, "a", 1)
				}}
				give = func() {
					other.deliverVersion(t, "a", 2)
					want = append(want, "a/2")
				}
			}
			during(give)
			one.deliverVersion(t, "a", 1)
			r.wantLetters(t, want...)
		})
	}
	held.Each(t, "cmd/internal/forward.deadLetters.store", held.Write, func(t *testing.T, during func(func())) {
		r := newRig(t, tooLarge)
		f := r.forwarder(t)
		f.deliverVersion(t, "a", 1)
		gone := false
		during(func() {
			r.takes()
			if _, _, err := Resend(t.Context(), r.c, wire.DefaultPrefix, r.opts); err != nil {
				t.Error(err)
			}
			gone = true
		})
		f.deliverVersion(t, "a", 2)
		if !gone {
			r.wantLetters(t, "a/1", "a/2")
			return
		}
		r.wantLetters(t)
		r.wantOrder(t, "a/1", "a/2")
	})
}

// TestHeldHolds: a process finds the last letter about a document, which is about a later event, and looks for one of
// its own event before it. Meanwhile somebody has the letters sent again, or another process parks a further event. The
// event stays known as given up, or it is stored behind what is left: it is never lost.
func TestHeldHolds(t *testing.T) {
	held.Each(t, "cmd/internal/forward.deadLetters.holds", held.Write, func(t *testing.T, during func(func())) {
		r := newRig(t, tooLarge)
		one, other := r.forwarder(t), r.forwarder(t)
		for version := 1; version <= 4; version++ {
			other.deliverVersion(t, "a", version)
		}
		want := []string{"a/1", "a/2", "a/3", "a/4"}
		during(func() {
			other.deliverVersion(t, "a", 5)
			want = append(want, "a/5")
		})
		if stored, err := one.giveUp(t.Context(), event{message("a", 3).Header, nil}, message("a", 3), errParked, false); !stored ||
			err != nil {
			t.Errorf("stored %t, %v", stored, err)
		}
		r.wantLetters(t, want...)
	})
}

// TestHeldResend: while dead letters are sent again, another process sends them again too, and parks a further event.
// Both take the letters that the receiver takes away; each event is delivered, and the first deliveries of a
// document's events come in their order.
func TestHeldResend(t *testing.T) {
	for _, operation := range []string{"Resend", "forwarding.resend", "deadLetters.each"} {
		held.Each(t, "cmd/internal/forward."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			r := newRig(t, tooLarge)
			f := r.forwarder(t)
			for version := 1; version <= 2; version++ {
				f.deliverVersion(t, "a", version)
				f.deliverVersion(t, "b", version)
			}
			r.takes()
			during(func() {
				f.deliverVersion(t, "a", 3)
				if _, _, err := Resend(t.Context(), r.c, wire.DefaultPrefix, r.opts); err != nil {
					t.Errorf("the other one: %v", err)
				}
			})
			if _, left, err := Resend(t.Context(), r.c, wire.DefaultPrefix, r.opts); err != nil || left != 0 {
				t.Errorf("%d are left, %v", left, err)
			}
			r.wantLetters(t)
			f.deliverVersion(t, "a", 3)
			r.wantOrder(t, "a/1", "a/2", "a/3", "b/1", "b/2")
		})
	}
}

// TestHeldRemove: a dead letter is gone before it is removed, and another one about the document comes meanwhile. That
// one stays.
func TestHeldRemove(t *testing.T) {
	held.Each(t, "cmd/internal/forward.deadLetters.remove", held.Write, func(t *testing.T, during func(func())) {
		r := newRig(t, tooLarge)
		f := r.forwarder(t)
		f.deliverVersion(t, "a", 1)
		if err := f.dead.remove(t.Context(), 1); err != nil {
			t.Error(err)
		}
		want := []string{}
		during(func() {
			f.deliverVersion(t, "a", 2)
			want = append(want, "a/2")
		})
		if err := f.dead.remove(t.Context(), 1); err != nil {
			t.Errorf("a letter that is gone: %v", err)
		}
		r.wantLetters(t, want...)
	})
}

// TestHeldListDead: while dead letters are listed, some go and some come. Each that was there all the time is listed
// once, the oldest first, and none twice.
func TestHeldListDead(t *testing.T) {
	for _, operation := range []string{"ListDead", "deadLetters.each"} {
		held.Each(t, "cmd/internal/forward."+operation, held.Write, func(t *testing.T, during func(func())) {
			r := newRig(t, tooLarge)
			f := r.forwarder(t)
			for version := 1; version <= 6; version++ {
				f.deliverVersion(t, fmt.Sprint(version%3), version)
			}
			during(func() {
				for _, seq := range []uint64{2, 5} {
					if err := f.dead.remove(t.Context(), seq); err != nil {
						t.Error(err)
					}
				}
				f.deliverVersion(t, "1", 7)
			})
			var all []uint64
			if err := ListDead(t.Context(), r.c, wire.DefaultPrefix, "test", func(l Letter) error {
				all = append(all, l.Seq)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			stay := slices.DeleteFunc(slices.Clone(all), func(seq uint64) bool { return seq == 2 || seq == 5 || seq == 7 })
			if !slices.Equal(stay, []uint64{1, 3, 4, 6}) || !slices.IsSorted(all) || len(slices.Compact(all)) != len(all) {
				t.Errorf("listed %v", all)
			}
		})
	}
}

// TestHeldCountDead: while dead letters are counted and the last ones are read, some go and some come. Those that were
// there all the time are counted, and among the last ones once, the newest first.
func TestHeldCountDead(t *testing.T) {
	for _, operation := range []string{"CountDead", "lastLetters"} {
		held.Each(t, "cmd/internal/forward."+operation, held.Write, func(t *testing.T, during func(func())) {
			r := newRig(t, tooLarge)
			f := r.forwarder(t)
			for version := 1; version <= 6; version++ {
				f.deliverVersion(t, fmt.Sprint(version%3), version)
			}
			during(func() {
				for _, seq := range []uint64{1, 5} {
					if err := f.dead.remove(t.Context(), seq); err != nil {
						t.Error(err)
					}
				}
				f.deliverVersion(t, "new", 7)
			})
			found, err := CountDead(t.Context(), r.js, wire.DefaultPrefix, 10)
			if err != nil || len(found) != 1 || found[0].Count < 4 || found[0].Count > 7 {
				t.Fatalf("%+v, %v", found, err)
			}
			var all []uint64
			for _, l := range found[0].Last {
				all = append(all, l.Seq)
			}
			stay := slices.DeleteFunc(slices.Clone(all), func(seq uint64) bool { return seq == 1 || seq == 5 || seq == 7 })
			slices.Reverse(all)
			if !slices.Equal(stay, []uint64{6, 4, 3, 2}) || !slices.IsSorted(all) || len(slices.Compact(all)) != len(all) {
				t.Errorf("the last ones are %v, of %d", all, found[0].Count)
			}
		})
	}
}

// TestHeldOpenDead: between the look for the stream of dead letters and its creation another process creates it, and
// somebody has changed for how long the stream of events keeps them. Both go on with that stream.
func TestHeldOpenDead(t *testing.T) {
	held.Each(t, "cmd/internal/forward.openDead", held.Write, func(t *testing.T, during func(func())) {
		r := newRig(t, tooLarge)
		during(func() {
			stream, err := r.js.Stream(t.Context(), wire.DefaultPrefix.EventsStream())
			if err != nil {
				t.Fatal(err)
			}
			longer := stream.CachedInfo().Config
			longer.MaxAge = time.Hour
			if _, err := r.js.UpdateStream(t.Context(), longer); err != nil {
				t.Fatal(err)
			}
			r.forwarder(t).deliverVersion(t, "a", 1)
		})
		r.forwarder(t).deliverVersion(t, "a", 2)
		letters := r.letters(t)
		if n := len(letters); n == 0 || !strings.Contains(letters[n-1], "a/2") {
			t.Errorf("dead letters %v", letters)
		}
	})
}

// TestHeldAskAgain: while a process sends dead letters again because somebody has asked for it, the receiver that has
// refused some begins to take them, and somebody asks again. Then the letters go.
//
// It fails if a request that comes while letters are sent is dropped.
func TestHeldAskAgain(t *testing.T) {
	for _, operation := range []string{"deadLetters.each", "forwarding.answerAgain"} {
		held.Each(t, "cmd/internal/forward."+operation, held.Write, func(t *testing.T, during func(func())) {
			r, over := newRig(t, tooLarge), make(chan struct{}, 10)
			r.opts.Notice = func(text string) {
				if strings.HasPrefix(text, "the receiver took") {
					over <- struct{}{}
				}
			}
			f := r.forwarder(t)
			f.deliverVersion(t, "a", 1)
			f.deliverVersion(t, "b", 2)
			ask := func() {
				if err := r.c.Conn().Publish(wire.DefaultPrefix.Resend("test"), nil); err != nil {
					t.Error(err)
				}
			}
			var asked atomic.Bool
			during(func() {
				r.takes()
				ask()
				asked.Store(true)
			})
			end, err := f.answerAgain(t.Context(), r.c, wire.DefaultPrefix)
			if err != nil {
				t.Fatal(err)
			}
			ask()
			select {
			case <-over:
			case <-time.After(limit):
				t.Error("the letters are not sent")
			}
			if asked.Load() {
				if late := poll.Met(limit, "the letters go", func() bool { return len(r.letters(t)) == 0 }); late != nil {
					t.Error(late)
				}
				r.wantOrder(t, "a/1", "b/2")
			}
			end()
		})
	}
}

// TestHeldRun: before a process has its consumers, another one under the name gives events up, ends, and more
// events come. All that the receiver takes is delivered, what belongs behind a dead letter is there, and each event
// has one letter.
func TestHeldRun(t *testing.T) {
	held.Each(t, "cmd/internal/forward.Run", held.Takeover, func(t *testing.T, during func(func())) {
		r := newRig(t, func(id string, n int, w http.ResponseWriter) {
			if strings.Contains(id, "/bad/") {
				tooLarge(id, n, w)
			}
		})
		versions := "1"
		publish := func(version string) {
			r.event(t, "bad", version)
			r.event(t, "good", version)
		}
		publish("1")
		during(func() {
			if err := Run(t.Context(), r.c, wire.DefaultPrefix, r.opts); err != nil {
				t.Error(err)
			}
			publish("2")
			versions += "2"
		})
		if err := r.run(t); err != nil {
			t.Fatal(err)
		}
		var bad, good []string
		for _, version := range strings.Split(versions, "") {
			bad, good = append(bad, "bad/"+version), append(good, "good/"+version)
		}
		r.wantLetters(t, bad...)
		r.wantOrder(t, good...)
	})
}

// TestHeldArchive: the stream of events is deleted and created again after an archive has looked it up. The files of
// the former stream stay as they are, and the next run writes the events of the new one into files of their own.
//
// It fails if events of the new stream come into files that have the name of the former one.
func TestHeldArchive(t *testing.T) {
	held.Each(t, "cmd/internal/forward.Archive", held.Restart, func(t *testing.T, during func(func())) {
		r := newRig(t, nil)
		dir := t.TempDir()
		archive := func(durable string) error {
			opts := ArchiveOptions{Dir: dir, Name: "orders", Messages: r.opts.Messages}
			opts.Messages.Durable = durable
			opts.Create = func(name string) (io.Writer, func(error) error, error) {
				f, err := os.Create(name + ".part")
				return f, func(err error) error { return errors.Join(err, f.Close(), os.Rename(name+".part", name)) }, err
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return Archive(ctx, r.c, wire.DefaultPrefix, opts)
		}
		r.event(t, "before", "1")
		if err := archive("first"); err != nil {
			t.Fatal(err)
		}
		former := contents(t, dir)
		replaced := false
		during(func() {
			stream, err := r.js.Stream(t.Context(), wire.DefaultPrefix.EventsStream())
			if err == nil {
				err = r.js.DeleteStream(t.Context(), wire.DefaultPrefix.EventsStream())
			}
			if err == nil {
				_, err = r.js.CreateStream(t.Context(), stream.CachedInfo().Config)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.event(t, "after", "1")
			replaced = true
		})
		err := archive("second")
		if replaced != (err != nil) || replaced && !strings.Contains(err.Error(), "was deleted and created again") {
			t.Errorf("replaced %t: %v", replaced, err)
		}
		if diff := cmp.Diff(former, contents(t, dir)); diff != "" {
			t.Errorf("the files of the former stream (-want +got):\n%s", diff)
		}
		if !replaced {
			return
		}
		if err := archive("third"); err != nil {
			t.Fatal(err)
		}
		for name := range contents(t, dir) {
			text := unzipped(t, filepath.Join(dir, name))
			if _, old := former[name]; old != strings.Contains(text, "before") || old == strings.Contains(text, "after") {
				t.Errorf("%s has %s", name, text)
			}
		}
		if n := len(contents(t, dir)); n != 2 {
			t.Errorf("%d files", n)
		}
	})
}

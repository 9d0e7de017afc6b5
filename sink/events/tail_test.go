package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	cmpdiff "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// requests are the requests of messages by direct get, as they come.
func (r *rig) requests() chan *nats.Msg {
	r.t.Helper()
	asked := make(chan *nats.Msg, 10_000)
	if _, err := r.nc.ChanSubscribe("$JS.API.DIRECT.GET."+prefix.EventsStream(), asked); err != nil {
		r.t.Fatal(err)
	}
	return asked
}

// asked are the requests that were made since the last call. They are in the channel once the server
// has answered; a handler might not have been called for each by then.
func (r *rig) asked(requests chan *nats.Msg) []string {
	r.t.Helper()
	if err := r.nc.Flush(); err != nil {
		r.t.Fatal(err)
	}
	list := []string{}
	for {
		select {
		case one := <-requests:
			list = append(list, string(one.Data))
		default:
			return list
		}
	}
}

func (r *rig) cover(tail *Tail, from, upTo uint64) {
	r.t.Helper()
	if err := tail.Cover(r.t.Context(), from, upTo); err != nil {
		r.t.Fatal(err)
	}
}

// TestG3_ATailHasWhatIsStored: a tail tells where the stream has each output, reads each message
// once, and reads on in both directions. Once nobody holds it, it has nothing any more.
func TestG3_ATailHasWhatIsStored(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	var messages []Message
	for i := range uint64(100) {
		messages = append(messages, event(strconv.Itoa(int(i)), 2*i+1, "{}"), rejection("x", 2*i+2, ""))
	}
	r.publish(messages...)
	requests := r.requests()
	tail := r.p.NewTail(testLog)
	holds := func(from, upTo int) {
		t.Helper()
		for i, m := range messages {
			at, found := tail.Find(m)
			if want := i >= from && i < upTo; found != want || found && at != (Place{uint64(i + 1), m.Key}) {
				t.Errorf("message %d is found: %t, at %s", i+1, found, at)
			}
		}
	}
	tail.Hold()
	tail.Hold()
	holds(0, 0)
	for _, step := range []struct {
		from, upTo uint64 // as asked
		has        [2]int
		reads      int // requests
	}{
		{80, 120, [2]int{80, 120}, 1},
		{80, 120, [2]int{80, 120}, 0},
		{90, 110, [2]int{80, 120}, 0},
		{80, 121, [2]int{80, 121}, 1},
		{79, 121, [2]int{79, 121}, 1},
		{40, 160, [2]int{40, 160}, 2},
		{0, 200, [2]int{0, 200}, 2},
	} {
		r.cover(tail, step.from, step.upTo)
		holds(step.has[0], step.has[1])
		if list := r.asked(requests); len(list) != step.reads {
			t.Errorf("to cover (%d, %d] it asked %q", step.from, step.upTo, list)
		}
	}
	tail.Release()
	holds(0, 200)
	tail.Release()
	holds(0, 0)
	if named := tail.Named(0, 0); len(named) != 0 {
		t.Errorf("a tail that nobody holds names %v", named)
	}
	tail.Hold()
	r.cover(tail, 100, 150)
	holds(100, 150)
}

// TestG12_ATailNamesTheLog: a tail tells the last message of the log that an output names, its log
// time, and where the output is. That is the write whose version expired, or the message that was
// rejected.
func TestG12_ATailNamesTheLog(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	without := rejection("old", 50, "") // as somebody else may have stored it
	delete(without.msg.Header, wire.HeaderTs)
	const ofEvent = 1_790_000_060_123_999_999 // when it expired, to the end of the millisecond
	ofRejection := func(seq uint64, at uint64) Named {
		since := 1_790_000_000_000_000_000 + int64(seq)*1e6
		return Named{seq, at, since, since + 999_999}
	}
	for i, step := range []struct {
		publish Message
		want    Named
	}{
		{rejection("a", 7, ""), ofRejection(7, 1)},
		{event("b", 9, "{}"), Named{9, 2, 0, ofEvent}},
		{event("c", 3, "{}"), Named{9, 2, 0, ofEvent}},
		{rejection("a", 8, `{"ts":"2001-01-01T00:00:00Z"}`), Named{9, 2, 0, ofEvent}},
		{rejection("a", 30, `{"ts":"2001-01-01T00:00:00Z"}`), ofRejection(30, 5)},
		{without, Named{50, 6, 0, math.MaxInt64}},
		{event("d", 51, "{}"), Named{51, 7, 0, ofEvent}},
	} {
		if at := r.publish(step.publish); at.Seq != uint64(i+1) {
			t.Fatalf("it is stored at %s", at)
		}
		all := r.tail(0).Named(0, 0)
		if named := all[len(all)-1]; named != step.want {
			t.Errorf("after %d messages, the tail names %+v, want %+v", i+1, named, step.want)
		}
		if !slices.IsSortedFunc(all, func(a, b Named) int { return cmp.Compare(a.Seq, b.Seq) }) || len(all) != i+1 {
			t.Errorf("after %d messages, it names %+v", i+1, all)
		}
	}
	if some := r.tail(0).Named(30, 0); len(some) != 2 || some[0].Seq != 50 {
		t.Errorf("behind message 30 it names %+v", some)
	}
	if all := r.p.NewTail(testLog).Named(0, 0); len(all) != 0 {
		t.Errorf("an empty tail names %+v", all)
	}
	r.fence()
	if _, err := r.p.barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if named := r.tail(7).Named(0, 0); len(named) != 0 {
		t.Errorf("a fence and a barrier name %+v", named)
	}
}

// TestG12_AStepNamesTheLog: the message that is named by the first output of a step is in the tail beside
// those that the outputs name themselves, in every way to publish. What is no such name is left out.
func TestG12_AStepNamesTheLog(t *testing.T) {
	everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
		r := newRig(t, natstest.Options{}, config)
		const stamp = 1_790_000_100_123_456_789
		for at := uint64(1); at <= 10; { // first alone, then as a batch
			some := []Message{event("a", at, "{}"), event("b", at+1, "{}"), event("c", at+2, "{}")}[:min(at, 3)]
			some[0].Name(100+at, stamp)
			r.publish(some...)
			at += uint64(len(some))
		}
		for i, text := range []string{"", "x", "200", "200:", ":5", "-200:5", "18446744073709551616:5"} {
			m := rejection("x", uint64(20+i), "")
			m.msg.Header.Set(wire.HeaderOffset, text)
			r.publish(m)
		}
		tail := r.tail(0)
		var want []Named
		for at := uint64(1); at <= 10; at += min(at, 3) {
			want = append(want, Named{100 + at, at, stamp, stamp})
		}
		if diff := cmpdiff.Diff(want, tail.Named(99, 0)); diff != "" {
			t.Errorf("the steps name:\n%s", diff)
		}
		if all := tail.Named(0, 0); len(all) != len(want)+len(tail.stored) {
			t.Errorf("it names %+v", all)
		}
		if all := tail.Named(99, 4); len(all) != len(want)-3 || all[0].At != 7 {
			t.Errorf("behind output 4 it names %+v", all)
		}
		tail.Release()
		if all := tail.Named(0, 0); len(all) != 0 {
			t.Errorf("a tail that nobody holds names %+v", all)
		}
	})
}

// places is where a tail has each output.
func places(t *Tail) map[Key]uint64 {
	all := make(map[Key]uint64)
	for key, output := range t.stored {
		all[key] = output.at
	}
	return all
}

// TestG8_ATailIgnoresWhatIsNotOfItsLog: outputs of other shards, of another log, of another prefix,
// and what strangers publish on the stream's subjects.
func TestG8_ATailIgnoresWhatIsNotOfItsLog(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	own := []Message{event("a", 1, "{}"), rejection("a", 2, "{}")}
	r.publish(own[0])
	for _, m := range []Message{
		Expired(NewSource(prefix.Log(0, 1), 1_780_000_000_457), wire.Event{ID: "x", Collection: "orders", Etag: 101,
			Document: []byte("{}")}, ""),
		Rejected(NewSource(prefix.Log(1, 2), 1_780_000_000_456), Rejection{Subject: "s", Rest: "orders.x", Seq: 102}),
	} {
		r.publish(m)
	}
	headers := func(change func(nats.Header)) nats.Header {
		h := event("a", 1000, "{}").msg.Header
		change(h)
		return h
	}
	for _, m := range []*nats.Msg{
		{Subject: "lapse.expired.orders.a"},
		{Subject: "lapse.expired.orders.a", Data: []byte(`{"etag":"103"}`)},
		{Subject: "lapse.expired.orders", Header: nats.Header{"A": {"b"}}},
		{Subject: "lapse.expired.orders.a.b.c", Header: nats.Header{ceID: {"103"}}},
		{Subject: "lapse.expired.orders.a", Header: headers(func(h nats.Header) { delete(h, ceSource) })},
		{Subject: "lapse.expired.orders.a",
			Header: headers(func(h nats.Header) { h[ceSource] = []string{"/lapse/1780000000456"} })},
		{Subject: "lapse.expired.orders.a", Header: headers(func(h nats.Header) { delete(h, ceID) })},
		{Subject: "lapse.expired.orders.a", Header: headers(func(h nats.Header) { h[ceID] = []string{"orders/a/"} })},
		{Subject: "lapse.expired.orders.a", Header: headers(func(h nats.Header) { h[ceID] = []string{"orders/a/x"} })},
		{Subject: "lapse.expired.orders.a", Header: headers(func(h nats.Header) { h[ceID] = []string{"orders/a/-1"} })},
		{Subject: "lapse.expired.orders.a",
			Header: headers(func(h nats.Header) { h[ceID] = []string{"orders/a/18446744073709551616"} })},
		{Subject: "lapse.rejected.orders.a", Header: nats.Header{wire.HeaderSeq: {"104"}}},
		{Subject: "lapse.rejected.orders.a", Header: nats.Header{wire.HeaderSeq: {"104"}, wire.HeaderStream: {"OTHER"}}},
		{Subject: "lapse.rejected.orders.a", Header: nats.Header{wire.HeaderStream: {"LAPSE_LOG"}}},
		{Subject: "lapse.rejected.a.b.c.d", Header: nats.Header{wire.HeaderStream: {"LAPSE_LOG"}, wire.HeaderSeq: {"five"}}},
		{Subject: "lapse.fence.7", Data: []byte("rubbish")},
		{Subject: "lapse.fence.x", Header: nats.Header{headerFence: {"105"}}},
	} {
		if _, err := r.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	at := r.publish(own[1])
	for _, replicas := range []int{1, 3} {
		r.p.replicated.Store(replicas > 1)
		tail := r.tail(0)
		if diff := cmpdiff.Diff(map[Key]uint64{own[0].Key: 1, own[1].Key: at.Seq}, places(tail)); diff != "" {
			t.Errorf("%d replicas: the tail has:\n%s", replicas, diff)
		}
		if named := tail.Named(0, 0); named[len(named)-1].Seq != 2 {
			t.Errorf("%d replicas: the tail names %+v", replicas, named)
		}
	}
}

// TestG3_ATailOfAnySize: a tail has everything that is stored, whatever one answer of the server can
// hold, and whatever was deleted.
//
// Goes red if read takes the end of an answer for the end of the stream.
func TestG3_ATailOfAnySize(t *testing.T) {
	check := func(t *testing.T, r *rig, messages []Message, gone func(i int) bool) {
		t.Helper()
		for _, replicas := range []int{1, 3} {
			r.p.replicated.Store(replicas > 1)
			tail := r.tail(0)
			for i, m := range messages {
				if at, found := tail.Find(m); found == gone(i) || found && at.Seq != uint64(i+1) {
					t.Fatalf("%d replicas: message %d is found: %t, at %s", replicas, i+1, found, at)
				}
			}
		}
	}
	nothing := func(int) bool { return false }
	t.Run("many", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
		var messages []Message
		for i := range 2*messagesAtOnce + 100 {
			messages = append(messages, event(strconv.Itoa(i), uint64(i+1), "{}"))
		}
		r.publish(messages...)
		requests := r.requests()
		r.tail(0)
		if n := len(r.asked(requests)); n != 3 {
			t.Errorf("it took %d requests", n)
		}
		check(t, r, messages, nothing)
	})
	for _, large := range []int{4, 20} {
		t.Run(fmt.Sprintf("%d large ones", large), func(t *testing.T) {
			r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
			var messages []Message
			for i := range 200 {
				size := 10
				if i%10 == 0 && i/10 < large {
					size = 1_000_000
				}
				messages = append(messages, event(strconv.Itoa(i), uint64(i+1), `"`+strings.Repeat("x", size)+`"`))
			}
			r.publish(messages...)
			check(t, r, messages, nothing)
		})
	}
	t.Run("each is larger than an answer", func(t *testing.T) {
		r := newRig(t, natstest.Options{Config: "max_payload: 8MB"}, jetstream.StreamConfig{})
		var messages []Message
		for i := range 3 {
			messages = append(messages, event(strconv.Itoa(i), uint64(i+1), `"`+strings.Repeat("x", bytesAtOnce+1000)+`"`))
			r.publish(messages[i])
		}
		check(t, r, messages, nothing)
	})
	t.Run("some are deleted", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
		messages := rejections("x", 1, messagesAtOnce+600)
		r.publish(messages...)
		gone := func(i int) bool {
			return i == 0 || i >= 100 && i < 300 || i == messagesAtOnce-1 || i == messagesAtOnce || i >= len(messages)-50
		}
		for i := range messages {
			if gone(i) {
				if err := r.stream.DeleteMsg(t.Context(), uint64(i+1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		check(t, r, messages, gone)
	})
	t.Run("purged", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
		messages := rejections("x", 1, 100)
		r.publish(messages...)
		if err := r.stream.Purge(t.Context(), jetstream.WithPurgeSequence(41)); err != nil {
			t.Fatal(err)
		}
		check(t, r, messages, func(i int) bool { return i < 40 })
		if err := r.stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(t, r, messages, func(int) bool { return true })
	})
}

// TestG12_ATailBeyondTheEnd: a stream with one replica does not have what the caller wants to be
// read. That is an error, and not a stream in which nothing is stored.
func TestG12_ATailBeyondTheEnd(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	r.publish(rejections("x", 1, 10)...)
	tail := r.p.NewTail(testLog)
	tail.Hold()
	for _, from := range []uint64{0, 5, 10, 15} {
		if err := tail.Cover(t.Context(), from, 20); !errors.Is(err, errBehind) || !strings.Contains(err.Error(),
			"it ends at sequence 10, and had 20") {
			t.Errorf("from %d: %v", from, err)
		}
	}
}

// TestG3_AReplicaThatLagsIsNotBelieved: a read waits until the replica that answers has stored the
// fence up to which it is to read, and finds everything before it.
//
// Goes red if read believes an answer that ends before the fence.
func TestG3_AReplicaThatLagsIsNotBelieved(t *testing.T) {
	for _, before := range []int{0, 1, 2} { // messages that the replica has when it is asked
		r := newRig(t, natstest.Options{}, atomicBatches)
		messages := []Message{event("a", 1, "{}"), event("b", 2, "{}"), event("c", 3, "{}")}
		r.publish(messages[:before]...)
		requests := r.requests()
		tail := r.p.NewTail(testLog)
		tail.Hold()
		done := make(chan error, 1)
		go func() { done <- tail.Cover(t.Context(), 0, 3) }()
		for range 2 { // the first answer was not believed
			<-requests
		}
		for _, m := range messages[before:] {
			r.publish(m)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if keys := missing(tail, messages); len(keys) > 0 {
			t.Errorf("the tail lacks %v", keys)
		}
	}
}

// TestG3_AnAnswerIsCut: what answers dies within an answer, or loses a part of it. The tail has
// everything in the end, or tells that it does not.
//
// Goes red if read takes a part of an answer for the whole, or fails at a cut answer of a replica.
func TestG3_AnAnswerIsCut(t *testing.T) {
	part := func(r *rig, m *nats.Msg, last, seq int) {
		stored := rejection("x", uint64(seq), "")
		stored.msg.Subject = m.Reply
		for name, value := range map[string]string{
			jetstream.SubjectHeader: "lapse.rejected.orders.1", jetstream.SequenceHeader: strconv.Itoa(seq),
			"Nats-Last-Sequence": strconv.Itoa(last),
		} {
			stored.msg.Header.Set(name, value)
		}
		if err := r.nc.PublishMsg(stored.msg); err != nil {
			r.t.Error(err)
		}
	}
	end := func(r *rig, m *nats.Msg, last string) {
		h := nats.Header{"Status": {"204"}, "Description": {"EOB"}, "Nats-Last-Sequence": {last}}
		if err := r.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: h}); err != nil {
			r.t.Error(err)
		}
	}
	newFake := func(t *testing.T, answer func(r *rig, m *nats.Msg, request int)) *rig {
		r := newRig(t, natstest.Options{}, atomicBatches)
		r.publish(rejections("x", 1, 4)...)
		changed := r.stream.CachedInfo().Config
		changed.AllowDirect = false // the test answers
		if _, err := r.js.UpdateStream(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		n := 0
		if _, err := r.nc.Subscribe("$JS.API.DIRECT.GET."+prefix.EventsStream(), func(m *nats.Msg) {
			n++
			answer(r, m,
				n)
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("it ends", func(t *testing.T) {
		r := newFake(t, func(r *rig, m *nats.Msg, request int) {
			if request == 1 {
				part(r, m, 0, 1)
				part(r, m, 1, 2)
				return // and dies
			}
			part(r, m, 0, 3)
			part(r, m, 3, 4)
			end(r, m, "4")
		})
		if keys := missing(r.tail(0), rejections("x", 1, 4)); len(keys) > 0 {
			t.Errorf("the tail lacks %v", keys)
		}
	})
	t.Run("a part is lost", func(t *testing.T) {
		r := newFake(t, func(r *rig, m *nats.Msg, _ int) {
			part(r, m, 0, 1)
			part(r, m, 2, 3)
			end(r, m, "3")
		})
		tail := r.p.NewTail(testLog)
		tail.Hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := tail.Cover(ctx, 0, 4); err == nil || !strings.Contains(err.Error(), "a part of the answer was lost") {
			t.Errorf("error %v", err)
		}
	})
}
